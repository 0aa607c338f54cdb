"""Tests whether a printed p follows from the effect, the interval or the correlation printed next to it."""

from math import atanh, sqrt
from typing import NamedTuple

from scipy import stats

from analysis.claims.rounding import Range

FACTOR = 2  # allowed ratio of a resampled p to the normal one; more is a disagreement


class Agreement(NamedTuple):
    """low, high: the two-sided p that a normal estimate with this interval would have, over all values that
    round to the printed ones. decision: whether p and interval can agree on zero. size: whether the printed p
    lies within a factor FACTOR of [low, high].
    """

    low: float
    high: float
    decision: bool
    size: bool


def check_agreement(effect: Range, low: Range, high: Range, p: Range, level: float = 0.95) -> Agreement:
    """Check a printed p against a printed effect and its interval, with the benefit of rounding."""
    if low.low > high.high:
        raise ValueError("interval: its lower end lies above its upper end")
    z = float(stats.norm.ppf((1 + level) / 2))
    widths = [float(high.low - low.high) / (2 * z), float(high.high - low.low) / (2 * z)]
    crosses = effect.low <= 0 <= effect.high
    sizes = [abs(float(effect.low)), abs(float(effect.high))]
    smallest = float(2 * stats.norm.sf(max(sizes) / max(widths[0], 1e-12)))
    largest = 1.0 if crosses else float(2 * stats.norm.sf(min(sizes) / widths[1]))
    alpha = 1 - level
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
        raise ValueError(f"correlation: {correlation} of {observations} observations has no test; give 4 or more")
    return atanh(correlation), 1 / (observations - 3)
