"""Which slots no selection may drop."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import torch
from torch import Tensor

from policies.contract import Mark, Protection, TextProtection, View

BUDGET_SHARE = re.compile(r"K/([1-9][0-9]{0,5})|min\(([0-9]{1,7}), ?K/([1-9][0-9]{0,5})\)")
"""A fraction of the budget K, optionally with a maximum."""


@dataclass(frozen=True)
class Protect:
    """The first `sinks` and the last `recent` slots, both inside the budget.

    Attention sinks: StreamingLLM, arXiv:2309.17453. The defaults are those of CrystalCache, Table 14.

    always: protect at every eviction step; if False, only at the end of the prefill.
    """

    sinks: int = 4
    recent: int = 128
    always: bool = True
    stacks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.sinks < 0 or self.recent < 0:
            raise ValueError(f"sinks and recent must be 0 or more, not {self.sinks} and {self.recent}")

    def slots(self, filled: Tensor, budget: int, *, decoding: bool, prompt: Tensor | None = None) -> Tensor:
        if decoding and not self.always:
            return torch.zeros_like(filled)
        return filled & ((slot_index(filled) < self.sinks) | (slots_after(filled) < self.recent))


@dataclass(frozen=True)
class RecentHalf:
    """The last budget // 2 slots; an odd slot goes to the scored half."""

    stacks: ClassVar[bool] = True

    def slots(self, filled: Tensor, budget: int, *, decoding: bool, prompt: Tensor | None = None) -> Tensor:
        return filled & (slots_after(filled) < budget // 2)


@dataclass(frozen=True)
class Pinned:
    """Protect every slot of the prompt, and what `inner` protects with the remaining budget."""

    inner: Protection

    def slots(self, filled: Tensor, budget: int, *, decoding: bool, prompt: Tensor | None = None) -> Tensor:
        prompt = filled if prompt is None else prompt
        left = max(0, budget - int(prompt.sum(-1).max()))
        return prompt | self.inner.slots(filled, left, decoding=decoding, prompt=prompt)


@dataclass(frozen=True)
class PinnedSeen(Pinned):
    """`Pinned` around a protection that depends on the text."""

    inner: TextProtection

    @property
    def mark(self) -> Mark:
        return self.inner.mark

    def slots_in_text(self, view: View, budget: int) -> Tensor:
        prompt = view.filled & (view.positions < view.prompt)
        return prompt | self.inner.slots_in_text(view, max(0, budget - int(prompt.sum(-1).max())))


@dataclass(frozen=True)
class Preserve:
    """Every slot of the prompt, and the last `recent` slots of each head, both inside the budget.

    The defaults are those of EpiKV: section 3.3 ("preserves the prompt (prefill) tokens and a trailing recency window")
    and Appendix D ("Recency is min(128, K/4) throughout"). Its budget caps the cache in section 3.1 and applies to the
    remaining positions in section 3.3: we follow the former, as everywhere in this package.

    prompt: whether the slots of the prompt are protected; at the end of the prefill these are all slots.
    recent: a number of slots, "K/4" or "min(128, K/4)", where K is the budget of the eviction step; fractions
        are rounded down.
    """

    prompt: bool = True
    recent: int | str = "min(128, K/4)"
    stacks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        budget_slots("recent", self.recent, 0)

    def slots(self, filled: Tensor, budget: int, *, decoding: bool, prompt: Tensor | None = None) -> Tensor:
        recent = filled & (slots_after(filled) < budget_slots("recent", self.recent, budget))
        if not self.prompt:
            return recent
        return recent | (filled if prompt is None else prompt)


@dataclass(frozen=True)
class Boundary(Preserve):
    """What `Preserve` protects, and the first `sinks` slots of each head, inside the budget.

    arXiv:2605.18053 reserves a tenth of the cache at each boundary: sinks = recent = "K/10", prompt = False.

    sinks: a number of slots or a share of the budget, as `recent`.
    """

    sinks: int | str = "K/10"

    def __post_init__(self) -> None:
        super().__post_init__()
        budget_slots("sinks", self.sinks, 0)

    def slots(self, filled: Tensor, budget: int, *, decoding: bool, prompt: Tensor | None = None) -> Tensor:
        sinks = filled & (slot_index(filled) < budget_slots("sinks", self.sinks, budget))
        return sinks | super().slots(filled, budget, decoding=decoding, prompt=prompt)


@dataclass(frozen=True)
class Marked:
    """Protect what `inner` protects, and the lines of the answer that begin with `line`.

    Lines take at most the budget that inner leaves, and at most `share` of the budget, rounded down; the
    oldest line is released first, and a line is protected completely or not at all.
    """

    inner: Protection
    line: str
    share: float = 0.5

    def __post_init__(self) -> None:
        if not self.line or self.line != self.line.strip() or "\n" in self.line:
            raise ValueError(
                f"line: {self.line!r} is not a line start; write the text with which lines begin, without "
                "spaces around it"
            )
        if not 0 <= self.share <= 1:
            raise ValueError(f"share must be between 0 and 1, not {self.share}")

    @property
    def mark(self) -> Mark:
        return Mark(self.line)

    def slots(self, filled: Tensor, budget: int, *, decoding: bool, prompt: Tensor | None = None) -> Tensor:
        return self.inner.slots(filled, budget, decoding=decoding, prompt=prompt)

    def slots_in_text(self, view: View, budget: int) -> Tensor:
        inner_slots = protected_slots(self.inner, view, budget)
        left = max(0, budget - int(inner_slots.sum(-1).max()))
        return inner_slots | marked_slots(view, self.mark, min(round_down_share(self.share, budget), left))


def protected_slots(protect: Protection, view: View, budget: int) -> Tensor:
    """Return the slots that a protection holds at an eviction step, bool [layer | 1, kv_head | 1, n]."""
    if isinstance(protect, TextProtection):
        return protect.slots_in_text(view, budget)
    filled, decoding = view.filled, view.stored is not None
    # At the end of a prefill all slots are the prompt's, unless a part of an answer was fed with it.
    has_answer = 0 < view.prompt < len(view.token_ids)
    prompt = filled & (view.positions < view.prompt) if decoding or has_answer else None
    return protect.slots(filled, budget, decoding=decoding, prompt=prompt)


def newest_lines(lines: Sequence[range], most: int) -> list[range]:
    """Return the newest lines with at most `most` tokens in total, oldest first."""
    retained: list[range] = []
    for line in reversed(lines):
        most -= len(line)
        if most < 0:
            break
        retained.append(line)
    return retained[::-1]


def marked_slots(view: View, mark: Mark, most: int) -> Tensor:
    """Return the slots of the newest marked lines of at most `most` tokens, bool [layer | 1, kv_head | 1, n].

    Evicted tokens count too, so that all heads release the same lines, permanently.
    """
    is_marked = torch.zeros(len(view.token_ids), dtype=torch.bool, device=view.token_ids.device)
    for line in newest_lines(view.lines.get(mark, ()), most):
        is_marked[line.start : line.stop] = True
    return view.filled & is_marked[view.positions.clamp(min=0)]


def round_down_share(share: float, budget: int) -> int:
    """Return share * budget rounded down, using the decimal value of `share`, not its binary float."""
    return int(Fraction(repr(share)) * budget)


def budget_slots(field: str, slots: int | str, budget: int) -> int:
    """Return the number of slots that `slots` means if K is `budget`. Raises ValueError, which names the field."""
    if isinstance(slots, str) and (match := BUDGET_SHARE.fullmatch(slots)):
        share, most, divisor = match.groups()
        return budget // int(share) if share else min(int(most), budget // int(divisor))
    if type(slots) is int and slots >= 0:
        return slots
    raise ValueError(f'{field}: {slots!r} is not a number of slots; write a number, "K/4" or "min(128, K/4)"')


def slot_index(filled: Tensor) -> Tensor:
    """filled [..., n] -> [n], the index of each slot in its head: 0, 1, 2, ..."""
    return torch.arange(filled.shape[-1], device=filled.device)


def slots_after(filled: Tensor) -> Tensor:
    """filled [..., n] -> [..., n], the number of later slots in the head; negative for padding."""
    return filled.sum(-1, keepdim=True) - 1 - slot_index(filled)
