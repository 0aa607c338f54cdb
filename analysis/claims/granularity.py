"""Tests whether a printed mean can come from n answers (GRIM: Brown & Heathers 2017, for k draws a problem)."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from analysis.claims.rounding import Range


class Fit(NamedTuple):
    """impossible: indices of the values that no count gives. draws: the numbers of draws a problem, up to the
    limit, at which every value is possible. passing: the share of all values with this many decimals that
    would pass by chance; near 1 the check says nothing.
    """

    impossible: tuple[int, ...]
    draws: tuple[int, ...]
    passing: Fraction


def counts(mean: Range, answers: int) -> range:
    """Return the counts of correct `answers` whose mean lies in `mean`; negative ones for a difference."""
    if answers < 1:
        raise ValueError(f"answers: {answers} have no mean; give at least one")
    return range(math.ceil(mean.low * answers), math.floor(mean.high * answers) + 1)


def fit(means: Sequence[Range], problems: int, draws: int = 1, *, limit: int = 64) -> Fit:
    """Check means of problems * draws right-or-wrong answers, or of their differences."""
    if not means:
        raise ValueError("means: none given; pass at least one")
    impossible = tuple(i for i, mean in enumerate(means) if not counts(mean, problems * draws))
    fitting = (k for k in range(1, limit + 1) if all(counts(mean, problems * k) for mean in means))
    return Fit(impossible, tuple(fitting), chance(max(m.high - m.low for m in means), problems * draws))


def chance(unit: Fraction, answers: int) -> Fraction:
    """Return the share of the multiples of `unit` in [0, 1] that some count rounds to."""
    if unit == 0:
        return Fraction(1)
    steps = math.floor(1 / unit)
    half = unit / 2
    rounded = (Range(i * unit - half, i * unit + half) for i in range(steps + 1))
    possible = sum(bool(counts(interval, answers)) for interval in rounded)
    return Fraction(possible, steps + 1)
