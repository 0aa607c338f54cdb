"""Paired percentile bootstrap over problems (Efron & Tibshirani 1993, chapter 13, on problem means)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.interval import Interval, problem_means, without_spread

__all__ = ["Interval", "paired"]

BLOCK = 1 << 20  # indices held at a time


def paired(
    difference: ArrayLike, *, reps: int = 10_000, level: float = 0.95, rng: np.random.Generator
) -> Interval:
    """Percentile interval of the mean difference, resampling whole problems, and its two-sided p.

    difference: [problem, seed], subject minus comparator, in accuracy points. The seeds of a problem are
        averaged first, so a problem is drawn with all of them.
    p: twice the smaller share of resampled means on either side of zero (zero counts on both), with the +1
        correction: it is never 0.

    Without any spread between problems `interval.without_spread` answers instead.

    Sound from about 200 problems; below that `power.type_one` tells how far off it is.
    Raises DegenerateDifference (a ValueError) for fewer than two problems or a difference that is not finite.
    """
    means = problem_means(difference)
    flat = without_spread(means, level)
    if flat:
        return flat
    resampled = _resampled_means(means, reps, rng)
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    near_zero = np.round(resampled, 12)
    tail = min(int((near_zero <= 0).sum()), int((near_zero >= 0).sum()))
    return Interval(float(means.mean()), float(low), float(high), min(1.0, 2 * (tail + 1) / (reps + 1)))


def _resampled_means(means: NDArray[np.float64], reps: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """[reps]. Blocks continue one stream: the draws equal `rng.integers(0, n, (reps, n))`, as in scipy."""
    problems = len(means)
    rows = max(1, BLOCK // problems)
    starts = range(0, reps, rows)
    blocks = (rng.integers(0, problems, (min(rows, reps - start), problems)) for start in starts)
    return np.concatenate([means[block].mean(axis=1) for block in blocks])
