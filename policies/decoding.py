"""The decoding part of a policy: extra prompts, and spans of the answer that are pinned in the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import torch
from torch import Tensor

from policies.contract import Mark, View
from policies.protect import marked_slots, round_down_share, slots_after

WORDING = 'After every step, write one short line that begins with "{line}" and says what holds by then.'


@dataclass(frozen=True)
class Plain:
    """The prompt of the task, unchanged, and no pinned spans."""

    extra_prompt: ClassVar[str] = ""
    mark: ClassVar[Mark | None] = None

    def pins(self, view: View, budget: int) -> Tensor:
        return torch.zeros_like(view.filled)


@dataclass(frozen=True)
class StateLines:
    """Ask the model for short lines that begin with `line` and pin them: the rejected variant `state_emit`.

    Sun and Harn, "Minimal-Intervention KV Retention via Set-Conditioned Diversity", say in Table 1: 'Prompted compact
    "State:" anchor lines give the eviction scorer dense pinnable tokens', and in section 3.2 that they "crowd reasoning
    content out of the cache at b=128". The rest is ours: the wording; lines are searched only in the answer, since the
    wording itself names them; a line is pinned as soon as its mark is written; pinned lines take at most `share` of the
    budget, rounded down, and the oldest complete line is released first; the last `recent` slots are pinned while the
    model answers, so that a line which is just beginning is not cut before its mark is complete.

    The extra prompt changes the answer even if nothing is pinned. The control `state_ask` asks and pins nothing.

    line, end, within: a span from `line` to `end`, see `contract.Mark`. wording: with "{line}" as the
    placeholder of the line. asked, pinned: whether the model is asked, and whether lines are pinned.
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
            raise ValueError("asked, pinned: both are off; set one of them, or use the parent policy")
        if not self.line or self.line != self.line.strip() or "\n" in self.line:
            raise ValueError(
                f"line: {self.line!r} is not a line start; write the text with which a line begins, without "
                "spaces around it"
            )
        if not self.end:
            raise ValueError("end: is empty; write the text with which a line ends")
        if self.asked and "{line}" not in self.wording:
            raise ValueError('wording: does not contain the line; write "{line}" where it belongs')
        if not 0 <= self.share <= 1:
            raise ValueError(f"share must be between 0 and 1, not {self.share}")
        if self.recent < 0:
            raise ValueError(f"recent must be 0 or more, not {self.recent}")

    @property
    def extra_prompt(self) -> str:
        return self.wording.replace("{line}", self.line) if self.asked else ""

    @property
    def mark(self) -> Mark | None:
        return Mark(self.line, self.end, self.within) if self.pinned else None

    def pins(self, view: View, budget: int) -> Tensor:
        """Pin nothing before the answer begins. The recent slots have priority over the lines."""
        is_answering = self.mark is not None and len(view.token_ids) > view.prompt
        if self.mark is None or not is_answering:
            return torch.zeros_like(view.filled)
        recent = min(self.recent, budget)
        most = min(round_down_share(self.share, budget), budget - recent)
        last = view.filled & (slots_after(view.filled) < recent)
        return last | marked_slots(view, self.mark, most)


def state_lines() -> Mapping[str, StateLines]:
    """Return by policy name the control and the rejected variant, which differs only in what it pins."""
    return MappingProxyType({"state_ask": StateLines(pinned=False), "state_emit": StateLines()})
