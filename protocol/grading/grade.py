"""What a grader says about a text, and what a grader is."""

from typing import Literal, NamedTuple, Protocol

__all__ = ["Grade", "Grader"]


class Grade(NamedTuple):
    """answer: what was read out of the text, None if there is nothing to read. reason: why it is not correct.

    "timeout" and "error" mean that this text was not graded; no grader turns them into "wrong".
    """

    status: Literal["correct", "wrong", "no answer", "timeout", "error"]
    answer: str | None
    reason: str


class Grader(Protocol):
    def grade(self, gold: str, text: str, /) -> Grade: ...
