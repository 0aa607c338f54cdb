"""What a calibration run says of a model: a value of one of several kinds, under a name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

__all__ = ["Bases", "Calibrated", "Routes", "Statistics", "Thresholds"]


class Statistics(NamedTuple):
    """What a calibration run says of a model: its queries before RoPE, its values, its rotation.

    Pairs are those of the half layout: entry i and entry i + d/2 of a head are one complex number.
    """

    query_mean: Tensor
    """[layer, q_head, d/2] complex64."""
    query_magnitude: Tensor
    """[layer, q_head, d/2] float32, the mean of the absolute values."""
    value_direction: Tensor
    """[d] float32 of unit length: where the values point on average (`selection.signature`)."""
    frequencies: Tensor
    """[d/2] float64, the angle by which RoPE turns each pair from one position to the next."""
    scaling: float
    """Square of what the model's rotary embedding multiplies queries and keys with."""


class Thresholds(NamedTuple):
    """Which thought a segment of an answer is, by how sparse its attention is (ThinKV, arXiv:2510.01290).

    Execution below `low`, transition from `high` on, reasoning between the two.
    """

    layers: tuple[int, ...]
    """The layers whose sparsity counts, ascending; its mean over them is compared."""
    low: float
    high: float
    """Shares of the attended slots, 0 to 1."""


class Bases(NamedTuple):
    """The directions in which the values of a head vary most, around their mean."""

    mean: Tensor
    """[layer, kv_head, d] float32."""
    basis: Tensor
    """[layer, kv_head, d, d] float32, orthonormal columns, the direction of the largest variance first."""


class Routes(NamedTuple):
    """Which heads keep what their own scores rank first; the others keep slots at even distances."""

    attention: Tensor
    """[layer, kv_head] bool."""


@dataclass(frozen=True)
class Calibrated:
    """What a calibration run says of the model under this name; a View holds a value of this `kind`."""

    name: str
    kind: type[Any] = Statistics
