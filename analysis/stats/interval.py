"""Limits of proportions, checks of differences, and the comparison where all problems agree."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special
from statsmodels.stats.proportion import confint_proportions_2indep

from analysis.stats.comparison import Comparison


class DegenerateDifference(ValueError):
    """Differences from which no mean can be estimated: too few problems, or a value that is not finite."""


def clopper_pearson(count: int, total: int, level: float = 0.95) -> tuple[float, float]:
    """Return two-sided limits of a proportion (Clopper & Pearson 1934): at each limit a count at least as
    extreme as this one has probability (1 - level) / 2.
    """
    check_count(count, total)
    tail = (1 - level) / 2
    low = special.betaincinv(count, total - count + 1, tail) if count else 0.0
    high = special.betainccinv(count + 1, total - count, tail) if count < total else 1.0
    return float(low), float(high)


def newcombe(count: int, total: int, count_other: int, total_other: int, level: float = 0.95) -> tuple[float, float]:
    """Return limits of the difference of two independent proportions (Newcombe 1998, Statistics in Medicine
    17:873, method 10).
    """
    check_count(count, total)
    check_count(count_other, total_other)
    low, high = confint_proportions_2indep(
        count, total, count_other, total_other, method="newcomb", compare="diff", alpha=1 - level
    )
    return float(low), float(high)


def check_count(count: int, total: int) -> None:
    """Raise DegenerateDifference unless `count` is an integer from 0 to `total`."""
    if total < 1:
        raise DegenerateDifference(f"of: {total} problems have no share; pass at least one")
    if not 0 <= count <= total or count != int(count):
        raise DegenerateDifference(f"count: {count} of {total} problems is impossible; pass a number from 0 to {total}")


def problem_means(difference: ArrayLike) -> NDArray[np.float64]:
    """Return the mean over seeds of each problem; the seeds of one problem are not independent.

    difference: [problem, seed]. Means are rounded to twelve decimals, so that seeds that cancel give exactly
    zero.
    Raises DegenerateDifference for another shape, fewer than two problems, or a value that is not finite.
    """
    values = np.asarray(difference, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] == 0:
        raise DegenerateDifference(f"difference: shape {values.shape} is not [problem, seed]; pass two axes")
    if len(values) < 2:
        raise DegenerateDifference(f"difference: {len(values)} problem(s) have no spread; pass at least two")
    if not np.isfinite(values).all():
        problem, seed = np.argwhere(~np.isfinite(values))[0]
        raise DegenerateDifference(
            f"difference[{problem}, {seed}]: {values[problem, seed]} is not finite; apply a rule for "
            "missing values first"
        )
    if np.abs(values).max() > 1:
        raise DegenerateDifference("difference: a value is outside [-1, 1]; pass points, not percent")
    means: NDArray[np.float64] = np.round(values.mean(axis=1), 12)
    return means


def compare_constant(means: NDArray[np.float64], level: float, null: float = 0.0) -> Comparison | None:
    """Return the comparison if all problems have the same mean difference c, else None.

    Agreement of all problems is not evidence of equality: n problems that agree are compatible with a share
    u = 1 - a^(1/n) of other problems (a = 1 - level for c = 0, the exact form of the rule of three, 3/n at
    95 %; a = (1 - level)/2 otherwise, since the sign is then unknown too). These may differ by anything in
    [-1, 1], so the interval is [(1-u)c - u, (1-u)c + u]. p is the probability (1-u)^n of no other problem
    if a share u of them, all at the end of [-1, 1] on the side of `null`, makes the mean equal to `null`;
    twice that unless c = 0. It is 1 for c = null, and the exact sign test's 2^(1-n) for c = -1 or 1 and
    null = 0.
    """
    value = float(means[0])
    if np.any(means != value):
        return None
    differing_share = 1 - ((1 - level) / (1 if value == 0 else 2)) ** (1 / len(means))
    centre = (1 - differing_share) * value
    p = min(1.0, (1 if value == 0 else 2) * (1 - _share_of_others(value, null)) ** len(means))
    return Comparison(value, max(centre - differing_share, -1.0), min(centre + differing_share, 1.0), p)


def _share_of_others(value: float, mean: float) -> float:
    """Return the share of problems at -1 or 1, the others being at `value`, at which the mean is `mean`."""
    return 0.0 if value == mean else abs(mean - value) / (1 + (-value if mean > value else value))
