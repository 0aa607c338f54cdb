"""The length of a prompt in tokens, and the largest filler that fits."""

from collections.abc import Callable

from protocol.evidence.refusals import BadInput
from protocol.tasks.problem import Problem

__all__ = ["TEMPLATE_TOKENS", "longest", "size"]

# Reserved for the chat template around the text: 31 tokens for SmolLM2's with its system prompt.
TEMPLATE_TOKENS = 48


def size(problem: Problem, count: Callable[[str], int]) -> int:
    """Return the tokens of context, question and prefix, each counted alone, and those reserved for the
    template.
    """
    return count(problem.context) + count(problem.question) + count(problem.prefix) + TEMPLATE_TOKENS


def longest(make: Callable[[int], Problem], length: int, count: Callable[[str], int]) -> Problem:
    """Return make(n), the problem with n sentences of filler, for the largest n of size at most `length`
    tokens.

    Raises BadInput when even n = 0 is too long. Assumes that more filler never has fewer tokens.
    """
    fits = make(0)
    if size(fits, count) > length:
        raise BadInput(
            f"{fits.id}: takes {size(fits, count)} tokens without filler, more than its length {length}"
        )
    low, taken, high = 0, size(fits, count), 8
    while (length_of := size(make(high), count)) <= length:
        # Double n, or extrapolate from the tokens of a sentence so far, whichever is more.
        each = max(1, (length_of - taken) // (high - low))
        low, taken, high = high, length_of, max(2 * high, high + (length - length_of) // each)
    while high - low > 1:
        # Interpolate by the tokens of a sentence, clamped to the bracket.
        each = max(1, (length_of - taken) // (high - low))
        middle = min(max(low + (length - taken) // each, low + 1), high - 1)
        here = size(make(middle), count)
        if here <= length:
            low, taken = middle, here
        else:
            high, length_of = middle, here
    return make(low)
