"""Marked stretches of a text as token ranges: matched in the text, since a mark has many tokenizations."""

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

SPLIT = "\ufffd"  # replaces a character with missing bytes
LONGEST = 4  # bytes of a character, and so the maximum number of tokens that share one


class Spelled(NamedTuple):
    """A text and its tokens. started, finished: for each token, the number of characters with a byte in it or
    an earlier token, and the number of those with no byte in a later token.
    """

    text: str
    begun: list[int]
    done: list[int]


class Reader:
    """Decodes texts token by token, with a cache of decoded tokens and their context."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self.decode = lru_cache(maxsize=65_536)(decode)

    def read(self, token_ids: Sequence[int]) -> Spelled:
        """Decode tokens. An incomplete character that is longer than any valid one is decoded as it is.

        Each token is decoded after its predecessor, since a tokenizer may decode the start of a text
        differently, and after the tokens that hold the beginning of a character that it may complete.
        """
        parts: list[str] = []
        begun: list[int] = []
        done: list[int] = []
        before: tuple[int, ...] = ()
        read = length = waiting = 0  # characters of `context` in the text; tokens of an incomplete one
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
    """Return the tokens of every stretch from the mark to its end, oldest first and disjoint: from the token
    with the first byte of `mark.text` to the one with the last byte of `mark.end`. The last stretch may be
    unfinished. A token that ends one stretch and begins the next belongs to the first.
    """
    found: list[range] = []
    for match in _pattern(mark).finditer(spelled.text):
        first = bisect_right(spelled.begun, match.start("line"))
        last = bisect_right(spelled.done, match.end() - 1) + 1
        found.append(range(max(first, found[-1].stop if found else 0), min(last, len(spelled.done))))
    return tuple(line for line in found if line)


@lru_cache(maxsize=64)
def _pattern(mark: Mark) -> re.Pattern[str]:
    """Return the pattern of a marked stretch, without spaces before a mark that begins a line. A text may end
    before the stretch does.
    """
    begins = "" if mark.within else r"(?:\A|(?<=\n))[ \t]*"
    return re.compile(rf"{begins}(?P<line>{re.escape(mark.text)}(?s:.*?)(?:{re.escape(mark.end)}|\Z))")
