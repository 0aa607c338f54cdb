"""Ratios of positive measurements that were taken side by side, such as seconds within a repetition.

What slows a machine down multiplies times and hits neighbours alike, so ratios are taken within a
repetition and averaged as logarithms. Student's t and no bootstrap: of five values a percentile interval
covers some 83 % and not 95 (tests/analysis/stats/test_paired_ratios.py counts it), while t is right for
normal logarithms and near it for others. It speaks of repetitions on one machine in one session alone.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

__all__ = ["FEWEST", "Level", "level_of", "ratio_of"]

FEWEST = 3  # repetitions below which no interval is given: of two, nothing shows whether either strayed


class Level(NamedTuple):
    """A geometric mean, over so many repetitions, and its two-sided limits; None of too few."""

    mean: float
    low: float | None
    high: float | None
    repetitions: int


def level_of(values: ArrayLike, level: float = 0.95) -> Level:
    """values: [repetition], each above 0. Raises ValueError for none, and for any that is not."""
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
    """The ratio values / others, paired by repetition: [repetition] of both, as `level_of` takes them."""
    own, other = (np.asarray(each, dtype=np.float64) for each in (values, others))
    if own.shape != other.shape:
        raise ValueError(f"others: shape {other.shape}, values have {own.shape}; pair them by repetition")
    if not (other > 0).all():
        raise ValueError("others: one is not above 0; a clock that saw nothing measured nothing")
    return level_of(own / other, level)
