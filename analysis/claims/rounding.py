"""The range of a printed decimal: the closed range of exact values that round to it."""

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
