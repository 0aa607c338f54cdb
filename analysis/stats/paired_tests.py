"""Tests of a paired difference that are valid with few problems, and the comparison by any method."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from analysis.stats import bootstrap, restricted_likelihood
from analysis.stats.comparison import Comparison
from analysis.stats.exact_ends import widen_to_exact
from analysis.stats.interval import compare_constant, problem_means
from analysis.stats.methods import EXACT_BELOW

BLOCK = 1 << 20  # signs in memory at a time


def student_t(difference: ArrayLike, *, level: float = 0.95, null: float = 0.0) -> Comparison:
    """Compare by Student's t on the problem means of difference[problem, seed]; p is that of a mean of
    `null`, and the interval is clipped to [-1, 1].

    Problems without spread are left to `interval.compare_constant`. Raises DegenerateDifference.
    """
    means = problem_means(difference)
    constant = compare_constant(means, level, null)
    if constant:
        return constant
    mean, error = means.mean(), means.std(ddof=1) / np.sqrt(len(means))
    freedom = len(means) - 1
    reach = stats.t.ppf((1 + level) / 2, freedom) * error
    p = 2 * stats.t.sf(abs(mean - null) / error, freedom)
    return Comparison(float(mean), max(-1.0, float(mean - reach)), min(1.0, float(mean + reach)), float(p))


def auto(difference: ArrayLike, *, level: float = 0.95, null: float = 0.0) -> Comparison:
    """Compare by the restricted-likelihood test if fewer than `EXACT_BELOW` problems of difference[problem,
    seed] differ, else by Student's t. How many differ does not depend on which arm is ahead.
    """
    few = np.count_nonzero(problem_means(difference)) < EXACT_BELOW
    return (restricted_likelihood.compare if few else student_t)(difference, level=level, null=null)


def sign_flip(
    difference: ArrayLike, *, level: float = 0.95, draws: int = 10_000, rng: np.random.Generator, null: float = 0.0
) -> Comparison:
    """Compare by permuting the signs of the problem means minus `null`; exact if all 2^n sign vectors are
    at most `draws`.

    Flipping the problems of a subset A gives a mean at least as large as the observed one exactly if the sum
    over A is at most zero. So p needs only the subset sums: twice the smaller tail, as in
    scipy.stats.permutation_test, with the +1 correction for random signs. With one seed it is the exact
    McNemar test. It assumes only that differences are symmetric around `null` under the null.

    The interval inverts this test: its ends are order statistics of the subset means (Hartigan 1969, typical
    values), -1 or 1 if the draws cannot bound them. This assumes symmetry around any shift; a few discordant
    problems among many equal ones violate it, and the interval is then too short. So each end is widened to
    Student's t where that reaches further, but stops short of `null` if the test rejects it. The interval
    excludes `null` exactly when p <= 1 - level.

    difference: [problem, seed]. Problems without spread are left to `interval.compare_constant`.
    Raises DegenerateDifference.
    """
    return sign_flip_at_levels(difference, [level], draws=draws, rng=rng, null=null)[0]


def sign_flip_at_levels(
    difference: ArrayLike,
    levels: Sequence[float],
    *,
    draws: int,
    rng: np.random.Generator,
    null: float = 0.0,
    sizes: NDArray[np.float64] | None = None,
) -> list[Comparison]:
    """Return `sign_flip` at several levels, all computed from the same draws.

    sizes: [cluster], the problems of each, where `difference` holds means of clusters, [cluster, 1]. The signs of the
    clusters' sums are flipped then: a cluster whose problems agree with the null counts nothing, and the test is exact
    wherever each sum is as likely as its negative, whatever the sizes. The interval is of weighted subset means, and
    Student's t has the CR2 error.
    """
    means = problem_means(difference)
    weights = np.ones(len(means)) if sizes is None else sizes
    units = means
    if sizes is not None:
        from analysis.stats import cluster_robust  # a study with clusters loads it

        units = cluster_robust.effective_means(means, sizes)
    constant = [compare_constant(units, level, null) for level in levels]
    if np.ptp(means) == 0 and all(constant):
        return [comparison for comparison in constant if comparison]
    sums, totals = _subset_sums(means - null, weights, draws, rng)
    is_nonempty = totals > 0
    centres = np.sort(sums[is_nonempty] / totals[is_nonempty])  # minus `null`
    is_exact = 2 ** len(means) <= draws
    # Empty subsets and the observed signs always count as extreme.
    extreme = len(sums) - len(centres) + (0 if is_exact else 1)
    total = len(centres) + extreme
    tail = extreme + min(int((centres <= 0).sum()), int((centres >= 0).sum()))
    comparisons, mean = [], float(np.average(means, weights=weights))
    for level in levels:
        # An end is the first centre that the one-sided test at (1 - level) / 2 does not reject.
        skipped = int(np.floor(total * (1 - level) / 2 + 1e-9)) - extreme
        is_bounded = skipped >= 0
        low, high = (null + centres[skipped], null + centres[-1 - skipped]) if is_bounded else (-1.0, 1.0)
        t_interval = student_t(difference, level=level)
        if sizes is not None:
            t_interval = cluster_robust.compare(means, sizes, level=level)
        if low <= null or t_interval.low > null:
            low = min(low, t_interval.low)
        if high >= null or t_interval.high < null:
            high = max(high, t_interval.high)
        comparisons.append(Comparison(mean, float(low), float(high), min(1.0, 2 * tail / total)))
    return comparisons


def _subset_sums(
    means: NDArray[np.float64], weights: NDArray[np.float64], draws: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the weighted sum and the weight of every subset of problems, or of `draws` random ones; [subset] each."""
    problems = len(means)
    total = min(2**problems, draws)
    rows = max(1, BLOCK // problems)
    sums, totals = np.empty(total), np.empty(total)
    for start in range(0, total, rows):
        block = slice(start, min(start + rows, total))
        if total == 2**problems:
            chosen = np.arange(block.start, block.stop)[:, None] >> np.arange(problems) & 1
        else:
            chosen = rng.integers(0, 2, (block.stop - block.start, problems), dtype=np.int8)
        flipped = chosen.astype(np.float64)  # numpy multiplies mixed types ten times as slowly
        sums[block], totals[block] = flipped @ (weights * means), flipped @ weights
    return sums.round(9), totals  # sums of thirds that cancel give exactly zero


def compare(
    method: str, difference: ArrayLike, *, level: float, draws: int, rng: np.random.Generator, null: float = 0.0
) -> Comparison:
    """Compare difference[problem, seed] by one of `methods.METHODS`; those that draw use `draws` and `rng`.

    null: the null mean difference of p, in points; the interval does not depend on it.
    """
    return compare_at_levels(method, difference, [level], draws=draws, rng=lambda: rng, null=null)[0]


def compare_at_levels(
    method: str,
    difference: ArrayLike,
    levels: Sequence[float],
    *,
    draws: int,
    rng: Callable[[], np.random.Generator],
    null: float = 0.0,
) -> list[Comparison]:
    """Return `compare` at several levels; the result at each level is that of a new generator from `rng`, but draws are
    shared. Ends are those of `widen_to_exact`, but of methods whose level holds by itself.
    """
    match method:
        case "bootstrap" | "as-published":
            comparisons = bootstrap.paired_at_levels(difference, levels, reps=draws, null=null, rng=rng())
        case "exact-bootstrap":
            comparisons = [_exact_bootstrap(difference, level, null) for level in levels]
        case "sign-flip":
            comparisons = sign_flip_at_levels(difference, levels, draws=draws, rng=rng(), null=null)
        case "auto":
            comparisons = [auto(difference, level=level, null=null) for level in levels]
        case "t" | "cr2" | "max-t":  # of one contrast, and of problems that share no cluster
            comparisons = [student_t(difference, level=level, null=null) for level in levels]
        case "restricted-likelihood":
            return [restricted_likelihood.compare(difference, level=level, null=null) for level in levels]
        case "betting":
            from analysis.stats import betting  # a study that registers it loads it

            return [betting.compare(difference, level=level, null=null) for level in levels]
        case _:
            raise KeyError(method)
    return [
        widen_to_exact(comparison, difference, level=level, null=null)
        for comparison, level in zip(comparisons, levels, strict=True)
    ]


def _exact_bootstrap(difference: ArrayLike, level: float, null: float) -> Comparison:
    comparison = bootstrap.exact(difference, level=level, null=null)
    if comparison.p > 1 - level:  # with few problems the sign test's bound on p prevents any rejection
        return comparison._replace(low=min(comparison.low, null), high=max(comparison.high, null))
    return comparison
