"""How long a prompt is, and how much filler fits."""

from collections.abc import Callable

from protocol.evidence.refusals import BadInput
from protocol.tasks.problem import Problem

__all__ = ["TEMPLATE_TOKENS", "longest", "size"]

# Kept free for what a chat template puts around the text: 31 tokens for SmolLM2's with its system prompt.
TEMPLATE_TOKENS = 48


def size(problem: Problem, count: Callable[[str], int]) -> int:
    """Tokens of context, question and prefix, each counted alone, and those kept for the template."""
    return count(problem.context) + count(problem.question) + count(problem.prefix) + TEMPLATE_TOKENS


def longest(make: Callable[[int], Problem], length: int, count: Callable[[str], int]) -> Problem:
    """make(n), the problem with n sentences of filler, for the largest n of size at most `length` tokens.

    Raises BadInput when even n = 0 is too long. Relies on more filler never being fewer tokens.
    """
    fits = make(0)
    if size(fits, count) > length:
        raise BadInput(
            f"{fits.id}: takes {size(fits, count)} tokens without filler, more than its length {length}"
        )
    low, high = 0, 1
    while size(make(high), count) <= length:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if size(make(middle), count) <= length else (low, middle)
    return make(low)
