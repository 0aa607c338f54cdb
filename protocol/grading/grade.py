"""What a grader says about a text, and what a grader is."""

from typing import Literal, NamedTuple, Protocol

__all__ = ["Grade", "Grader"]


class Grade(NamedTuple):
    """answer: what was read out of the text, None if there is nothing to read. reason: why it is not correct.

    "timeout" and "error" mean that this text was not graded; no grader turns them into "wrong". In a
    judgement a timeout counts as not correct all the same, or one such answer would void a study; an error
    leaves the lane without a grade.
    """

    status: Literal["correct", "wrong", "no answer", "timeout", "error"]
    answer: str | None
    reason: str


class Grader(Protocol):
    def grade(self, gold: str, text: str, /) -> Grade: ...
