"""The trunk table: the state of CrystalCache between eviction steps."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from policies.crystal.graph import Links


class TrunkTable(NamedTuple):
    """The trunks of the slots, a trunk being a run of neighbouring slots. All tensors are on the host.

    Implements `policies.contract.ScoringMemory`.
    """

    slots: Tensor
    """[n] float64, M_i; Eq. 22."""
    spans: tuple[range, ...]
    """Slots of each trunk; in order, together 0..n-1."""
    crystallization: Tensor
    """[trunk] float64, D."""
    impact: Tensor
    """[trunk] float64, Eq. 23, computed from the initial members of the trunk and never updated."""
    links: Links
    token_count: int
    """Number of tokens fed at the last update."""

    @classmethod
    def empty(cls) -> TrunkTable:
        """Return the table before the first eviction step."""
        numbers = torch.zeros(0, dtype=torch.float64, device="cpu")
        no_links = Links(numbers.long(), numbers.long(), numbers)
        return cls(numbers, (), numbers, numbers, no_links, 0)

    def retain(self, retained: Tensor) -> TrunkTable:
        """Eq. 34: scale D by the share of its slots that a trunk keeps; remove trunks without slots.

        retained [layer, kv_head, n]. Raises ValueError if heads keep different slots: a trunk has one state.
        """
        is_retained = retained[0, 0].cpu()
        if not (retained == retained[0, 0]).all():
            raise ValueError("crystal needs one keep set for all heads; give it the routing Shared()")
        flags = is_retained.tolist()
        sizes = self.links.a.new_tensor([sum(flags[span.start : span.stop]) for span in self.spans])
        alive = sizes > 0
        stops = [0, *accumulate(sizes[alive].tolist())]
        new_index = torch.where(alive, alive.cumsum(0) - 1, -1)
        a, b = new_index[self.links.a], new_index[self.links.b]
        has_trunks = (a >= 0) & (b >= 0)
        share = sizes.double() / sizes.new_tensor([len(span) for span in self.spans])
        return TrunkTable(
            self.slots[is_retained],
            tuple(range(start, stop) for start, stop in pairwise(stops)),
            (self.crystallization * share)[alive],
            self.impact[alive],
            Links(a[has_trunks], b[has_trunks], self.links.weight[has_trunks]),
            self.token_count,
        )
