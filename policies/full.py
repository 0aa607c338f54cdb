"""The full cache: the reference arm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from policies.cadence import Cadence
from policies.contract import Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "full": PolicyFacts(
        "controls",
        "every slot: the full cache, which never evicts",
        "ours",
        "Without eviction, the accuracy is what the model can reach on the task.",
        aliases=("none", "baseline", "no-eviction", "full-cache", "fullkv", "dense"),
    )
}


@dataclass(frozen=True)
class Equal:
    """The same score for every slot."""

    needs: ClassVar[frozenset[Signal]] = frozenset()

    def score(self, view: View) -> Scores:
        n = view.slots
        return Scores(torch.zeros(1, 1, n, device=view.token_ids.device))


def full() -> Policy:
    """Never evicts."""
    return Policy(scoring=Equal(), cadence=Cadence.never(), protect=Protect(sinks=0, recent=0))
