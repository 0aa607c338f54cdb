"""Results of a calibration run on a model: named values of several types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor


class Statistics(NamedTuple):
    """Calibrated statistics of a model: its queries before RoPE, its values, its rotation.

    Pairs are those of the half layout: entry i and entry i + d/2 of a head are one complex number.
    """

    query_mean: Tensor
    """[layer, q_head, d/2] complex64."""
    query_magnitude: Tensor
    """[layer, q_head, d/2] float32, the mean of the absolute values."""
    value_direction: Tensor
    "[d] float32 of unit length: the mean direction of the values (`selection.signature`)."
    frequencies: Tensor
    """[d/2] float64, the angle by which RoPE turns each pair from one position to the next."""
    scaling: float
    """Square of the factor by which the model's rotary embedding scales queries and keys."""


class Thresholds(NamedTuple):
    """Sparsity thresholds that classify the segments of an answer (ThinKV, arXiv:2510.01290).

    Execution below `low`, transition from `high` on, reasoning between the two.
    """

    layers: tuple[int, ...]
    """The layers over which the sparsity is averaged, ascending."""
    low: float
    high: float
    """Fractions of the attended slots, 0 to 1."""


class Bases(NamedTuple):
    """The directions in which the values of a head vary most, around their mean."""

    mean: Tensor
    """[layer, kv_head, d] float32."""
    basis: Tensor
    """[layer, kv_head, d, d] float32, orthonormal columns, the direction of the largest variance first."""


class Routes(NamedTuple):
    """The heads that keep their highest scores; the other heads keep evenly spaced slots."""

    attention: Tensor
    """[layer, kv_head] bool."""


@dataclass(frozen=True)
class Calibrated:
    """A signal: the calibration result of the model under this name; a View holds a value of this `kind`."""

    name: str
    kind: type[Any] = Statistics
