"""Where two texts diverge, at the beginning of a word."""

import re
from typing import NamedTuple

_WORD = re.compile(r"\S+")
LONGEST = 40  # characters of a word that is marked as one; in a longer word only the character is


class Divergence(NamedTuple):
    """The first difference of two texts: the word at which they diverge, counted from 1, and the character,
    from 0, at which that word begins in both.
    """

    word: int
    character: int

    def __str__(self) -> str:
        return f"word {self.word} (character {self.character})"


def first_difference(text: str, reference: str) -> Divergence | None:
    """Return where two texts diverge, None if they are equal: at the beginning of the first word that
    differs, or where one of them ends or has another white space.
    """
    if text == reference:
        return None
    shortest = min(len(text), len(reference))
    position = next((index for index in range(shortest) if text[index] != reference[index]), shortest)
    start = position
    if not (_is_at_word_end(text, position) and _is_at_word_end(reference, position)):
        while start and not text[start - 1].isspace() and position - start < LONGEST:
            start -= 1
        if position - start == LONGEST:
            start = position
    return Divergence(len(_WORD.findall(text[:start])) + 1, start)


def _is_at_word_end(text: str, position: int) -> bool:
    """Return whether the position is at the end of a word."""
    return position == len(text) or text[position].isspace()


def marked_length(text: str, position: int) -> int:
    """Return how many characters to mark from a `Divergence` on: a word, or one white space instead of it."""
    if text[position : position + 1].isspace():
        return 1
    word = _WORD.match(text, position)
    return 0 if word is None else min(LONGEST, len(word[0]))
