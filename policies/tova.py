"""TOVA: keep the slots that the last token attends to (arXiv:2401.06104)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from policies.contract import Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect
from policies.routing import PerLayer
from policies.signals import AttentionSums, group_mean, read_signal
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "tova": PolicyFacts(
        "attention",
        "what the last query attends to, with one set for each layer",
        "arXiv:2401.06104",
        "What the last query attends to is what the next ones will attend to.",
    )
}


@dataclass(frozen=True)
class LastRow:
    """Attention from the last query, mean over the query heads of a group."""

    needs: ClassVar[frozenset[Signal]] = frozenset({AttentionSums(window=1)})
    stacks: ClassVar[bool] = True

    def score(self, view: View) -> Scores:
        layers = read_signal(view, AttentionSums(window=1))
        return Scores(torch.stack([group_mean(row, view.kv_heads) for row in layers], -3))


def tova() -> Policy:
    """Keep, in each layer, the slots with the largest attention from the last query, mean over all heads.

    Nothing is protected, not even the last slot. Follows TOVACache.reduce of schwartz-lab-NLP/TOVA @ 9c7d09b
    at the end of prefill. Departs from it: eviction at the end of the prefill and, with an interval, every
    `interval` tokens instead of at every decode step.
    """
    return Policy(scoring=LastRow(), routing=PerLayer(), protect=Protect(sinks=0, recent=0))
