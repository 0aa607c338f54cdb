"""Tests of printed numbers: of two shares, of a family of p, and of a p beside an interval or a correlation."""

from collections.abc import Sequence
from fractions import Fraction
from math import atanh, comb, sqrt
from typing import NamedTuple

from scipy import stats
from statsmodels.stats.multitest import multipletests

from analysis.claims.rounding import Range

CORRECTIONS = {"bonferroni": "bonferroni", "holm": "holm", "bh": "fdr_bh"}  # as a form says it -> statsmodels
LEVEL = 0.95  # of a printed interval
FACTOR = 2  # allowed ratio of a resampled p to the normal one; more is a disagreement


def paired_bounds(first: int, second: int, problems: int) -> Range:
    """Return the smallest and largest two-sided exact McNemar p of two arms that solved `first` and `second` of the
    same problems.

    A table prints the margins, not which problems each arm solved. The number of discordant problems is at
    least |first - second| and at most what the margins allow; the test is made for each possible number.
    Valid for one answer a problem. Raises ValueError for counts outside 0 to `problems`.
    """
    _check_count(first, problems)
    _check_count(second, problems)
    gap = abs(first - second)
    most = min(first + second, 2 * problems - first - second)
    possible = [_sign_test(discordant, gap) for discordant in range(gap, most + 1, 2)]
    return Range(min(possible), max(possible))


def boschloo(first: int, of_first: int, second: int, of_second: int) -> float:
    """Return the two-sided p of Boschloo's exact test (1970): Fisher's p as the statistic, over all values of
    the common share. It is used since Fisher's test is conservative, which would count against the authors.
    """
    _check_count(first, of_first)
    _check_count(second, of_second)
    if first / of_first == second / of_second:
        return 1.0
    table = [[first, second], [of_first - first, of_second - second]]
    return min(1.0, float(stats.boschloo_exact(table).pvalue))


def _sign_test(discordant: int, gap: int) -> Fraction:
    smaller = (discordant - gap) // 2
    return min(Fraction(1), Fraction(2 * sum(comb(discordant, k) for k in range(smaller + 1)), 2**discordant))


def _check_count(count: int, total: int) -> None:
    if not 0 <= count <= total or total < 1:
        raise ValueError(f"count: {count} correct of {total} answers is impossible")


def chance_of_best(candidates: int, right: int, problems: int, share: float) -> float:
    """Return the chance that the best of independent candidates solves at least `right` problems, if each solves a
    problem with probability `share`.

    `share` is printed for the other arm and taken as the truth. Candidates that share problems are
    correlated, and the chance is then smaller than this, though never smaller than that of one candidate.
    """
    if candidates < 1 or not 0 <= right <= problems or not 0 <= share <= 1:
        raise ValueError(
            f"lucky: {candidates} candidates with {right} of {problems} correct at a share of {share} are impossible"
        )
    return float(1 - stats.binom.cdf(right - 1, problems, share) ** candidates)


def count_passing(p: Sequence[float], method: str, alpha: float = 0.05) -> int:
    """Count how many of a family pass at `alpha`, by "bonferroni", "holm" or "bh" (Benjamini & Hochberg 1995)."""
    if method not in CORRECTIONS:
        raise ValueError(f"method: {method!r} is unknown; name bonferroni, holm or bh")
    return int(multipletests(p, alpha, CORRECTIONS[method])[0].sum())


class Agreement(NamedTuple):
    """low, high: the two-sided p that a normal estimate with this interval would have, over all values that
    round to the printed ones. decision: whether p and interval can agree on zero. size: whether the printed p
    lies within a factor FACTOR of [low, high].
    """

    low: float
    high: float
    decision: bool
    size: bool


def check_agreement(effect: Range, low: Range, high: Range, p: Range) -> Agreement:
    """Check a printed p against a printed effect and its 95 % interval, with the benefit of rounding."""
    if low.low > high.high:
        raise ValueError("interval: its lower end is above its upper end")
    z = float(stats.norm.ppf((1 + LEVEL) / 2))
    widths = [float(high.low - low.high) / (2 * z), float(high.high - low.low) / (2 * z)]
    crosses = effect.low <= 0 <= effect.high
    sizes = [abs(float(effect.low)), abs(float(effect.high))]
    smallest = float(2 * stats.norm.sf(max(sizes) / max(widths[0], 1e-12)))
    largest = 1.0 if crosses else float(2 * stats.norm.sf(min(sizes) / widths[1]))
    alpha = 1 - LEVEL
    excluded = low.high > 0 or high.low < 0
    included = low.low <= 0 <= high.high
    decision = (p.low < alpha and excluded) or (p.high >= alpha and included)
    size = float(p.high) * FACTOR >= smallest and float(p.low) <= FACTOR * largest
    return Agreement(smallest, largest, decision, size)


def correlation_p(correlation: float, observations: int) -> float:
    """Return the two-sided normal p of Fisher's z of a correlation, also of a rank correlation."""
    z, variance = _fisher_z(correlation, observations)
    return float(2 * stats.norm.sf(abs(z) / sqrt(variance)))


def correlations_differ_p(first: float, observations: int, second: float, others: int) -> float:
    """Return the two-sided normal p that two correlations of different observations are equal, by Fisher's z."""
    (z, variance), (other_z, other_variance) = _fisher_z(first, observations), _fisher_z(second, others)
    return float(2 * stats.norm.sf(abs(z - other_z) / sqrt(variance + other_variance)))


def _fisher_z(correlation: float, observations: int) -> tuple[float, float]:
    """Return Fisher's z of a correlation and its variance."""
    if observations < 4 or not -1 < correlation < 1:
        raise ValueError(
            f"correlation: {correlation} of {observations} observations cannot be tested; give at least 4 "
            "observations, and a correlation between -1 and 1"
        )
    return atanh(correlation), 1 / (observations - 3)
