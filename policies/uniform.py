"""The random control: slots drawn uniformly without replacement."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from policies.contract import Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect
from policies.routing import PerHead
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "random": PolicyFacts(
        "controls",
        "sinks and recent slots, and a random choice of the others",
        "ours",
        "Which slots are kept does not matter: the baseline that others must beat.",
    ),
    "random-twin": PolicyFacts(
        "controls",
        "as random, but with other draws: equal in distribution, for studies that must find nothing",
        "ours",
        "None: a difference from random is an error of the study.",
        parent="random",
        component="scoring",
    ),
}


@dataclass(frozen=True)
class Draws:
    """Uniform random numbers from a separate stream for each (seed, layer, KV head).

    Drawn on the host and then moved, so that every device keeps the same slots.
    """

    needs: ClassVar[frozenset[Signal]] = frozenset()
    first_layer: ClassVar[int] = 0
    """Added to the number of a layer in the key of its stream."""

    def score(self, view: View) -> Scores:
        n = view.slots
        layers = range(self.first_layer, self.first_layer + view.layers)
        rows = [draw_uniform(view.seed, layer, head, n) for layer in layers for head in range(view.kv_heads)]
        return Scores(torch.stack(rows).view(view.layers, view.kv_heads, n).to(view.token_ids.device))


@dataclass(frozen=True)
class TwinDraws(Draws):
    """`Draws` from streams of their own, so that no draw is one of `Draws`."""

    first_layer: ClassVar[int] = 1 << 20


def draw_uniform(seed: int, layer: int, head: int, n: int) -> Tensor:
    """Return [n] uniform in [0, 1). The key is hashed, so streams of neighbouring seeds are independent."""
    digest = hashlib.blake2b(f"{seed}/{layer}/{head}".encode(), digest_size=8).digest()
    generator = torch.Generator("cpu").manual_seed(int.from_bytes(digest, "big") >> 1)
    return torch.rand(n, generator=generator, device="cpu")


def random(sinks: int = 4, recent: int = 128) -> Policy:
    """Keep the protected slots and a random choice of the others, drawn for each layer and KV head.

    Sinks and recent slots are those of `crystal`: any model fails without the sinks, and a scoring should get
    no credit for slots that every method protects, so only the scored part of the cache is random. Departs
    from kvpress' RandomPress, which protects nothing and, when seeded, draws one mask for all layers.
    """
    return Policy(scoring=Draws(), routing=PerHead(), protect=Protect(sinks=sinks, recent=recent))


def random_twin() -> Policy:
    """`random` with `TwinDraws`: comparing the two, a study has no effect to find, and yet answers that differ."""
    return replace(random(), scoring=TwinDraws())
