"""States simple enough to follow by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from tiny_networks import DIM, KV_HEADS, LAYERS

from policies import Eviction, Merging, Policy, Verbatim


class Affine(NamedTuple):
    """mean [layer, kv_head, d], basis [layer, kv_head, d, rank] with orthonormal columns, in float64."""

    mean: Any
    basis: Any

    @property
    def width(self):
        return self.basis.shape[-1]

    def encode(self, layer, values):
        return (values.double() - self.mean[layer][:, None]) @ self.basis[layer]

    def decode(self, layer, stored):
        return stored.double() @ self.basis[layer].mT + self.mean[layer][:, None]

    def expand(self, layer, attended):
        group = attended.shape[-3] // len(self.mean[layer])
        basis, mean = (part[layer].repeat_interleave(group, 0) for part in (self.basis, self.mean))
        return attended.double() @ basis.mT + mean[:, None]


def affine(rank: int, seed: int = 5) -> Affine:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(LAYERS, KV_HEADS, DIM, DIM, generator=generator, dtype=torch.float64)
    mean = torch.randn(LAYERS, KV_HEADS, DIM, generator=generator, dtype=torch.float64)
    return Affine(mean, torch.linalg.qr(drawn).Q[..., :rank])


@dataclass(frozen=True)
class Coded(Verbatim):
    """Values in a random basis of their own for each head."""

    rank: int = 6

    def codec(self, statistics):
        return affine(self.rank)

    def slot_bytes(self, width, itemsize):
        return (width + self.rank) * itemsize


@dataclass(frozen=True)
class Gathered(Verbatim):
    """What is dropped goes on in the next slot that is kept, all members alike; every fifth token is lost."""

    rank: int = 0
    """Of a code, too; 0 for none."""
    mass: bool = True
    lossless: bool = False
    """Nothing is merged after all."""
    merges: ClassVar[bool] = True
    keeps_counts: ClassVar[bool] = True

    def merge(self, view, scores, protected, kept):
        # With one keep set for all, every row of the positions is the same.
        positions = view.positions.expand(view.layers, view.kv_heads, -1)[: len(kept), : kept.shape[1]]
        into = torch.full(kept.shape, -1)
        shares = torch.zeros(kept.shape, dtype=torch.float64)
        for layer, head, slot in kept.nonzero().tolist():
            members, before = [slot], slot - 1
            while before >= 0 and not kept[layer, head, before] and not self.lossless:
                if int(positions[layer, head, before]) % 5:
                    members.append(before)
                before -= 1
            for member in members:
                into[layer, head, member], shares[layer, head, member] = slot, 1 / len(members)
        return Merging(kept, into, shares)

    def codec(self, statistics):
        return affine(self.rank) if self.rank else None

    def slot_bytes(self, width, itemsize):
        return (width + (self.rank or width)) * itemsize + 4


@dataclass(frozen=True)
class Told(Policy):
    """A policy that notes every view, and every event of it."""

    notes: list[tuple[Any, Eviction]] = field(default_factory=list, compare=False)

    def evict(self, view, budget):
        event = super().evict(view, budget)
        self.notes.append((view, event))
        return event
