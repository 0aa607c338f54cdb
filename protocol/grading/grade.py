"""What a grader says about a text, and what a grader is."""

import re
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Literal, NamedTuple, Protocol, TypeAlias, get_args

__all__ = ["Gold", "Grade", "Grader", "best", "guarded", "scored"]

Gold: TypeAlias = str | tuple[str, ...]  # an answer, or several of which each is right
STEP = Decimal("0.000001")
SCORE = re.compile(r"0\.[0-9]{6}|1\.000000")
LONGEST = 300  # characters of a reason that a stranger gives


Status: TypeAlias = Literal["correct", "wrong", "no answer", "scored", "timeout", "error"]
STATUSES = get_args(Status)


class Grade(NamedTuple):
    """answer: what was read out of the text, None if there is nothing to read. reason: why it is not correct.

    "scored" is a text whose worth is a number: `score`, from 0 to 1, as a decimal with six places; no other
    status has one. "timeout" and "error" mean that this text was not graded; no grader turns them into
    "wrong". In a judgement a timeout counts as not correct all the same, or one such answer would void a
    study; an error leaves the lane without a grade.
    """

    status: Status
    answer: str | None
    reason: str
    score: str | None = None

    @property
    def worth(self) -> Decimal | None:
        """What a judgement counts: the score, 1 for "correct", None for "error", else 0."""
        if self.status == "error":
            return None
        return Decimal(self.score) if self.score is not None else Decimal(self.status == "correct")


class Grader(Protocol):
    def grade(self, gold: str, text: str, /) -> Grade: ...


def scored(score: float, answer: str | None, reason: str = "") -> Grade:
    """Raises ValueError for a score that is no number from 0 to 1."""
    if not 0 <= score <= 1:  # so is no NaN
        raise ValueError(f"score: {score} is not from 0 to 1")
    text = f"{Decimal(repr(float(score))).quantize(STEP, ROUND_HALF_EVEN):f}"
    return Grade("scored", answer, reason, text)


def best(grade: Callable[[str, str], Grade], gold: Gold, text: str) -> Grade:
    """The grade of a text by the gold answer that it meets best, the first of those that it meets alike.

    A text that some gold answer cannot be compared with ("timeout", "error") is not graded unless another
    one makes it correct.
    """
    if isinstance(gold, str):
        return guarded(grade, gold, text)
    found = [guarded(grade, each, text) for each in gold]
    ungraded = [one for one in found if one.status in ("timeout", "error")]
    top = max(found, key=lambda one: one.worth or Decimal(0))
    return ungraded[0] if ungraded and top.worth != 1 else top


def guarded(grade: Callable[[str, str], Grade], gold: str, text: str) -> Grade:
    """The grade, or "error" where the grader raises or says what is no grade: one from elsewhere may, and one
    text that it cannot read is no reason to lose the others.
    """
    try:
        said = grade(gold, text)
    except MemoryError:
        raise
    except Exception as error:
        return Grade("error", None, f"{type(error).__name__}: {' '.join(str(error).split())}"[:LONGEST])
    if reason := _fault(said):
        return Grade("error", None, f"the grader's answer {reason}"[:LONGEST])
    return said


def _fault(said: object) -> str:
    """Why this is no grade; "" for one."""
    if not isinstance(said, Grade):
        return f"is {type(said).__name__}, not a Grade"
    if said.status not in STATUSES:
        return f"has the status {said.status!r}"
    if not _is_text(said.reason) or not (said.answer is None or _is_text(said.answer)):
        return "has an answer or a reason that is no text"
    if (said.status == "scored") != (said.score is not None):
        return f"has the status {said.status!r} and the score {said.score!r}"
    if said.score is not None and not (isinstance(said.score, str) and SCORE.fullmatch(said.score)):
        return f"has the score {said.score!r}, which is no text of a number from 0 to 1 with six places"
    return ""


def _is_text(value: object) -> bool:
    """Half of a surrogate pair cannot be recorded."""
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)
