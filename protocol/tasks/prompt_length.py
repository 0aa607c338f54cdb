"""The length of a prompt in tokens, and the largest filler that fits."""

from collections.abc import Callable

from protocol.formats.refusals import BadInput
from protocol.tasks.problem import Problem

# Reserved for the chat template around the text: 31 tokens for SmolLM2's with its system prompt.
TEMPLATE_TOKENS = 48


def prompt_size(problem: Problem, count: Callable[[str], int]) -> int:
    """Return the tokens of context, question and prefix, each counted alone, and those reserved for the template."""
    return count(problem.context) + count(problem.question) + count(problem.prefix) + TEMPLATE_TOKENS


def fill_to_length(make: Callable[[int], Problem], length: int, count: Callable[[str], int]) -> Problem:
    """Return make(n), the problem with n sentences of filler, for the largest n of size at most `length` tokens.

    Raises BadInput when even n = 0 is too long. Assumes that more filler never has fewer tokens.
    """
    shortest = make(0)
    if prompt_size(shortest, count) > length:
        raise BadInput(
            f"{shortest.id}: takes {prompt_size(shortest, count)} tokens even without filler, more than its "
            f"length of {length}; write a larger length"
        )
    low, low_size, high = 0, prompt_size(shortest, count), 8
    while (high_size := prompt_size(make(high), count)) <= length:
        # Double n, or extrapolate from the tokens of a sentence so far, whichever is more.
        tokens_per_sentence = max(1, (high_size - low_size) // (high - low))
        low, low_size, high = high, high_size, max(2 * high, high + (length - high_size) // tokens_per_sentence)
    interpolates = True
    while high - low > 1:
        # Interpolate by the tokens of a sentence, clamped to the bracket; then halve it, since interpolating alone may
        # approach the end from one side sentence by sentence.
        tokens_per_sentence = max(1, (high_size - low_size) // (high - low))
        interpolated = min(max(low + (length - low_size) // tokens_per_sentence, low + 1), high - 1)
        middle = interpolated if interpolates else (low + high) // 2
        interpolates = not interpolates
        middle_size = prompt_size(make(middle), count)
        if middle_size <= length:
            low, low_size = middle, middle_size
        else:
            high, high_size = middle, middle_size
    return make(low)
