"""Tests whether a printed mean can come from n answers (GRIM: Brown & Heathers 2017, for k draws a problem)."""

import math
from fractions import Fraction

from analysis.claims.rounding import Range


def counts(mean: Range, answers: int) -> range:
    """Return the counts of correct `answers` whose mean lies in `mean`; negative ones for a difference."""
    if answers < 1:
        raise ValueError(f"answers: {answers} have no mean; give at least one")
    return range(math.ceil(mean.low * answers), math.floor(mean.high * answers) + 1)


def chance(unit: Fraction, answers: int) -> Fraction:
    """Return the share of the multiples of `unit` in [0, 1] that some count rounds to."""
    if unit == 0:
        return Fraction(1)
    steps = math.floor(1 / unit)
    half = unit / 2
    rounded = (Range(i * unit - half, i * unit + half) for i in range(steps + 1))
    possible = sum(bool(counts(interval, answers)) for interval in rounded)
    return Fraction(possible, steps + 1)
