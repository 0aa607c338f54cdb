"""KeyDiff: keep the keys that are least like the others (arXiv:2504.15364)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from policies.contract import Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect
from policies.routing import PerHead
from policies.signals import read_signal, upcast
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "keydiff": PolicyFacts(
        "stored",
        "keys that are least similar to the mean key",
        "arXiv:2504.15364",
        "Keys that differ from the mean key are attended to.",
        parent="knorm",
        component="scoring",
    )
}


@dataclass(frozen=True)
class MeanKeyCosine:
    """Cosine of each stored key to the mean of the normalised keys of its head: [kv_head, n].

    The mean is over the slots that are filled; float32 or better.
    """

    stacks: ClassVar[bool] = True

    def summarise(self, layer: int, keys: Tensor, values: Tensor, filled: Tensor) -> Tensor:
        keys = upcast(keys)
        unit = functional.normalize(keys, dim=-1).masked_fill(~filled[..., None], 0)
        # The sum gives the same cosine as the mean, and is defined for a head without slots.
        return functional.cosine_similarity(keys, unit.sum(-2, keepdim=True), dim=-1)


@dataclass(frozen=True)
class Dissimilarity:
    """The negative cosine of a key to the mean key."""

    needs: ClassVar[frozenset[Signal]] = frozenset({MeanKeyCosine()})
    stacks: ClassVar[bool] = True

    def score(self, view: View) -> Scores:
        return Scores(-torch.stack(read_signal(view, MeanKeyCosine()), -3))


def keydiff() -> Policy:
    """Keep the slots whose keys are least like the mean key, of each layer and KV head; nothing is protected.

    The paper evicts after every block of a prefill, and so compares only the survivors and the new block. Here there is
    one eviction step, at the end of prefill, over all keys (as in KeyDiffPress of NVIDIA/kvpress 0.5.5).
    """
    return Policy(scoring=Dissimilarity(), routing=PerHead(), protect=Protect(sinks=0, recent=0))
