"""The exact test of two arms that answered each problem once (McNemar 1947): the binomial of the discordant
pairs.
"""

import numpy as np
from numpy.typing import ArrayLike
from statsmodels.stats.contingency_tables import mcnemar as _mcnemar

from analysis.stats.interval import DegenerateDifference, Interval, newcombe_paired, problem_means

__all__ = ["mcnemar"]


def mcnemar(own: ArrayLike, other: ArrayLike, *, level: float = 0.95) -> Interval:
    """Difference of the shares solved, Newcombe's interval for pairs, and the exact two-sided p.

    own, other: [problem, 1], 1 solved, 0 not, problems in one order. p is 1 without a discordant pair. The
    interval does not invert the test: it may exclude zero at a p slightly above 1 - level. Raises
    DegenerateDifference for more than one draw a problem, since draws of one problem are not independent
    pairs (test problem means instead), for unequal or fewer than two problems, and for scores other than 0
    and 1.
    """
    first, second = (np.asarray(scores, dtype=np.float64) for scores in (own, other))
    if first.shape != second.shape:
        raise DegenerateDifference(
            f"own, other: shapes {first.shape}, {second.shape}; pair the problems first"
        )
    problem_means(first - second)
    if first.shape[1] > 1:
        raise DegenerateDifference(
            f"seeds: {first.shape[1]} draws of a problem are not independent pairs; use t or sign-flip"
        )
    if not np.isin([first, second], (0.0, 1.0)).all():
        raise DegenerateDifference("own, other: a score is neither 0 nor 1; pass one graded answer each")
    solved, other_solved = first[:, 0] == 1, second[:, 0] == 1
    both, neither = int((solved & other_solved).sum()), int((~solved & ~other_solved).sum())
    gained, lost = int((solved & ~other_solved).sum()), int((~solved & other_solved).sum())
    low, high = newcombe_paired(both, gained, lost, neither, level)
    p = float(_mcnemar([[both, gained], [lost, neither]], exact=True).pvalue)
    return Interval((gained - lost) / len(first), low, high, p)
