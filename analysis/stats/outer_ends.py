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

__all__ = ["Ends", "moved_out", "outer"]

SHORT = 1e-6  # distance to the null: the last digit that a judgement prints


class Ends(NamedTuple):
    """Interval ends of many studies, [study] each."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]


def moved_out(found: Comparison, difference: ArrayLike, *, level: float, null: float = 0.0) -> Comparison:
    """Return the comparison of difference[problem, seed] with an interval at least as wide as the exact one
    at `level`.

    An end that excluded the null stops just short of it, so that the interval excludes the null exactly where
    it did before. The interval stays as it is if all problems agree (rule of three) or if differences are not
    integers, which the exact test cannot count.
    """
    values = np.asarray(difference, dtype=np.float64)
    if np.ptp(values.mean(axis=1)) == 0 or np.any(values != np.round(values)):
        return found
    counts = exact_resampling.counted(values)
    least = np.array([restricted_likelihood.ends(tuple(counts.tolist()), level)])
    low, high = outer(Ends(np.array([found.low]), np.array([found.high])), least, null)
    return found._replace(low=float(low[0]), high=float(high[0]))


def outer(ends: Ends, least: NDArray[np.float64], null: float = 0.0) -> Ends:
    """Widen the ends of many studies to exact_ends[study, 2] from `restricted_likelihood.limits`."""
    low = np.where(ends.low <= null, least[:, 0], np.maximum(least[:, 0], null + SHORT))
    high = np.where(ends.high >= null, least[:, 1], np.minimum(least[:, 1], null - SHORT))
    return Ends(np.minimum(ends.low, low), np.maximum(ends.high, high))
