"""H2O: heavy hitters and recent slots (arXiv:2306.14048)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from policies.contract import Scores, Signal, View
from policies.policy import Policy
from policies.protect import RecentHalf
from policies.routing import PerHead
from policies.signals import AttentionSums, group_mean, read_signal
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "h2o": PolicyFacts(
        "attention",
        "recent slots, and those with the largest summed attention over all queries",
        "arXiv:2306.14048",
        "A few tokens receive most of all attention, and continue to receive it.",
        aliases=("h20", "heavy-hitter", "heavy-hitter-oracle"),
    )
}


@dataclass(frozen=True)
class AccumulatedAttention:
    """Attention received from all queries so far, mean over the query heads of a group.

    The queries are those of the prompt and of the tokens generated since: sums continue across eviction
    steps, and include queries whose own slots were evicted. They are not divided by the number of queries
    that see a key: early slots are favoured, as published.
    """

    needs: ClassVar[frozenset[Signal]] = frozenset({AttentionSums()})
    stacks: ClassVar[bool] = True

    def score(self, view: View) -> Scores:
        layers = read_signal(view, AttentionSums())
        return Scores(torch.stack([group_mean(sums, view.kv_heads) for sums in layers], -3))


def h2o() -> Policy:
    """Keep the last budget // 2 slots and, of the others, those with the largest accumulated attention.

    Follows H2OKVCache_LayerWise of FMInference/H2O at the end of prefill. Departs from it: eviction at the
    end of the prefill and, with an interval, every `interval` tokens instead of at every decode step; query
    heads of a group share their mean (the authors' code works only for one query head per KV head); half of
    the budget is recent instead of an absolute number.
    """
    return Policy(scoring=AccumulatedAttention(), routing=PerHead(), protect=RecentHalf())
