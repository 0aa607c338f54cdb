"""The blog's stage 1: tiers of trunks instead of dissolution from the lowest score up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.crystal.dissolution import BranchDissolution

__all__ = ["TieredDissolution"]

BISECTIONS = 40
WHOLE, PART = 0.3, 0.4  # shares of the trunks in the top and the middle tier
HIGH, LOW = 0.8, 0.5  # share of its slots that the best and the last trunk of the middle tier keep


@dataclass(frozen=True)
class TieredDissolution(BranchDissolution):
    """The best 30 % of the trunks stay whole, the next 40 % keep 80 % to 50 % of their slots, the rest go.

    Po-Ting Lin, "CrystalCache: Borrowing from Memory Psychology to Manage the KV Cache" (a blog post),
    section 5. "Tier boundaries shift to satisfy the global budget" does not specify how. Here both boundaries
    move together along the ranking until the budget is met, so the bottom tier grows at a small budget and
    the top tier at a large one; within the middle tier the share falls linearly with the rank. Slots left
    over by rounding fill up trunks from the best on, so a trunk may keep fewer slots at a larger budget. A
    trunk of the middle tier that would keep fewer than `min_keep` slots is evicted; the post has two
    contradictory sentences on this, and we follow the second.
    """

    def counts(self, sizes: Sequence[int], available: int) -> list[int]:
        if sum(sizes) <= available:
            return list(sizes)
        low, high = -1.0, 1.0  # everything is in the top tier; everything is in the bottom tier
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            if sum(self.at(middle, sizes)) > available:
                low = middle
            else:
                high = middle
        kept = self.at(high, sizes)
        spare = available - sum(kept)
        for place in reversed(range(len(sizes))):
            more = min(sizes[place], kept[place] + spare)
            if more >= min(self.min_keep, sizes[place]):
                spare -= more - kept[place]
                kept[place] = more
        return kept

    def at(self, shift: float, sizes: Sequence[int]) -> list[int]:
        """Return how many slots each trunk keeps if the boundaries move up by `shift` of the ranking."""
        kept = []
        for place, size in enumerate(sizes):
            rank = 1 - (place + 0.5) / len(sizes) + shift  # 0 for the best, 1 for the lowest
            if rank < WHOLE:
                kept.append(size)
            elif rank < WHOLE + PART:
                part = round(size * (HIGH - (HIGH - LOW) * (rank - WHOLE) / PART))
                kept.append(part if part >= self.min_keep else 0)
            else:
                kept.append(0)
        return kept
