"""The positions of windows on a trace, and the labels of its tokens that follow from them; needs no model.

Kolawole and Smith, "EpiKV" (arXiv:2606.26472), section 3.4 and appendix C: windows of 32 tokens, stride 16,
over the reasoning of a trace that was answered correctly; a token is needed if any window that covers it
changes the answer. Differences: the last window is moved back to the end of the span, so that every token is
covered; the last token before the continuation is never occluded, since the next one is predicted from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeAlias

from protocol.instruments.anatomy.fields import CORRECT

Reading: TypeAlias = Literal["padded", "dropped"]
"""padded: the tokens are replaced by the padding token and the text is fed again. dropped: their slots are
removed from all layers of full attention, and everything computed from them stays.
"""
Occlude: TypeAlias = Literal["reasoning", "prompt", "all"]
SINKS = 4
"""The first tokens, which a model cannot do without (StreamingLLM)."""

Window: TypeAlias = Sequence[Any]
"""[start, stop, text, grade], as a record stores it."""


class Span(NamedTuple):
    """tokens: fed before the continuation. event: of these, those that a policy may evict; the others are fed
    after the eviction. start, stop: positions that may be occluded.
    """

    tokens: int
    event: int
    start: int
    stop: int


def span_of(occlude: Occlude, context: int, query: int, reasoning: int, cut: Fraction) -> Span:
    """Return the span of a trace. context, query: tokens of the prompt, compressed and fed afterwards. reasoning:
    tokens of the answer before its boundary; `cut` of them, rounded down, are fed, and none to occlude the prompt.

    If no reasoning is fed, a question outside the context is fed after the eviction, as in the study;
    otherwise the last token alone is.
    """
    prompt, fed = context + query, 0 if occlude == "prompt" else int(cut * reasoning)
    event = context if query and not fed else prompt + fed - 1
    start = prompt if occlude == "reasoning" else 0
    stop = min(context, event) if occlude == "prompt" else event
    return Span(prompt + fed, event, start, max(start, stop))


def windows(span: Span, window: int, stride: int) -> tuple[range, ...]:
    """Return the positions of each window, in order; empty if the span is shorter than one."""
    return tuple(range(start, start + window) for start in _window_starts(span, window, stride))


def _window_starts(span: Span, window: int, stride: int) -> Iterator[int]:
    last = span.stop - window
    if last < span.start:
        return
    yield from range(span.start, last, stride)
    yield last


def count_flips(tokens: int, window_rows: Sequence[Window]) -> list[int | None]:
    """Return by position how many of the windows over it are not graded correct; None if none covers it."""
    counts: list[int | None] = [None] * tokens
    for start, stop, _, grade in window_rows:
        for position in range(start, stop):
            counts[position] = (counts[position] or 0) + (grade != CORRECT)
    return counts


def oracle_priorities(tokens: int, window_rows: Sequence[Window], budget: int) -> tuple[float, ...]:
    """Return the priorities of the oracle for the tokens of an eviction: tokens with the most flips first; then those
    without any window, which are assumed to be needed as in appendix C; then the latest, as among equals.

    If the budget does not fit all untested tokens besides the needed ones, only the first SINKS of them come before the
    latest: not in the paper, but as StreamingLLM (arXiv:2309.17453) would fill the rest. All priorities differ.
    """
    counts = count_flips(tokens, window_rows)
    free = budget - sum(bool(count) for count in counts)
    n_first = tokens if counts.count(None) <= free else SINKS

    def priority(position: int, count: int | None) -> float:
        if count is None:
            return float(position < n_first)
        return 1.0 + count if count else 0.0

    return tuple(priority(*item) + item[0] / tokens for item in enumerate(counts))
