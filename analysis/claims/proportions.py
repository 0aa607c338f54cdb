"""Exact tests for two shares of right answers of which only the margins are printed."""

from fractions import Fraction
from math import comb
from typing import NamedTuple

from scipy import stats


class Bounds(NamedTuple):
    """The smallest and largest p over all pairings."""

    low: Fraction
    high: Fraction


def paired_bounds(first: int, second: int, problems: int) -> Bounds:
    """Bound the two-sided exact McNemar p of two arms that solved `first` and `second` of the same problems.

    A table prints the margins, not which problems each arm solved. The number of discordant problems is at
    least |first - second| and at most what the margins allow; the test is made for each possible number.
    Valid for one answer a problem. Raises ValueError for counts outside 0 to `problems`.
    """
    _check_count(first, problems)
    _check_count(second, problems)
    gap = abs(first - second)
    most = min(first + second, 2 * problems - first - second)
    possible = [_sign_test(discordant, gap) for discordant in range(gap, most + 1, 2)]
    return Bounds(min(possible), max(possible))


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
        raise ValueError(f"count: {count} of {total} answers is impossible")
