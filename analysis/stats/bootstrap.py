"""The paired bootstrap over problems, by random draws or exactly, with percentile intervals.

Efron & Tibshirani 1993, chapter 13. The seeds of a problem are averaged first, so that each draw takes a
problem with all its seeds.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.stats import exact_resampling
from analysis.stats.comparison import Comparison
from analysis.stats.interval import compare_constant, problem_means

BLOCK = 1 << 20  # indices in memory at a time


class StudyLimits(NamedTuple):
    """Interval ends and p of many studies, [study] each, as in `Comparison`."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    p: NDArray[np.float64]


def paired(
    difference: ArrayLike, *, reps: int = 10_000, level: float = 0.95, null: float = 0.0, rng: np.random.Generator
) -> Comparison:
    """Return the mean difference, its interval by resampling whole problems, and the two-sided p of `null`.

    difference: [problem, seed], subject minus comparator, in accuracy points.
    p: twice the smaller share of resampled means on either side of `null` (`null` counts on both), with the
        +1 correction, so that it is never 0.

    Problems without any spread are left to `interval.compare_constant`.

    The interval is sound from about 200 problems; `analysis.simulation.type_one_error` measures its error
    below that.
    Raises DegenerateDifference (a ValueError) for fewer than two problems or a difference that is not finite.
    """
    return paired_at_levels(difference, [level], reps=reps, null=null, rng=rng)[0]


def paired_at_levels(
    difference: ArrayLike, levels: Sequence[float], *, reps: int, null: float = 0.0, rng: np.random.Generator
) -> list[Comparison]:
    """Return `paired` at several levels, all computed from the same draws."""
    means = problem_means(difference)
    constant = [compare_constant(means, level, null) for level in levels]
    if all(constant):
        return [comparison for comparison in constant if comparison]
    resampled = resampled_means(means, reps, rng)
    distances = np.round(resampled - null, 12)
    tail = 1 + min(int((distances <= 0).sum()), int((distances >= 0).sum()))
    ends = np.quantile(resampled, [[(1 - level) / 2, (1 + level) / 2] for level in levels])
    mean, p = float(means.mean()), min(1.0, 2 * tail / (reps + 1))
    return [Comparison(mean, float(low), float(high), p) for low, high in ends]


def exact(difference: ArrayLike, *, level: float = 0.95, null: float = 0.0) -> Comparison:
    """Return the limit of `paired` for many draws, computed from every resample by its weight.

    difference: [problem, seed], -1, 0 or 1 for every seed. An interval end is the first resampled mean at
    which the cumulative weight reaches its share. p is not corrected, but at least the sign test's 2^(1-n).
    Raises DegenerateDifference, also for a difference that is not an integer.
    """
    means = problem_means(difference)
    if constant := compare_constant(means, level, null):
        return constant
    limits = exact_limits(exact_resampling.count_sums(difference)[None], level=level, null=null)
    return Comparison(float(means.mean()), *(float(values[0]) for values in limits))


def exact_limits(counts: NDArray[np.int64], *, level: float = 0.95, null: float = 0.0) -> StudyLimits:
    """Return `exact` for many studies at once.

    counts: [study, 2k + 1], the number of problems whose seeds sum to -k, ..., k; all studies have equally
    many problems. A study without spread has low = high and p = 1 here.
    """
    problems, k = int(counts[0].sum()), counts.shape[1] // 2
    # entry s is the weight of all sums up to s - k problems
    cumulative = np.cumsum(exact_resampling.resampled_sum_pmf(counts), axis=1)
    middle = k * problems
    null_sum = round(null * middle, 9)  # as a sum; an integer where such a sum can be observed
    floor_sum, ceil_sum = middle + int(np.floor(null_sum)), middle + int(np.ceil(null_sum))
    upper = 1 - cumulative[:, ceil_sum - 1] if ceil_sum else np.ones(len(cumulative))
    tails = np.stack([cumulative[:, floor_sum], upper], axis=1)
    ends = (1 - level) / 2, (1 + level) / 2
    positions = [(cumulative < share - 1e-12).sum(axis=1) for share in ends]
    low, high = (np.minimum(null_sum, 2 * middle) / middle - 1 for null_sum in positions)
    p = np.clip(2 * tails.min(axis=1), 2.0 ** (1 - problems), 1.0)
    return StudyLimits(low, high, p)


def resampled_means(means: NDArray[np.float64], reps: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return resampled means [reps]. Blocks continue one stream, so the draws equal scipy's
    `rng.integers(0, n, (reps, n))`.
    """
    problems = len(means)
    rows = max(1, BLOCK // problems)
    starts = range(0, reps, rows)
    blocks = (rng.integers(0, problems, (min(rows, reps - start), problems)) for start in starts)
    # All indices are in range, so that nothing is clipped; numpy then skips its bounds check.
    return np.concatenate([np.take(means, block, mode="clip").mean(axis=1) for block in blocks])
