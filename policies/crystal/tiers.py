"""The blog's stage 1: tiers of trunks instead of dissolution from the lowest score up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from policies.crystal.dissolution import BranchDissolution

BISECTIONS = 40
TOP_SHARE, MIDDLE_SHARE = 0.3, 0.4  # shares of the trunks in the top and the middle tier
MOST_RETAINED, LEAST_RETAINED = 0.8, 0.5  # share of its slots that the best and the last trunk of the middle tier keep


@dataclass(frozen=True)
class TieredDissolution(BranchDissolution):
    """The best 30 % of the trunks stay whole, the next 40 % keep 80 % to 50 % of their slots, the rest go.

    Po-Ting Lin, "CrystalCache: Borrowing from Memory Psychology to Manage the KV Cache" (a blog post), section 5. "Tier
    boundaries shift to satisfy the global budget" does not specify how. Here both boundaries move together along the
    ranking until the budget is met, so the bottom tier grows at a small budget and the top tier at a large one; within
    the middle tier the share falls linearly with the rank. Slots left over by rounding fill up trunks from the best on,
    so a trunk may keep fewer slots at a larger budget. A trunk of the middle tier that would keep fewer than `min_keep`
    slots is evicted; the post has two contradictory sentences on this, and we follow the second.
    """

    def retained_counts(self, sizes: Sequence[int], available: int) -> list[int]:
        if sum(sizes) <= available:
            return list(sizes)
        low, high = -1.0, 1.0  # everything is in the top tier; everything is in the bottom tier
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            if sum(self.counts_at(middle, sizes)) > available:
                low = middle
            else:
                high = middle
        retained = self.counts_at(high, sizes)
        spare = available - sum(retained)
        for trunk in reversed(range(len(sizes))):
            count = min(sizes[trunk], retained[trunk] + spare)
            if count >= min(self.min_keep, sizes[trunk]):
                spare -= count - retained[trunk]
                retained[trunk] = count
        return retained

    def counts_at(self, shift: float, sizes: Sequence[int]) -> list[int]:
        """Return how many slots each trunk keeps if the boundaries move up by `shift` of the ranking."""
        retained = []
        for trunk, size in enumerate(sizes):
            rank = 1 - (trunk + 0.5) / len(sizes) + shift  # 0 for the best, 1 for the lowest
            if rank < TOP_SHARE:
                retained.append(size)
            elif rank < TOP_SHARE + MIDDLE_SHARE:
                lost = (MOST_RETAINED - LEAST_RETAINED) * (rank - TOP_SHARE) / MIDDLE_SHARE
                count = partial_count(size, MOST_RETAINED - lost)
                retained.append(count if count >= self.min_keep else 0)
            else:
                retained.append(0)
        return retained


def partial_count(size: int, share: float) -> int:
    """Return size * share to the nearest whole number, a half up: the post's example keeps 5 of 9 at 0.5."""
    return math.floor(size * share + 0.5)
