"""Which slots no selection may drop."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from policies.contract import Protection

__all__ = ["Pinned", "Protect", "RecentHalf"]


@dataclass(frozen=True)
class Protect:
    """The first `sinks` and the last `recent` slots, both inside the budget.

    Attention sinks: StreamingLLM, arXiv:2309.17453. The defaults are those of CrystalCache, Table 14.

    always: at every event; False at the end of the prefill only.
    """

    sinks: int = 4
    recent: int = 128
    always: bool = True

    def __post_init__(self) -> None:
        if self.sinks < 0 or self.recent < 0:
            raise ValueError(f"sinks and recent must be 0 or more, not {self.sinks} and {self.recent}")

    def slots(self, filled: Tensor, budget: int, *, decoding: bool, prompt: Tensor | None = None) -> Tensor:
        if decoding and not self.always:
            return torch.zeros_like(filled)
        return filled & ((from_first(filled) < self.sinks) | (from_last(filled) < self.recent))


@dataclass(frozen=True)
class RecentHalf:
    """The last budget // 2 slots; an odd slot goes to the scored half."""

    def slots(self, filled: Tensor, budget: int, *, decoding: bool, prompt: Tensor | None = None) -> Tensor:
        return filled & (from_last(filled) < budget // 2)


@dataclass(frozen=True)
class Pinned:
    """Every slot of the prompt, and what `inner` protects with the budget that the prompt leaves."""

    inner: Protection

    def slots(self, filled: Tensor, budget: int, *, decoding: bool, prompt: Tensor | None = None) -> Tensor:
        prompt = filled if prompt is None else prompt
        left = max(0, budget - int(prompt.sum(-1).max()))
        return prompt | self.inner.slots(filled, left, decoding=decoding, prompt=prompt)


def from_first(filled: Tensor) -> Tensor:
    """filled [..., n] -> [n], the place of each slot of its head: 0, 1, 2, ..."""
    return torch.arange(filled.shape[-1], device=filled.device)


def from_last(filled: Tensor) -> Tensor:
    """filled [..., n] -> [..., n], slots of the head that come after; negative beyond the last."""
    return filled.sum(-1, keepdim=True) - 1 - from_first(filled)
