"""Limits of shares that the methods here are compared with: Wilson's, and Newcombe's for pairs."""

from scipy import stats

from analysis.stats.interval import check_count

__all__ = ["newcombe_paired", "wilson"]


def wilson(count: int, of: int, level: float = 0.95) -> tuple[float, float]:
    """Two-sided score limits of a share (Wilson 1927); their coverage is near `level` on average, not at
    least.
    """
    check_count(count, of)
    limits = stats.binomtest(count, of).proportion_ci(level, method="wilson")
    return float(limits.low), float(limits.high)


def newcombe_paired(
    both: int, only_first: int, only_second: int, neither: int, level: float = 0.95
) -> tuple[float, float]:
    """Limits of the difference of two shares of the same problems, one answer each (Newcombe 1998,
    Statistics in Medicine 17:2635, method 10): Wilson limits of each share, joined by the correlation phi
    of the pairs, whose numerator is corrected for continuity where it is positive. phi is 0 where a margin
    is empty.
    """
    n = both + only_first + only_second + neither
    for count in (both, only_first, only_second, neither):
        check_count(count, n)
    first, second = both + only_first, both + only_second
    difference = (first - second) / n
    cross: float = both * neither - only_first * only_second
    if cross > 0:
        cross = max(cross - n / 2, 0.0)
    margins = first * (n - first) * second * (n - second)
    phi = cross / margins**0.5 if margins else 0.0
    (low1, high1), (low2, high2) = wilson(first, n, level), wilson(second, n, level)
    below1, above1 = first / n - low1, high1 - first / n
    below2, above2 = second / n - low2, high2 - second / n
    down = (below1**2 - 2 * phi * below1 * above2 + above2**2) ** 0.5
    up = (above1**2 - 2 * phi * above1 * below2 + below2**2) ** 0.5
    return max(-1.0, difference - down), min(1.0, difference + up)
