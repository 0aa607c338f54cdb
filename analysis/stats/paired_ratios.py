"""Ratios of positive measurements that were taken side by side, such as seconds within a repetition.

Whatever slows a machine down multiplies times and affects neighbouring runs alike, so ratios are taken
within a repetition and averaged as logarithms. Intervals are Student's t and not a bootstrap: for five values
a percentile interval covers about 83 % instead of 95 (tests/analysis/stats/test_paired_ratios.py), while t is
exact for normal logarithms and close for others. They describe repetitions on one machine in one session.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

__all__ = ["FEWEST", "Level", "level_of", "ratio_of"]

FEWEST = 3  # no interval is computed for fewer repetitions


class Level(NamedTuple):
    """A geometric mean over repetitions and its two-sided limits, None for too few repetitions."""

    mean: float
    low: float | None
    high: float | None
    repetitions: int


def level_of(values: ArrayLike, level: float = 0.95) -> Level:
    """Return the geometric mean with its interval. values: [repetition], each above 0, else ValueError."""
    own = np.asarray(values, dtype=np.float64)
    if own.ndim != 1 or not len(own):
        raise ValueError(f"values: shape {own.shape}; pass one value a repetition, and at least one")
    if not (np.isfinite(own).all() and (own > 0).all()):
        raise ValueError("values: one is not above 0 and finite; a clock that saw nothing measured nothing")
    logs = np.log(own)
    mean, count = float(logs.mean()), len(own)
    if count < FEWEST:
        return Level(math.exp(mean), None, None, count)
    error = float(logs.std(ddof=1)) / math.sqrt(count) * float(stats.t.ppf((1 + level) / 2, count - 1))
    return Level(math.exp(mean), math.exp(mean - error), math.exp(mean + error), count)


def ratio_of(values: ArrayLike, others: ArrayLike, level: float = 0.95) -> Level:
    """Return the geometric mean of values / others, paired by repetition; both as in `geometric_mean`."""
    own, other = (np.asarray(each, dtype=np.float64) for each in (values, others))
    if own.shape != other.shape:
        raise ValueError(f"others: shape {other.shape}, values have {own.shape}; pair them by repetition")
    if not (other > 0).all():
        raise ValueError("others: one is not above 0; a clock that saw nothing measured nothing")
    return level_of(own / other, level)
