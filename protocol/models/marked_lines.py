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

REPLACEMENT = "\ufffd"  # replaces a character with missing bytes
MAX_CHARACTER_BYTES = 4  # bytes of a character, and so the maximum number of tokens that share one


class DecodedText(NamedTuple):
    """A text and its tokens. started, finished: for each token, the number of characters with a byte in it or
    an earlier token, and the number of those with no byte in a later token.
    """

    text: str
    started: list[int]
    finished: list[int]


class TokenReader:
    """Decodes texts token by token, with a cache of decoded tokens and their context."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self.decode = lru_cache(maxsize=65_536)(decode)

    def decode_text(self, token_ids: Sequence[int]) -> DecodedText:
        """Decode tokens. An incomplete character that is longer than any valid one is decoded as it is.

        Each token is decoded after its predecessor, since a tokenizer may decode the start of a text
        differently, and after the tokens that hold the beginning of a character that it may complete.
        """
        parts: list[str] = []
        started: list[int] = []
        finished: list[int] = []
        context: tuple[int, ...] = ()
        n_read = length = waiting = 0  # characters of `context` in the text; tokens of an incomplete one
        for token in token_ids:
            pending = (*context, token)
            text = self.decode(pending)[n_read:]
            complete_text = text.rstrip(REPLACEMENT)
            waiting = waiting + 1 if complete_text != text and not complete_text else int(complete_text != text)
            if waiting >= MAX_CHARACTER_BYTES or len(started) + 1 == len(token_ids):
                complete_text, waiting = text, 0
            if complete_text or not text:
                parts.append(complete_text)
                length += len(complete_text)
                context = (token,)
                n_read = len(self.decode(context)) - (len(text) - len(complete_text))
            else:
                context = pending
            started.append(length + bool(waiting))
            finished.append(length)
        return DecodedText("".join(parts), started, finished)


def make_reader(tokenizer: PreTrainedTokenizerBase) -> TokenReader:
    return TokenReader(lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False)))


def find_lines(decoded: DecodedText, mark: Mark) -> tuple[range, ...]:
    """Return the tokens of every stretch from the mark to its end, oldest first and disjoint: from the token
    with the first byte of `mark.text` to the one with the last byte of `mark.end`. The last stretch may be
    unfinished. A token that ends one stretch and begins the next belongs to the first.
    """
    spans: list[range] = []
    for match in _pattern(mark).finditer(decoded.text):
        first = bisect_right(decoded.started, match.start("line"))
        last = bisect_right(decoded.finished, match.end() - 1) + 1
        spans.append(range(max(first, spans[-1].stop if spans else 0), min(last, len(decoded.finished))))
    return tuple(line for line in spans if line)


@lru_cache(maxsize=64)
def _pattern(mark: Mark) -> re.Pattern[str]:
    """Return the pattern of a marked stretch, without spaces before a mark that begins a line; texts may end first."""
    begins = "" if mark.within else r"(?:\A|(?<=\n))[ \t]*"
    return re.compile(rf"{begins}(?P<line>{re.escape(mark.text)}(?s:.*?)(?:{re.escape(mark.end)}|\Z))")
