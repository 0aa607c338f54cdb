"""How far the check of a claim reaches: a copied number, arithmetic on printed numbers, or a test beyond.

The level is derived from the numbers that a form compares and the functions that they went through, so that a
file cannot state it. A printed cell is transcribed; a number computed from one, or an order of two, is
arithmetic; what went through a test or an interval is inference. Numbers that only the form names are none of
them, whatever is computed from them.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Any

__all__ = ["Level", "Word", "computed_from", "level_of"]


class Level(IntEnum):
    """The name in lower case is the word of every table and JSON; LITERAL is refused there."""

    LITERAL = 0
    TRANSCRIBED = 1
    ARITHMETIC = 2
    INFERENCE = 3


class Word(str):
    """A printed word, or a word that a registered rule gives."""

    level: Level

    def __new__(cls, text: str, level: Level) -> "Word":
        word = super().__new__(cls, text)
        word.level = level
        return word


def level_of(value: Any) -> Level:
    """The highest level of a value, or of anything in a list of values."""
    if isinstance(value, list | tuple) and not hasattr(value, "level"):
        return max(map(level_of, value), default=Level.LITERAL)
    found: Level = getattr(value, "level", Level.LITERAL)
    return found


def computed_from(values: Iterable[Any], least: Level = Level.ARITHMETIC) -> Level:
    """The level of what was computed from `values`: at least `least` if one of them is printed."""
    highest = level_of(list(values))
    return max(highest, least) if highest else Level.LITERAL
