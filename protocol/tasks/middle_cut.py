"""Cut a context that is too long in its middle."""

import re
from collections.abc import Callable
from typing import NamedTuple

from protocol.formats.refusals import BadInput

WORD = re.compile(r"\S+")


class MaxLength(NamedTuple):
    """The maximum length of a context: words, separated by white space, or tokens of the model's tokenizer.

    Exactly one is set. CrystalCache caps its inputs at 20,000 words (section 4.2), LongBench's script at the
    tokens of a model's window minus a margin.
    """

    words: int | None = None
    tokens: int | None = None

    def validate(self) -> "MaxLength":
        """Return itself. Raises BadInput unless exactly one is a number of at least 2."""
        limits = [number for number in self if number is not None]
        if len(limits) != 1 or limits[0] < 2:
            raise BadInput(
                "tasks: longest: write either { words = 20000 } or { tokens = 31500 }, with a number of at least 2"
            )
        return self


def cut_middle(context: str, longest: MaxLength | None, count: Callable[[str], int]) -> str:
    """Return the context or, if it is too long, its first and last half, since prefix and suffix contain the
    instruction and the question. count: tokens of a text.

    Words: the halves are joined by one space, and the first has one word more if the number is odd. Tokens:
    the longest beginning and end with at most half the tokens each, joined directly as in LongBench, which
    cuts token ids and decodes them; this function gets no ids and may cut at any character.
    """
    if longest is None:
        return context
    if longest.words is not None:
        return _cut_words(context, longest.words)
    assert longest.tokens is not None
    if count(context) <= longest.tokens:
        return context
    half = longest.tokens // 2
    head = context[: _largest_fitting(lambda n: count(context[:n]), longest.tokens - half, len(context))]
    tail = context[len(context) - _largest_fitting(lambda n: count(context[len(context) - n :]), half, len(context)) :]
    while count(head + tail) > longest.tokens:  # the joint may add tokens
        tail = tail[1:]
    return head + tail


def _cut_words(context: str, max_words: int) -> str:
    matches = list(WORD.finditer(context))
    if len(matches) <= max_words:
        return context
    last, first = matches[max_words - max_words // 2 - 1], matches[-(max_words // 2)]
    return f"{context[: last.end()]} {context[first.start() :]}"


def _largest_fitting(size: Callable[[int], int], limit: int, length: int) -> int:
    """Return the largest n below `length` with size(n) <= limit, by interpolation of tokens per character.

    Assumes that more characters rarely have fewer tokens; the result fits in any case.
    """
    low, fits, high, over = 0, 0, length, size(length)
    while high - low > 1:
        guess = low + (limit + 1 - fits) * (high - low) // max(1, over - fits)
        middle = min(max(guess, low + 1, low + (high - low) // 16), high - 1, high - (high - low) // 16)
        middle_size = size(middle)
        if middle_size <= limit:
            low, fits = middle, middle_size
        else:
            high, over = middle, middle_size
    return low
