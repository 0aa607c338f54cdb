"""The level of a check: a copied number, arithmetic on printed numbers, or a statistical test.

The level is derived from the numbers that a form compares and the functions that it applies, so that a file
cannot state it. A printed cell is transcribed; a number computed from one, or an order of two, is arithmetic;
the result of a test or an interval is inference. Numbers that only the form names are literals, and so is
whatever is computed from them alone.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Any


class Level(IntEnum):
    """The name in lower case is printed in every table and in JSON; LITERAL is refused there."""

    LITERAL = 0
    TRANSCRIBED = 1
    ARITHMETIC = 2
    INFERENCE = 3


class Word(str):
    """A printed word, or a word that a registered rule returns."""

    level: Level

    def __new__(cls, text: str, level: Level) -> "Word":
        word = super().__new__(cls, text)
        word.level = level
        return word


def level_of(value: Any) -> Level:
    """Return the highest level of a value, or of anything in a list of values."""
    if isinstance(value, list | tuple) and not hasattr(value, "level"):
        return max(map(level_of, value), default=Level.LITERAL)
    level: Level = getattr(value, "level", Level.LITERAL)
    return level


def computed_from(values: Iterable[Any], least: Level = Level.ARITHMETIC) -> Level:
    """Return the level of what was computed from `values`: at least `least` if one of them is printed."""
    highest = level_of(list(values))
    return max(highest, least) if highest else Level.LITERAL
