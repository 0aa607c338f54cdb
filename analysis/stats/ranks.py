"""Tests by ranks: Spearman's correlation, with limits by Fisher's z, and whether two groups differ."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

MIN_PAIRS = 5  # no limits for fewer pairs: with four they span -1 to 1 unless the order is perfect


class RankCorrelation(NamedTuple):
    rho: float
    low: float
    high: float
    n: int


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Return Pearson's correlation of the ranks of pairs; equal values share their mean rank. NaN if all
    values of one side are equal, and for fewer than two pairs.

    Raises ValueError for sides of different length and for a value that is not finite.
    """
    sides = [np.asarray(side, dtype=np.float64) for side in (x, y)]
    if sides[0].shape != sides[1].shape or sides[0].ndim != 1:
        raise ValueError(f"sides: two lists of equal length can be ranked, not {sides[0].shape} and {sides[1].shape}")
    if not all(np.isfinite(side).all() for side in sides):
        raise ValueError("sides: a value is not finite and has no rank; leave it out")
    first, second = (stats.rankdata(side) - (len(side) + 1) / 2 for side in sides)
    spread = math.sqrt(float(first @ first) * float(second @ second))
    return float(first @ second) / spread if spread else math.nan


def rank_correlation(x: ArrayLike, y: ArrayLike, level: float = 0.95) -> RankCorrelation | None:
    """Return Spearman's rho with two-sided limits; None for fewer than 5 pairs or a constant side.

    Limits: tanh of atanh(rho) -+ z sqrt((1 + rho^2 / 2) / (n - 3)) (Bonett and Wright 2000, Psychometrika
    65:23). They assume independent random pairs.
    """
    rho, n = spearman(x, y), len(np.asarray(x))
    if n < MIN_PAIRS or math.isnan(rho):
        return None
    half_width = float(stats.norm.ppf((1 + level) / 2)) * math.sqrt((1 + rho**2 / 2) / (n - 3))
    z = math.atanh(max(-1.0, min(1.0, rho))) if abs(rho) < 1 else math.copysign(math.inf, rho)
    return RankCorrelation(rho, math.tanh(z - half_width), math.tanh(z + half_width), n)


def rank_sum_p(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the two-sided p of Mann and Whitney's test (1947) of two independent groups, with the correction for ties;
    1 if all values are equal.
    """
    if len({*first, *second}) < 2:
        return 1.0
    return float(stats.mannwhitneyu(first, second).pvalue)
