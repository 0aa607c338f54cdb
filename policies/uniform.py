"""The random control: slots drawn uniformly without replacement."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from policies.contract import Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect
from policies.routing import PerHead

__all__ = ["Draws", "random"]


@dataclass(frozen=True)
class Draws:
    """Uniform numbers from a stream of its own for each (seed, layer, KV head).

    Drawn on the host and then moved, so that every device keeps the same slots.
    """

    needs: ClassVar[frozenset[Signal]] = frozenset()

    def score(self, view: View) -> Scores:
        n = view.slots
        rows = [
            stream(view.seed, layer, head, n) for layer in range(view.layers) for head in range(view.kv_heads)
        ]
        return Scores(torch.stack(rows).view(view.layers, view.kv_heads, n).to(view.token_ids.device))


def stream(seed: int, layer: int, head: int, n: int) -> Tensor:
    """[n] uniform in [0, 1). The key is hashed: neighbouring seeds, layers and heads share nothing."""
    digest = hashlib.blake2b(f"{seed}/{layer}/{head}".encode(), digest_size=8).digest()
    generator = torch.Generator("cpu").manual_seed(int.from_bytes(digest, "big") >> 1)
    return torch.rand(n, generator=generator, device="cpu")


def random(sinks: int = 4, recent: int = 128) -> Policy:
    """Keep the protected slots and a random choice of the others, drawn for each layer and KV head.

    Sinks and recent slots are those of `crystal`: without the sinks any model breaks, and a scoring earns no
    credit for what every method protects, so chance rules only the part of the cache that is scored.
    Departs from kvpress' RandomPress, which protects nothing and, when seeded, draws one mask for all layers.
    """
    return Policy(scoring=Draws(), routing=PerHead(), protect=Protect(sinks=sinks, recent=recent))
