"""Scissorhands: evict the slots that recent queries attend to least often (arXiv:2305.17118)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from policies.contract import AttentionRows, Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect
from policies.routing import PerHead
from policies.signals import EveryLayer, add_earlier, group_mean, read_signal
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "scissorhands": PolicyFacts(
        "attention",
        "what recent queries ignore least often",
        "arXiv:2305.17118",
        "What recent queries ignore, later ones ignore too.",
    )
}


class NeglectState(NamedTuple):
    """State of NeglectCounts for one layer."""

    low: Tensor
    """[q_head, n], the number of rows that give the slot less than their average attention."""
    received: Tensor
    """[q_head, n], attention summed over the rows."""


@dataclass(frozen=True)
class NeglectCounts(EveryLayer):
    """How often each slot is below average among the last `window` rows, or all of a shorter prompt.

    Row i sees i + 1 slots, whose average is 1 / (i + 1); masked slots are not counted. Not measured while decoding:
    after an eviction the index of a slot is not its position, so the number of visible slots is unknown.
    """

    window: int

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ValueError(f"window must be 1 or more, not {self.window}")

    carried: ClassVar[bool] = False
    of_whole: ClassVar[bool] = True

    def attend(self, rows: AttentionRows, before: NeglectState | None) -> NeglectState:
        skipped = max(0, rows.total - self.window - rows.start)
        attention = rows.attention[..., skipped:, :]
        count, n = attention.shape[-2:]
        first = rows.start + skipped
        last = torch.arange(first, first + count, device=attention.device)[:, None]
        is_visible = torch.arange(n, device=attention.device) <= last
        low = (attention < 1 / (last + 1).to(attention.dtype)) & is_visible
        new = NeglectState(low.sum(-2, dtype=torch.int32), attention.sum(-2))
        return new if before is None else NeglectState(*map(add_earlier, new, before))


@dataclass(frozen=True)
class Neglect:
    """The negative count of rows below average, mean over a group; ties are ranked by received attention."""

    window: int

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({NeglectCounts(self.window)})

    def score(self, view: View) -> Scores:
        layers = read_signal(view, NeglectCounts(self.window))
        low = torch.stack([group_mean(passed.low.double(), view.kv_heads) for passed in layers])
        received = torch.stack([group_mean(passed.received.double(), view.kv_heads) for passed in layers])
        # Unequal means of counts differ by 1 / group or more, and a slot receives at most 1 from each row.
        group = len(layers[0].low) // view.kv_heads
        return Scores(received / (group * (self.window + 1)) - low)


def scissorhands(window: int = 400, recent: int = 10) -> Policy:
    """Keep the last `recent` slots and, of the others, those least often below average in the last rows.

    The counter of low scores with w = 400 and r = 10 is the paper's as others report it; its text was not available.
    Ours: the counter is the mean over the query heads of a group, and equal counts rank by the attention received in
    the window. Departs from the paper: one eviction step at the end of prefill, down to the budget, instead of dropping
    a batch whenever the cache is full; equal budgets in all layers. The authors' code (lzcemma/Scissorhands @ d0bf444)
    is another policy, without a budget: it masks the slots that were in no recent row's highest tenth.

    The CrystalCache paper calls another policy Scissorhands: H2O with its sum over a sliding window (section
    2.2 of that paper, which does not run it).
    """
    return Policy(scoring=Neglect(window), routing=PerHead(), protect=Protect(sinks=0, recent=recent))
