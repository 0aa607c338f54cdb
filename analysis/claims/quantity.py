"""Arithmetic and comparison of numbers that are known only as printed; rounding may leave an answer undecided."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from analysis.claims.levels import Level, computed_from, level_of
from analysis.claims.rounding import Range


class ImpossibleCell(ValueError):
    """A printed number that no count of answers gives, where a test needs the count."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number and two ranges for it.

    `counted` is the narrower range: if n and the draws are known, a share of answers is a count, often a single one.
    Order is decided on `counted`; equality on `printed`, since authors also compute with rounded numbers.

    name: as printed, or a description; empty for a computed result, which is printed as its range. answers: (right, of)
    if exactly one count gives the printed number. paired: the problems were answered once each, so that McNemar's test
    applies. impossible: the sentence that no count gives the printed number, if none does. scale: 100 for percent and
    pp, else 1. level: of the numbers that it was computed from.
    """

    printed: Range
    counted: Range
    name: str = ""
    answers: tuple[int, int] | None = None
    paired: bool = False
    scale: int = 1
    level: Level = Level.LITERAL
    impossible: str = ""

    @property
    def text(self) -> str:
        return self.name or _format_range(self.counted)

    @property
    def middle(self) -> Fraction:
        return (self.counted.low + self.counted.high) / 2


class Answer(NamedTuple):
    """truth: True, False, or None if it cannot be decided. reasons: the comparisons that decide it. level: of
    those comparisons.
    """

    truth: bool | None
    reasons: tuple[str, ...]
    level: Level = Level.LITERAL


def computed(value: float | Fraction, upper: float | Fraction | None = None, name: str = "") -> Quantity:
    """Return a computed number, exact or anywhere up to `upper`."""
    ends = Range(Fraction(value), Fraction(value if upper is None else upper))
    return Quantity(ends, ends, name)


def combine(symbol: str, left: Quantity, right: Quantity) -> Quantity:
    """Combine two quantities by interval arithmetic. Raises ZeroDivisionError if the divisor may be zero."""
    printed = _combine_ranges(symbol, left.printed, right.printed)
    counted = _combine_ranges(symbol, left.counted, right.counted)
    return Quantity(printed, counted, level=computed_from((left, right)))


def absolute(value: Quantity) -> Quantity:
    printed, counted = (
        Range(max(Fraction(0), ends.low, -ends.high), max(abs(ends.low), abs(ends.high)))
        for ends in (value.printed, value.counted)
    )
    return Quantity(printed, counted)


def compare(symbol: str, left: Quantity, right: Quantity) -> Answer:
    """Compare two quantities. symbol: ==, !=, <, <=, > or >=.

    Equal means equal within rounding; an order is arithmetic.
    """
    a, b = left.counted, right.counted
    if symbol in ("==", "!="):
        truth: bool | None = _overlap(left.printed, right.printed) == (symbol == "==")
        left_text, right_text = (value.name or _format_range(value.printed) for value in (left, right))
        level = level_of((left, right)) if left.name and right.name else computed_from((left, right))
        return Answer(truth, (f"{left_text} {symbol} {right_text}",), level)
    if symbol in ("<", "<="):
        return compare({"<": ">", "<=": ">="}[symbol], right, left)._replace(
            reasons=(f"{left.text} {symbol} {right.text}",)
        )
    if symbol == ">":
        truth = True if a.low > b.high else False if a.high <= b.low else None
    else:
        truth = True if a.low >= b.high else False if a.high < b.low else None
    return Answer(truth, (f"{left.text} {symbol} {right.text}",), computed_from((left, right)))


def every(answers: Iterable[Answer]) -> Answer:
    """Return whether all answers are true (Kleene's logic); reasons: those false, else those open, else all."""
    return _join_answers(tuple(answers), decisive=False)


def some(answers: Iterable[Answer]) -> Answer:
    return _join_answers(tuple(answers), decisive=True)


def negate(answer: Answer) -> Answer:
    truth = None if answer.truth is None else not answer.truth
    return Answer(truth, tuple(f"not ({reason})" for reason in answer.reasons), answer.level)


def _join_answers(answers: Sequence[Answer], *, decisive: bool) -> Answer:
    """Join answers. One decisive answer is enough, so the lowest level among the decisive ones counts.
    Otherwise all are needed, and one that compares only literals makes the result a literal.
    """
    level = level_of(answers)
    if any(answer.level is Level.LITERAL and answer.truth is not None for answer in answers):
        level = Level.LITERAL
    for truth in (decisive, None):
        matching = [answer for answer in answers if answer.truth is truth]
        if matching:
            lowest = min(answer.level for answer in matching)
            return Answer(truth, _distinct_reasons(matching), lowest if truth is decisive else level)
    return Answer(not decisive, _distinct_reasons(answers), level)


def _distinct_reasons(answers: Iterable[Answer]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(reason for answer in answers for reason in answer.reasons))


def _overlap(a: Range, b: Range) -> bool:
    """Return whether two ranges overlap. Neighbours such as 0.255 and 0.256 touch and do not count as equal."""
    if a.low == a.high or b.low == b.high:
        return a.low <= b.high and b.low <= a.high
    return a.low < b.high and b.low < a.high


def _combine_ranges(symbol: str, a: Range, b: Range) -> Range:
    operation: Callable[[Fraction, Fraction], Fraction] = {
        "+": Fraction.__add__,
        "-": Fraction.__sub__,
        "*": Fraction.__mul__,
        "/": Fraction.__truediv__,
    }[symbol]
    if symbol == "/" and b.low <= 0 <= b.high:
        raise ZeroDivisionError("the divisor may be zero")
    ends = [operation(x, y) for x in a for y in b]
    return Range(min(ends), max(ends))


def _format_range(ends: Range) -> str:
    low, high = _format_number(ends.low), _format_number(ends.high)
    return low if low == high else f"{low} to {high}"


def _format_number(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.4g}"
