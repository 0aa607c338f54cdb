"""Marked stretches of a text, as tokens: found in the text, since a mark has many spellings in tokens."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from policies import Mark

__all__ = ["Pieces", "lines", "pieces"]

SPLIT = "\ufffd"  # in place of a character of which some bytes are missing
LONGEST = 4  # bytes of a character, so tokens that may share one


class Piece(NamedTuple):
    """Tokens start..stop-1, and what they add to the text: one token, or a few that share a character."""

    start: int
    stop: int
    text: str


class Pieces:
    """A text token by token. What a token adds is decoded once for each pair of neighbours, and kept."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        @lru_cache(maxsize=65_536)
        def added(before: tuple[int, ...], own: tuple[int, ...]) -> str:
            """What `own` adds behind `before`: where a text begins, a tokenizer may write it otherwise."""
            return decode((*before, *own))[len(decode(before)) :]

        self.added = added

    def of(self, token_ids: Sequence[int]) -> list[Piece]:
        """In order, all tokens. A character of more bytes than tokens came is left to the next token, unless
        it can no longer become one.
        """
        found: list[Piece] = []
        before: tuple[int, ...] = ()
        start = 0
        for stop in range(1, len(token_ids) + 1):
            own = tuple(token_ids[start:stop])
            text = self.added(before, own)
            if text.endswith(SPLIT) and len(own) < LONGEST and stop < len(token_ids):
                continue
            found.append(Piece(start, stop, text))
            before, start = own, stop
        return found


def pieces(tokenizer: PreTrainedTokenizerBase) -> Pieces:
    return Pieces(lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False)) if ids else "")


def lines(text: Sequence[Piece], mark: Mark) -> tuple[range, ...]:
    """The tokens of every stretch from the mark to its end, oldest first and disjoint: from the token that
    holds the first character of `mark.text` to the one that holds the last of `mark.end`; the last stretch
    may be unfinished.
    """
    ends = list(accumulate(len(piece.text) for piece in text))
    whole = "".join(piece.text for piece in text)
    found: list[range] = []
    for match in _pattern(mark).finditer(whole):
        # The first piece that ends behind a character holds it; one that adds no text holds none.
        first = text[bisect_right(ends, match.start("line"))].start
        last = text[bisect_right(ends, match.end() - 1)].stop
        found.append(range(max(first, found[-1].stop if found else 0), last))
    return tuple(line for line in found if line)


@lru_cache(maxsize=64)
def _pattern(mark: Mark) -> re.Pattern[str]:
    """Spaces before a mark that begins a line are none of it. A text may break off before its end."""
    begins = "" if mark.within else r"(?:\A|(?<=\n))[ \t]*"
    return re.compile(rf"{begins}(?P<line>{re.escape(mark.text)}(?s:.*?)(?:{re.escape(mark.end)}|\Z))")
