"""Which slots no selection may drop."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from policies.contract import Protection

__all__ = ["Pinned", "Preserve", "Protect", "RecentHalf"]

OF_BUDGET = re.compile(r"K/([1-9][0-9]{0,5})|min\(([0-9]{1,7}), ?K/([1-9][0-9]{0,5})\)")
"""A share of the budget K, alone or with the most that it may be."""


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


@dataclass(frozen=True)
class Preserve:
    """Every slot of the prompt, and the last `recent` slots of each head, both inside the budget.

    The defaults are what EpiKV keeps besides its scores: section 3.3 ("preserves the prompt (prefill) tokens
    and a trailing recency window") and Appendix D ("Recency is min(128, K/4) throughout"). Its budget is said
    to cap the cache (section 3.1) and to hold for the remaining positions (section 3.3): we read the first,
    as everywhere in this package.

    prompt: whether the slots of the prompt are protected; at the end of the prefill they are all there is.
    recent: a number of slots, "K/4" or "min(128, K/4)", where K is the budget of the event; shares are
        rounded down.
    """

    prompt: bool = True
    recent: int | str = "min(128, K/4)"

    def __post_init__(self) -> None:
        recent_of(self.recent, 0)

    def slots(self, filled: Tensor, budget: int, *, decoding: bool, prompt: Tensor | None = None) -> Tensor:
        recent = filled & (from_last(filled) < recent_of(self.recent, budget))
        if not self.prompt:
            return recent
        return recent | (filled if prompt is None else prompt)


def recent_of(recent: int | str, budget: int) -> int:
    """Slots that `recent` asks for where K is `budget`. Raises ValueError for what is no such rule."""
    if isinstance(recent, str) and (found := OF_BUDGET.fullmatch(recent)):
        share, most, of = found.groups()
        return budget // int(share) if share else min(int(most), budget // int(of))
    if type(recent) is int and recent >= 0:
        return recent
    raise ValueError(f'recent: {recent!r} given; write a number of slots, "K/4" or "min(128, K/4)"')


def from_first(filled: Tensor) -> Tensor:
    """filled [..., n] -> [n], the place of each slot of its head: 0, 1, 2, ..."""
    return torch.arange(filled.shape[-1], device=filled.device)


def from_last(filled: Tensor) -> Tensor:
    """filled [..., n] -> [..., n], slots of the head that come after; negative beyond the last."""
    return filled.sum(-1, keepdim=True) - 1 - from_first(filled)
