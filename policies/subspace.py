"""Values in a subspace: the variant `subspace` of Sun and Harn (arXiv:2605.14292), which they rejected.

They write: "Per-head V is low-rank; a rank-32 PCA basis holds quality at ~1.6x memory saving" (Table 1), and
"per-head V is compressed via a low-rank PCA basis" (section 2). 1.6 is (128 + 128) / (128 + 32): heads of
width 128 whose keys are stored uncompressed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor

from policies.calibration import Bases, Calibrated
from policies.contract import Codec, Merging, Scores, Signal, View
from policies.full import full
from policies.policy import Policy
from policies.signals import read_calibration, upcast
from policies.triattention import triattention
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "subspace": PolicyFacts(
        "triattention",
        "as 1d, but values are stored as coefficients of the 32 directions of largest variance",
        "Sun and Harn, arXiv:2605.14292",
        "Values of a head have low rank: a basis of rank 32 keeps accuracy and frees memory for more slots.",
        parent="1d",
        component="state",
    ),
    "full-subspace": PolicyFacts(
        "controls",
        "every slot, with its value as 32 coefficients: shows the cost of the coding alone",
        "ours",
        "Without eviction, values of rank 32 lose no accuracy.",
        parent="full",
        component="state",
    ),
}


def coefficients(values: Tensor, mean: Tensor, basis: Tensor) -> Tensor:
    """values [..., kv_head, t, d], mean [kv_head, d], basis [kv_head, d, rank] -> [..., kv_head, t, rank].

    (v - mean) B: the coordinate of a value along each direction. Computed in float32 or better; the result
    has the dtype of the values.
    """
    exact = upcast(values)
    centred = exact - mean.to(exact)[:, None]
    return torch.einsum("...htd,hdr->...htr", centred, basis.to(exact)).to(values.dtype)


def expand_coefficients(stored: Tensor, mean: Tensor, basis: Tensor) -> Tensor:
    """stored [..., head, t, rank] -> [..., head, t, d]; head is a KV head, or a query head of one.

    mean + c B': the value with these coefficients. Since attention weights sum to 1, a weighted mean of
    coefficients expands to the same mean of values. Computed in float32 or better; the result has the dtype
    of the stored coefficients.
    """
    exact = upcast(stored)
    kv_heads, width = mean.shape
    grouped = exact.reshape(*exact.shape[:-3], kv_heads, -1, exact.shape[-1])
    values = torch.einsum("...htr,hdr->...htd", grouped, basis.to(exact)) + mean.to(exact)[:, None]
    return values.reshape(*exact.shape[:-1], width).to(stored.dtype)


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Values as coefficients of the first `rank` directions of a model's bases.

    mean [layer, kv_head, d]; basis [layer, kv_head, d, rank].
    """

    mean: Tensor
    basis: Tensor

    @property
    def width(self) -> int:
        return self.basis.shape[-1]

    def encode(self, layer: int, values: Tensor) -> Tensor:
        return coefficients(values, self.mean[layer], self.basis[layer])

    def decode(self, layer: int, stored: Tensor) -> Tensor:
        return expand_coefficients(stored, self.mean[layer], self.basis[layer])

    def expand(self, layer: int, attended: Tensor) -> Tensor:
        return expand_coefficients(attended, self.mean[layer], self.basis[layer])


@dataclass(frozen=True)
class Subspace:
    """Store keys as computed and, of each value, its coefficients along the `rank` directions in which values
    of its layer and KV head vary most, around their mean.

    Attention averages coefficients, and the result is expanded once. Not in the paper, so ours: a mean is
    subtracted, bases are calibrated in advance on the model's own answers (computing them at run time would
    cost what they save), coefficients have the dtype of the model. The paper's name for the variant,
    "subspace_moekv", suggests a choice among several bases, which it does not describe; here there is one.

    statistics: the name under which the bases were calibrated.
    """

    rank: int = 32
    statistics: str = "bases"
    merges: ClassVar[bool] = False
    keeps_counts: ClassVar[bool] = True
    mass: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"rank must be 1 or more, not {self.rank}")

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({Calibrated(self.statistics, Bases)})

    def merge(self, view: View, scores: Scores, protected: Tensor, retained: Tensor) -> Merging | None:
        read_calibration(view, self.statistics, Bases)  # raises if the bases are missing
        return None

    def codec(self, statistics: Mapping[str, Any]) -> Codec:
        bases = statistics.get(self.statistics)
        if not isinstance(bases, Bases):
            raise ValueError(
                f"state.statistics: no bases were calibrated as {self.statistics!r}; run: "
                f"kv-prereg calibrate MODEL {self.statistics} --task TASK"
            )
        layers, kv_heads, width, rank = bases.basis.shape
        if bases.mean.shape != (layers, kv_heads, width):
            raise ValueError(
                f"state.statistics: the basis {self.statistics!r} is for {[layers, kv_heads, width]} "
                f"layers, KV heads and numbers, but its mean is for {list(bases.mean.shape)}; calibrate "
                "the model again"
            )
        if rank < self.rank:
            raise ValueError(
                f"state.rank: is {self.rank}, but {self.statistics!r} has {rank} directions for heads of "
                f"{width} numbers; set fewer, or calibrate the model again"
            )
        return Coefficients(bases.mean, bases.basis[..., : self.rank].contiguous())

    def refuse_width(self, width: int) -> None:
        if self.rank >= width:
            raise ValueError(
                f"state.rank: {self.rank} coefficients save nothing for a value of {width} numbers; set fewer"
            )

    def slot_bytes(self, width: int, itemsize: int) -> int:
        return (width + self.rank) * itemsize


def subspaces() -> Mapping[str, Policy]:
    """Return by name the rejected variant, which differs from `1d` in its state alone, and the full cache
    with the same encoding, which measures the cost of the encoding alone.

    At equal bytes it holds more slots: 102 instead of 64 at a width of 128.
    """
    return MappingProxyType(
        {"subspace": replace(triattention(), state=Subspace()), "full-subspace": replace(full(), state=Subspace())}
    )
