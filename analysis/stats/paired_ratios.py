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

MIN_REPETITIONS = 3  # no interval is computed for fewer repetitions


class GeometricMean(NamedTuple):
    """A geometric mean over repetitions and its two-sided limits, None for too few repetitions."""

    mean: float
    low: float | None
    high: float | None
    repetitions: int


def geometric_mean(values: ArrayLike, level: float = 0.95) -> GeometricMean:
    """Return the geometric mean with its interval. values: [repetition], each above 0, else ValueError."""
    measurements = np.asarray(values, dtype=np.float64)
    if measurements.ndim != 1 or not len(measurements):
        raise ValueError(f"values: has shape {measurements.shape}; pass one value per repetition, and at least one")
    if not (np.isfinite(measurements).all() and (measurements > 0).all()):
        raise ValueError("values: a value is not positive and finite; measure it again with a finer clock")
    logs = np.log(measurements)
    mean, count = float(logs.mean()), len(measurements)
    if count < MIN_REPETITIONS:
        return GeometricMean(math.exp(mean), None, None, count)
    error = float(logs.std(ddof=1)) / math.sqrt(count) * float(stats.t.ppf((1 + level) / 2, count - 1))
    return GeometricMean(math.exp(mean), math.exp(mean - error), math.exp(mean + error), count)


def paired_ratio(values: ArrayLike, others: ArrayLike, level: float = 0.95) -> GeometricMean:
    """Return the geometric mean of values / others, paired by repetition; both as in `geometric_mean`."""
    numerators, denominators = (np.asarray(side, dtype=np.float64) for side in (values, others))
    if numerators.shape != denominators.shape:
        raise ValueError(
            f"others: has shape {denominators.shape}, but values has {numerators.shape}; pair them by repetition"
        )
    if not (denominators > 0).all():
        raise ValueError("others: a value is not positive; measure it again with a finer clock")
    return geometric_mean(numerators / denominators, level)
