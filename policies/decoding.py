"""What the prompt asks for, and how text is emitted given that the cache is compressed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import torch
from torch import Tensor

from policies.contract import Mark, View
from policies.protect import from_last, marked, share_of

__all__ = ["Plain", "StateLines", "state_lines"]

WORDING = 'After every step, write one short line that begins with "{line}" and says what holds by then.'


@dataclass(frozen=True)
class Plain:
    """The prompt of the task, unchanged, and no pinned spans."""

    asks: ClassVar[str] = ""
    mark: ClassVar[Mark | None] = None

    def pins(self, view: View, budget: int) -> Tensor:
        return torch.zeros_like(view.filled)


@dataclass(frozen=True)
class StateLines:
    """Short lines that begin with `line` are asked for and, once written, pinned: the gate `state_emit`.

    Sun and Harn, "Minimal-Intervention KV Retention via Set-Conditioned Diversity", say in Table 1:
    'Prompted compact "State:" anchor lines give the eviction scorer dense pinnable tokens', and in section
    3.2 that they "crowd reasoning content out of the cache at b=128". All else is ours: the wording; that
    lines are looked for in the text of the answer alone, since the wording itself names them; that a line is
    pinned as soon as its mark is written; that pinned lines take at most `share` of the budget, rounded down,
    and the oldest whole line is let go first; that the last `recent` slots are pinned while the model
    answers, so that a line which is just beginning is not cut before its mark is there.

    What is asked changes what is said, whatever is pinned. So `state_ask` asks and pins nothing: the control.

    line, end, within: a stretch from `line` to `end`, as `contract.Mark` has it. wording: with "{line}" where
    the line is named. asked, pinned: whether it asks, and whether it pins.
    """

    line: str = "State:"
    end: str = "\n"
    within: bool = False
    wording: str = WORDING
    asked: bool = True
    pinned: bool = True
    share: float = 0.5
    recent: int = 2

    def __post_init__(self) -> None:
        if not (self.asked or self.pinned):
            raise ValueError("asked, pinned: neither asks nor pins; set one of them, or take the parent")
        if not self.line or self.line != self.line.strip() or "\n" in self.line:
            raise ValueError(
                f"line: {self.line!r} given; write what a line begins with, without spaces around it"
            )
        if not self.end:
            raise ValueError("end: is empty; write what a line ends with")
        if self.asked and "{line}" not in self.wording:
            raise ValueError('wording: does not name the line; write "{line}" where it stands')
        if not 0 <= self.share <= 1:
            raise ValueError(f"share must be between 0 and 1, not {self.share}")
        if self.recent < 0:
            raise ValueError(f"recent must be 0 or more, not {self.recent}")

    @property
    def asks(self) -> str:
        return self.wording.replace("{line}", self.line) if self.asked else ""

    @property
    def mark(self) -> Mark | None:
        return Mark(self.line, self.end, self.within) if self.pinned else None

    def pins(self, view: View, budget: int) -> Tensor:
        """Nothing before the answer begins. The last slots go before the lines where both do not fit."""
        answers = self.mark is not None and len(view.token_ids) > view.prompt
        if self.mark is None or not answers:
            return torch.zeros_like(view.filled)
        recent = min(self.recent, budget)
        most = min(share_of(self.share, budget), budget - recent)
        last = view.filled & (from_last(view.filled) < recent)
        return last | marked(view, self.mark, most)


def state_lines() -> Mapping[str, StateLines]:
    """By name of the policy: the control, and the gate, which differs from it in what it pins."""
    return MappingProxyType({"state_ask": StateLines(pinned=False), "state_emit": StateLines()})
