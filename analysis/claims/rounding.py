"""The closed range of exact values that round to a printed decimal, and whether a mean in it can come from n answers.

The second test is GRIM (Brown & Heathers 2017), for k draws a problem.
"""

import math
import re
from fractions import Fraction
from typing import NamedTuple

NUMBER = re.compile(r"[+-]?[0-9]+(\.([0-9]+))?")
BELOW = re.compile(r"<([0-9]+(\.[0-9]+)?)")


class Range(NamedTuple):
    """A closed range."""

    low: Fraction
    high: Fraction


def rounding_range(text: str) -> Range:
    """Return all values within half a unit of the last printed digit.

    Both ends are included, so that rounding half up and half to even are both allowed. "<0.01" is [0, 0.01].
    Raises ValueError for anything else, also for nan, inf and exponents.
    """
    below = BELOW.fullmatch(text)
    if below:
        return Range(Fraction(0), Fraction(below[1]))
    number = NUMBER.fullmatch(text)
    if not number:
        raise ValueError(f"{text!r} is not a printed decimal; write it as in the paper, such as 0.750 or +4.79")
    half = Fraction(1, 2 * 10 ** len(number[2] or ""))
    return Range(Fraction(text) - half, Fraction(text) + half)


def counts(mean: Range, answers: int) -> range:
    """Return the counts of correct `answers` whose mean lies in `mean`; negative ones for a difference."""
    if answers < 1:
        raise ValueError(f"answers: {answers} answers have no mean; give at least one")
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
