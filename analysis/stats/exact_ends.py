"""Intervals that stay valid near a ceiling: the ends of any method, widened to those of the exact test.

Where 1 or 2 % of the problems are gained and none is lost, nominal 95 % intervals from a mean and its error
cover in 44 to 93 % of studies, and resampling cannot draw a loss that was not observed. The interval of
`restricted_likelihood` allows for it, so narrower ends are widened to it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.stats import exact_resampling, restricted_likelihood
from analysis.stats.comparison import Comparison

GAP_TO_NULL = 1e-6  # distance to the null: the last digit that a judgement prints


class StudyEnds(NamedTuple):
    """Interval ends of many studies, [study] each."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]


def widen_to_exact(comparison: Comparison, difference: ArrayLike, *, level: float, null: float = 0.0) -> Comparison:
    """Return the comparison of difference[problem, seed] with an interval at least as wide as the exact one
    at `level`.

    An end that excluded the null stops just short of it, so that the interval excludes the null exactly where
    it did before. The interval stays as it is if all problems agree (rule of three) or if differences are not
    integers, which the exact test cannot count.
    """
    values = np.asarray(difference, dtype=np.float64)
    if np.ptp(values.mean(axis=1)) == 0 or np.any(values != np.round(values)):
        return comparison
    counts = exact_resampling.count_sums(values)
    exact_ends = np.array([restricted_likelihood.cached_limits(tuple(counts.tolist()), level)])
    low, high = widen_ends(StudyEnds(np.array([comparison.low]), np.array([comparison.high])), exact_ends, null)
    return comparison._replace(low=float(low[0]), high=float(high[0]))


def widen_ends(ends: StudyEnds, exact_ends: NDArray[np.float64], null: float = 0.0) -> StudyEnds:
    """Widen the ends of many studies to exact_ends[study, 2] from `restricted_likelihood.limits`."""
    low = np.where(ends.low <= null, exact_ends[:, 0], np.maximum(exact_ends[:, 0], null + GAP_TO_NULL))
    high = np.where(ends.high >= null, exact_ends[:, 1], np.minimum(exact_ends[:, 1], null - GAP_TO_NULL))
    return StudyEnds(np.minimum(ends.low, low), np.maximum(ends.high, high))
