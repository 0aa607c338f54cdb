"""Where windows lie on a trace, and what they say of its tokens; knows no model.

Kolawole and Smith, "EpiKV" (arXiv:2606.26472), section 3.4 and appendix C: windows of 32 tokens, stride 16,
over the reasoning of a trace that was answered correctly; a token is needed if any window that covers it
changes the answer. Ours: the last window is moved back to the end of the span, so that every token is
covered; the last token before the continuation is never occluded, since the next one is predicted from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeAlias

__all__ = ["READINGS", "Occlude", "Reading", "Span", "flips", "needed", "priorities", "span_of", "windows"]

Reading: TypeAlias = Literal["padded", "dropped"]
READINGS: tuple[Reading, ...] = ("padded", "dropped")
"""padded: the tokens are replaced by the padding token and the text is fed anew. dropped: what all layers of
full attention stored of them is taken out of the cache, and all that was computed from them stays.
"""
Occlude: TypeAlias = Literal["reasoning", "prompt", "all"]
CORRECT = "correct"
SINKS = 4
"""First tokens, without which a model is lost (StreamingLLM)."""

Window: TypeAlias = Sequence[Any]
"""[start, stop, text, grade], as a record has it."""


class Span(NamedTuple):
    """tokens: fed before the continuation. event: of these, those that a policy may evict; the others are fed
    after it. start, stop: positions that may be occluded.
    """

    tokens: int
    event: int
    start: int
    stop: int


def span_of(occlude: Occlude, context: int, query: int, reasoning: int, cut: Fraction) -> Span:
    """context, query: tokens of the prompt, what is compressed and what is fed afterwards. reasoning: tokens
    of the answer before its boundary; `cut` of them, rounded down, are fed, and none to occlude the prompt.

    Where no reasoning is fed, a question outside the context is fed after the event, as in the study; else
    the last token alone is.
    """
    prompt, fed = context + query, 0 if occlude == "prompt" else int(cut * reasoning)
    event = context if query and not fed else prompt + fed - 1
    start = prompt if occlude == "reasoning" else 0
    stop = min(context, event) if occlude == "prompt" else event
    return Span(prompt + fed, event, start, max(start, stop))


def windows(span: Span, window: int, stride: int) -> tuple[range, ...]:
    """Positions of each window, in order; none where the span is shorter than one."""
    return tuple(range(start, start + window) for start in _starts(span, window, stride))


def _starts(span: Span, window: int, stride: int) -> Iterator[int]:
    last = span.stop - window
    if last < span.start:
        return
    yield from range(span.start, last, stride)
    yield last


def flips(tokens: int, found: Sequence[Window]) -> list[int | None]:
    """By position: how many of the windows over it are not graded correct; None where none covers it."""
    counts: list[int | None] = [None] * tokens
    for start, stop, _, grade in found:
        for at in range(start, stop):
            counts[at] = (counts[at] or 0) + (grade != CORRECT)
    return counts


def needed(tokens: int, found: Sequence[Window]) -> list[int | None]:
    """The labels: by position, 1 where some window that covers it is not graded as the control is, which is
    correct; 0 where all are; None where none covers it.
    """
    return [None if count is None else int(count > 0) for count in flips(tokens, found)]


def priorities(tokens: int, found: Sequence[Window], budget: int) -> tuple[float, ...]:
    """What the oracle keeps first, of the tokens that an event sees: those of the most flips; then those that
    no window tested, which are taken to be needed as in appendix C; then the latest, as among equal ones.

    Where the budget does not hold all untested tokens beside the needed ones, the first SINKS alone of them
    come before the latest: ours, as StreamingLLM (arXiv:2309.17453) would fill the rest. All are different.
    """
    counts = flips(tokens, found)
    free = budget - sum(bool(count) for count in counts)
    first = tokens if counts.count(None) <= free else SINKS

    def worth(at: int, count: int | None) -> float:
        if count is None:
            return float(at < first)
        return 1.0 + count if count else 0.0

    return tuple(worth(*place) + place[0] / tokens for place in enumerate(counts))
