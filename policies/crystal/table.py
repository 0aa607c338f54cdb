"""The trunk table: what CrystalCache knows of its slots from one event to the next."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from policies.crystal.graph import Links

__all__ = ["TrunkTable"]


class TrunkTable(NamedTuple):
    """All tensors lie on the host. A trunk is a run of neighbouring slots.

    Satisfies `policies.contract.Remembered`.
    """

    slots: Tensor
    """[n] float64, M_i; Eq. 22."""
    spans: tuple[range, ...]
    """Slots of each trunk; in order, together 0..n-1."""
    crystallization: Tensor
    """[trunk] float64, D."""
    impact: Tensor
    """[trunk] float64, Eq. 23: of the members that the trunk was built with, for good."""
    links: Links
    seen: int
    """Tokens seen when it was last touched."""

    @classmethod
    def empty(cls) -> TrunkTable:
        """Before the first event."""
        numbers = torch.zeros(0, dtype=torch.float64, device="cpu")
        nothing = Links(numbers.long(), numbers.long(), numbers)
        return cls(numbers, (), numbers, numbers, nothing, 0)

    def after(self, kept: Tensor) -> TrunkTable:
        """Eq. 34: D shrinks with the share of its slots that a trunk keeps; without any it is forgotten.

        kept [layer, kv_head, n]. Raises ValueError where heads keep different slots: a trunk has one state.
        """
        own = kept[0, 0].cpu()
        if not (kept == kept[0, 0]).all():
            raise ValueError("trunks are remembered for one keep set: give crystal the routing Shared()")
        stays = own.tolist()
        sizes = self.links.a.new_tensor([sum(stays[span.start : span.stop]) for span in self.spans])
        alive = sizes > 0
        stops = [0, *accumulate(sizes[alive].tolist())]
        place = torch.where(alive, alive.cumsum(0) - 1, -1)
        a, b = place[self.links.a], place[self.links.b]
        linked = (a >= 0) & (b >= 0)
        share = sizes.double() / sizes.new_tensor([len(span) for span in self.spans])
        return TrunkTable(
            self.slots[own],
            tuple(range(start, stop) for start, stop in pairwise(stops)),
            (self.crystallization * share)[alive],
            self.impact[alive],
            Links(a[linked], b[linked], self.links.weight[linked]),
            self.seen,
        )

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.slots, self.crystallization, self.impact, *self.links)
