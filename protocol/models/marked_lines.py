"""Marked stretches of a text, as tokens: found in the text, since a mark has many spellings in tokens."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from policies import Mark

__all__ = ["Reader", "Spelled", "lines", "reader"]

SPLIT = "\ufffd"  # in place of a character of which some bytes are missing
LONGEST = 4  # bytes of a character, so tokens that may share one


class Spelled(NamedTuple):
    """A text and its tokens. begun, done: by token, the characters of which it, or one before, has a byte,
    and those of which no byte is missing after it.
    """

    text: str
    begun: list[int]
    done: list[int]


class Reader:
    """Texts token by token. What a token adds behind its neighbours is decoded once, and kept."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self.decode = lru_cache(maxsize=65_536)(decode)

    def read(self, token_ids: Sequence[int]) -> Spelled:
        """A character whose bytes do not come within as many tokens as it may have is none.

        Each token is decoded behind the one before it, since where a text begins a tokenizer may write it
        otherwise; and behind those that hold the beginning of a character that it may complete.
        """
        parts: list[str] = []
        begun: list[int] = []
        done: list[int] = []
        before: tuple[int, ...] = ()
        read = length = waiting = 0  # characters of `before` that are in the text; tokens of one to come
        for token in token_ids:
            together = (*before, token)
            text = self.decode(together)[read:]
            whole = text.rstrip(SPLIT)
            waiting = waiting + 1 if whole != text and not whole else int(whole != text)
            if waiting >= LONGEST or len(begun) + 1 == len(token_ids):
                whole, waiting = text, 0
            if whole or not text:
                parts.append(whole)
                length += len(whole)
                before = (token,)
                read = len(self.decode(before)) - (len(text) - len(whole))
            else:
                before = together
            begun.append(length + bool(waiting))
            done.append(length)
        return Spelled("".join(parts), begun, done)


def reader(tokenizer: PreTrainedTokenizerBase) -> Reader:
    return Reader(lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False)))


def lines(spelled: Spelled, mark: Mark) -> tuple[range, ...]:
    """The tokens of every stretch from the mark to its end, oldest first and disjoint: from the token that
    holds the first byte of `mark.text` to the one that holds the last of `mark.end`; the last stretch may be
    unfinished. A token that ends one stretch and begins the next is of the first.
    """
    found: list[range] = []
    for match in _pattern(mark).finditer(spelled.text):
        first = bisect_right(spelled.begun, match.start("line"))
        last = bisect_right(spelled.done, match.end() - 1) + 1
        found.append(range(max(first, found[-1].stop if found else 0), min(last, len(spelled.done))))
    return tuple(line for line in found if line)


@lru_cache(maxsize=64)
def _pattern(mark: Mark) -> re.Pattern[str]:
    """Spaces before a mark that begins a line are none of it. A text may break off before its end."""
    begins = "" if mark.within else r"(?:\A|(?<=\n))[ \t]*"
    return re.compile(rf"{begins}(?P<line>{re.escape(mark.text)}(?s:.*?)(?:{re.escape(mark.end)}|\Z))")
