"""Ranks of arms that were measured on the same problems, with simultaneous intervals.

Mogstad, Romano, Shaikh and Wilhelm (2024, Review of Economic Studies 91:476), section 3: an arm's rank is at least one
more than the number of arms that are better than it, and at most the number of arms less those that are worse, by
simultaneous intervals of all pairwise differences. All ranks are covered together where these intervals are.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.stats.comparison import Comparison
from analysis.stats.resampled_units import Clusters, compare_simultaneously


class RankedArms(NamedTuple):
    """arms: scores, each [problem, seed] with the problems in one order. clusters: of the problems, or None."""

    arms: Sequence[NDArray[np.float64]]
    clusters: Clusters = None


class RankInterval(NamedTuple):
    """mean: of an arm's scores. first, last: the ranks that it may have, 1 for the highest mean."""

    mean: float
    first: int
    last: int


def rank_arms(
    groups: Sequence[RankedArms], *, level: float = 0.95, draws: int, rng: np.random.Generator
) -> list[list[RankInterval]]:
    """Return the rank interval of every arm; they hold together, over all groups, with probability `level`.

    groups: arms that are ranked with each other; each group has problems of its own. The intervals are those of
    `max_t.max_t` for all pairs. Raises DegenerateDifference as it does, also for fewer than two arms.
    """
    pairs = [list(combinations(range(len(group.arms)), 2)) for group in groups]
    differences = [
        [(group.arms[i] - group.arms[j], group.clusters, 0.0) for i, j in compared]
        for group, compared in zip(groups, pairs, strict=True)
    ]
    comparisons = compare_simultaneously(differences, level=level, draws=draws, rng=rng)
    return [_rank_group(*members) for members in zip(groups, pairs, comparisons, strict=True)]


def _rank_group(
    group: RankedArms, pairs: Sequence[tuple[int, int]], comparisons: Sequence[Comparison]
) -> list[RankInterval]:
    decided = [
        (i, j) if found.low > 0 else (j, i)
        for (i, j), found in zip(pairs, comparisons, strict=True)
        if not found.low <= 0 <= found.high
    ]
    winners, losers = [winner for winner, _ in decided], [loser for _, loser in decided]
    count = len(group.arms)
    return [
        RankInterval(float(arm.mean()), 1 + losers.count(number), count - winners.count(number))
        for number, arm in enumerate(group.arms)
    ]
