"""S5 and S6: two-path score and branch dissolution (CrystalCache, sections 3.6 and 3.7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from policies.contract import BudgetError, Scores, Trunks

__all__ = ["BranchDissolution", "Dissolved"]

EPSILON = 1e-8  # Eq. 28; the paper gives its value for Eq. 27 only


class Dissolved(NamedTuple):
    kept: list[int]
    """Positions, ascending."""
    score: Tensor
    """[trunk] float64, Eq. 29; the formula is extended to protected trunks, whose score decides nothing."""
    retention: Tensor
    """[trunk] float64, r_g of Eq. 32. D after the event is retention * D in every case of Eq. 34."""


@dataclass(frozen=True)
class BranchDissolution:
    """Dissolve the lowest trunks, the last of them in part; scores of slots are M_i.

    A trunk that holds a protected slot leaves the pool whole. A remainder of fewer than `min_keep` slots goes
    as well, so up to min_keep - 1 slots of the budget stay unused (the degenerate partial of Eq. 32).
    Ties keep the lower position, between trunks and within one; the paper leaves them open.
    """

    alpha: float = 1.0
    min_keep: int = 3

    @property
    def slack(self) -> int:
        return max(0, self.min_keep - 1)

    def select(self, scores: Scores, protected: Tensor, allocation: Tensor) -> Tensor:
        if scores.trunks is None:
            raise ValueError("BranchDissolution needs scores with trunks: use it with the scoring of crystal")
        kept = torch.zeros_like(scores.slots, dtype=torch.bool)
        protected = protected.expand(scores.slots.shape)
        for row in product(*map(range, allocation.shape)):
            held = self.dissolve(scores.slots[row], scores.trunks, protected[row], int(allocation[row])).kept
            kept[row][held] = True
        return kept

    def dissolve(self, impact: Tensor, trunks: Trunks, protected: Tensor, budget: int) -> Dissolved:
        """Algorithm 1 for one keep set. impact and protected are [n].

        Raises BudgetError for protected trunks larger than the budget.
        """
        held = protected.tolist()
        whole = [any(held[span.start : span.stop]) for span in trunks.spans]
        alive = [g for g, is_whole in enumerate(whole) if not is_whole]
        size = sum(len(span) for span, is_whole in zip(trunks.spans, whole, strict=True) if is_whole)
        if size > budget:
            raise BudgetError(
                f"budget of {budget} slots is below the {size} slots of the trunks that hold the {sum(held)} "
                f"protected slots: raise the budget to at least {size} or protect fewer"
            )
        score = self.compose(trunks, alive)
        retention = self.retain(trunks.spans, score, alive, budget - size)
        values = impact.tolist()
        kept: list[int] = []
        for span, share in zip(trunks.spans, retention, strict=True):
            if share == 1:
                kept.extend(span)
            elif share > 0:
                count = min(len(span), max(self.min_keep, round(share * len(span))))  # Eq. 33
                kept.extend(sorted(nlargest(count, span, key=lambda position: (values[position], -position))))
        return Dissolved(kept, score, score.new_tensor(retention))

    def compose(self, trunks: Trunks, alive: Sequence[int]) -> Tensor:
        """Eq. 28-29: max of D and the impact, log-compressed and scaled over the unprotected trunks."""
        compressed = torch.log1p(trunks.impact)
        pool = compressed[list(alive)] if alive else compressed
        scaled = (compressed - pool.min()) / (pool.max() - pool.min() + EPSILON)
        return torch.maximum(trunks.crystallization, self.alpha * scaled)

    def retain(
        self, spans: Sequence[range], score: Tensor, alive: Sequence[int], available: int
    ) -> list[float]:
        """Eq. 32: r_g of every trunk, when the unprotected ones may hold `available` slots."""
        retention = [1.0] * len(spans)
        values = score.tolist()
        cut = sum(len(spans[g]) for g in alive) - available
        for g in sorted(alive, key=lambda g: (values[g], -g)):
            if cut <= 0:
                break
            rest = len(spans[g]) - cut
            retention[g] = rest / len(spans[g]) if rest >= max(1, self.min_keep) else 0.0
            cut = 0 if retention[g] else cut - len(spans[g])
        return retention
