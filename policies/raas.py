"""RaaS: evict the slots that no query has attended to for the longest time (arXiv:2502.11147)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from policies.contract import AttentionRows, Scores, Signal, View
from policies.policy import Policy
from policies.protect import Pinned, Protect
from policies.routing import PerLayer
from policies.signals import EveryLayer, read_signal
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "raas": PolicyFacts(
        "attention",
        "the prompt, and what some query attended to most recently",
        "arXiv:2502.11147",
        "Reasoning steps are attended to for a while and then never again.",
    )
}


def update_stamps(attention: Tensor, before: Tensor | None, start: int, threshold: float) -> Tensor:
    """Return the time at which each slot was last attended to: int32 [..., 1, slot] for all heads of a layer.

    attention [..., q_head, row, slot] of consecutive rows, the first at time `start`; before [..., 1, m], the
    previous stamps, slots m and later being new. A row stamps the slots to which some head gives at least
    `threshold` of its attention, and its own slot; a new slot starts with its time of arrival.
    """
    rows, n = attention.shape[-2:]
    is_looked_at = attention.amax(-3, keepdim=True) >= threshold
    time = torch.arange(start, start + rows, dtype=torch.int32, device=attention.device)
    latest = torch.where(is_looked_at, time[:, None], -1).amax(-2)
    width = latest.shape[-1] if before is None else before.shape[-1]
    old_slots = 0 if before is None else width
    arrivals = torch.arange(start, start + n - old_slots, dtype=torch.int32, device=attention.device)
    arrivals = arrivals.expand(*latest.shape[:-1], -1)
    return torch.maximum(latest, arrivals if before is None else torch.cat([before, arrivals], -1))


@dataclass(frozen=True)
class Stamps(EveryLayer):
    """`update_stamps`, accumulated from row to row. Time is the position of the query."""

    threshold: float = 1e-4
    window: ClassVar[None] = None
    stacks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1:
            raise ValueError(f"threshold must be between 0 and 1, not {self.threshold}")

    def attend(self, rows: AttentionRows, before: Tensor | None) -> Tensor:
        return update_stamps(rows.attention, before, rows.start, self.threshold)


@dataclass(frozen=True)
class LastLooked:
    """The stamp of a slot; of equal stamps, the later slot scores higher."""

    threshold: float = 1e-4
    stacks: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({Stamps(self.threshold)})

    def score(self, view: View) -> Scores:
        times = torch.stack(read_signal(view, Stamps(self.threshold)), -3).double()
        return Scores(times + view.positions / view.token_count)


def raas(threshold: float = 1e-4) -> Policy:
    """Keep the prompt and, of the answer, the tokens that some head attended to most recently.

    The abstract and summaries of the paper describe stamps that attention renews, eviction of the oldest stamps, and a
    prompt that is kept completely; its text was not available, and the threshold of 1e-4 is as others report it (they
    also report, instead of a threshold, the upper half of the cache). Ours: a slot is a token, where the authors use
    pages of 16; one stamp for all heads of a layer, renewed as soon as one query head exceeds the threshold; of equal
    stamps the later token stays; the last token is never evicted. The public code of the authors (DerekHJH/RaaS) is
    another policy: each query head stamps the better half of the pages that a step may read, by a bound on their
    logits, the last page is spared, and pages are masked but never freed.

    The budget includes the prompt, which the paper does not specify: a budget below the prompt is refused.
    Stamps are renewed at every token for any interval; with an interval the cache grows by that many tokens
    between evictions, where the authors evict at every token. State: one int32 per slot and layer.
    """
    return Policy(scoring=LastLooked(threshold), routing=PerLayer(), protect=Pinned(Protect(sinks=0, recent=1)))
