"""S5 and S6: two-path score and branch dissolution (CrystalCache, sections 3.6 and 3.7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import product
from typing import ClassVar, Literal, NamedTuple, TypeAlias, get_args

import torch
from torch import Tensor

from policies.contract import BudgetError, Scores, Signal, Trunks, View

EPSILON = 1e-8  # Eq. 28; the paper gives its value for Eq. 27 only

Fusion: TypeAlias = Literal["maximum", "average", "product", "impact"]


class Dissolution(NamedTuple):
    retained: list[int]
    """Slots, ascending."""
    score: Tensor
    """[trunk] float64, Eq. 29; also computed for protected trunks, whose score is not used."""
    retention: Tensor
    """[trunk] float64, r_g of Eq. 32."""


@dataclass(frozen=True)
class BranchDissolution:
    """Dissolve the lowest trunks, the last of them partially; scores of slots are M_i.

    A trunk that contains a protected slot is kept completely and leaves the pool. A remainder of fewer than `min_keep`
    slots is evicted as well, so up to min_keep - 1 slots of the budget stay unused (the degenerate partial of Eq. 32).
    Ties keep the lower position, between trunks and within one; the paper does not specify ties.

    fusion: how D and the scaled impact are combined into a score. "maximum" is Eq. 29; the others are
        rejected in section 3.6 and ablated in section 6.1: their average with equal weights, their product,
        and the impact alone. D alone is alpha = 0.
    coverage: the share of the unprotected budget that is spread evenly over the dissolved slots, together
        with all slots that the dissolution leaves unused (F3 of the paper, which does not specify the form).
    """

    alpha: float = 1.0
    min_keep: int = 3
    fusion: Fusion = "maximum"
    coverage: float = 0.0
    needs: ClassVar[frozenset[Signal]] = frozenset()
    exceeds: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not (self.alpha >= 0 and self.min_keep >= 0):
            raise ValueError(f"alpha and min_keep must be 0 or more, not {self.alpha} and {self.min_keep}")
        if not 0 <= self.coverage <= 1 or self.fusion not in get_args(Fusion):
            raise ValueError(
                f"fusion must be one of {', '.join(get_args(Fusion))} and coverage from 0 to 1, "
                f"not {self.fusion!r} and {self.coverage}"
            )

    @property
    def unused(self) -> int:
        return max(0, self.min_keep - 1)

    def select(self, view: View, scores: Scores, protected: Tensor, allocation: Tensor) -> Tensor:
        if scores.trunks is None:
            raise ValueError("BranchDissolution needs scores with trunks; use it with the scoring of crystal")
        retained = torch.zeros_like(scores.slots, dtype=torch.bool)
        protected = protected.expand(scores.slots.shape)
        for row in product(*map(range, allocation.shape)):
            dissolved = self.dissolve(scores.slots[row], scores.trunks, protected[row], int(allocation[row]))
            retained[row][dissolved.retained] = True
        return retained

    def dissolve(self, impact: Tensor, trunks: Trunks, protected: Tensor, budget: int) -> Dissolution:
        """Run Algorithm 1 for one keep set. impact and protected are [n].

        Raises BudgetError for protected trunks larger than the budget, unless it `exceeds`.
        """
        spans, is_protected = trunks.spans, protected.tolist()
        alive = [g for g, span in enumerate(spans) if not any(is_protected[span.start : span.stop])]
        available = budget - len(is_protected) + sum(len(spans[g]) for g in alive)
        if available < 0 and not self.exceeds:
            raise BudgetError(
                f"budget of {budget} slots is below the {budget - available} slots of the trunks that "
                f"contain the {sum(is_protected)} protected slots; raise the budget to at least "
                f"{budget - available} or protect fewer"
            )
        available = max(0, available)
        score = self.fuse_scores(trunks, alive)
        trunk_scores = score.tolist()
        ranked = sorted(alive, key=lambda g: (trunk_scores[g], -g))
        fits = sum(len(spans[g]) for g in alive) <= available
        reserve = 0 if fits else int(self.coverage * available)
        counts = [len(span) for span in spans]
        for g, count in zip(
            ranked, self.retained_counts([counts[g] for g in ranked], available - reserve), strict=True
        ):
            counts[g] = count
        values = impact.tolist()
        retained = [slot for span, count in zip(spans, counts, strict=True) for slot in best_slots(span, count, values)]
        if self.coverage:
            retained = fill_evenly(retained, len(is_protected), budget)
        retention = [count / len(span) for span, count in zip(spans, counts, strict=True)]
        return Dissolution(retained, score, score.new_tensor(retention))

    def fuse_scores(self, trunks: Trunks, alive: Sequence[int]) -> Tensor:
        """Eq. 28-29: combine D with the impact, log-compressed and scaled over the unprotected trunks."""
        compressed = torch.log1p(trunks.impact)
        pool = compressed[list(alive)] if alive else compressed
        scaled = (compressed - pool.min()) / (pool.max() - pool.min() + EPSILON)
        impact, crystallization = self.alpha * scaled, trunks.crystallization
        if self.fusion == "maximum":
            return torch.maximum(crystallization, impact)
        if self.fusion == "average":
            return (crystallization + impact) / 2
        return crystallization * impact if self.fusion == "product" else impact

    def retained_counts(self, sizes: Sequence[int], available: int) -> list[int]:
        """Eq. 32-33: return how many slots each trunk keeps. sizes: in ascending order of score.

        For a partially kept trunk round(r_g |g|) is exactly |g| - c, so the rounding of Eq. 33 has no effect.
        """
        cut, retained = sum(sizes) - available, []
        for size in sizes:
            rest = size - max(0, cut)
            retained.append(rest if rest >= max(1, self.min_keep) or cut <= 0 else 0)
            cut -= size - retained[-1]
        return retained


@dataclass(frozen=True)
class ExceedingDissolution(BranchDissolution):
    """Keep protected trunks completely even if they exceed the budget, as in Eq. 31 and Algorithm 1.

    B - B_prot is then negative, every other trunk dissolves, and the cache holds B_prot slots. An eviction
    step may exceed its budget, so equal memory of two arms has to be measured.
    """

    exceeds: ClassVar[bool] = True


def best_slots(span: range, count: int, values: Sequence[float]) -> Sequence[int]:
    """Return the `count` slots of a trunk with the highest values, in order; Eq. 33."""
    if count == len(span):
        return span
    return sorted(nlargest(count, span, key=lambda slot: (values[slot], -slot)))


def fill_evenly(retained: Sequence[int], n: int, budget: int) -> list[int]:
    """Add evenly spaced other slots to the retained ones until the budget is used."""
    chosen = set(retained)
    others = [slot for slot in range(n) if slot not in chosen]
    spare = min(budget - len(retained), len(others))
    return sorted([*retained, *(others[(2 * k + 1) * len(others) // (2 * spare)] for k in range(spare))])
