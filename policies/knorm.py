"""Key norm: keep the keys of small L2 norm (arXiv:2406.11430)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from policies.contract import Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect
from policies.routing import PerHead
from policies.signals import Norms, read_signal
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "knorm": PolicyFacts("stored", "keys of small norm", "arXiv:2406.11430", "Keys of small norm are attended to.")
}


@dataclass(frozen=True)
class SmallKeys:
    """The negative norm of the key."""

    needs: ClassVar[frozenset[Signal]] = frozenset({Norms()})
    stacks: ClassVar[bool] = True

    def score(self, view: View) -> Scores:
        return Scores(-torch.stack([norms.key for norms in read_signal(view, Norms())], -3))


def knorm() -> Policy:
    """Keep the slots with the smallest keys, of each layer and KV head; nothing is protected.

    Departs from the authors' code (l2_compress of alessiodevoto/l2compress @ f93d6ca): layers 0 and 1, which
    their README leaves uncompressed, are evicted from like the others, so that every layer holds the budget;
    short prompts are evicted from as well; norms are computed in float32 or better for any cache dtype.
    """
    return Policy(scoring=SmallKeys(), routing=PerHead(), protect=Protect(sinks=0, recent=0))
