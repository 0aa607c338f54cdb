"""The grade of a text, and the interface of a grader."""

import re
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Literal, NamedTuple, Protocol, TypeAlias, get_args

from protocol.formats.record_fields import SCORE, format_agreement

Gold: TypeAlias = str | tuple[str, ...]  # an answer, or several right answers
STEP = Decimal("0.000001")
MAX_REASON = 300  # characters of a reason from an untrusted grader


Status: TypeAlias = Literal["correct", "wrong", "no answer", "scored", "timeout", "error"]
STATUSES = get_args(Status)


class Grade(NamedTuple):
    """answer: the text that the grader extracted, None if there is none. reason: why it is not correct.

    "scored" has a number as its worth: `score`, from 0 to 1, as a decimal with six places; no other status
    has one. "timeout" and "error" mean that this text was not graded; no grader turns them into "wrong". In a
    judgement a timeout still counts as not correct, or one such answer would void a study; an error leaves
    the lane without a grade.
    """

    status: Status
    answer: str | None
    reason: str
    score: str | None = None

    @property
    def worth(self) -> Decimal | None:
        """The value that a judgement counts: the score, 1 for "correct", None for "error", else 0."""
        if self.status == "error":
            return None
        return Decimal(self.score) if self.score is not None else Decimal(self.status == "correct")


class Grader(Protocol):
    def grade(self, gold: str, text: str, /) -> Grade: ...


def make_score(score: float, answer: str | None, reason: str = "") -> Grade:
    """Return a "scored" grade. Raises ValueError for a score that is no number from 0 to 1."""
    if not 0 <= score <= 1:  # false for NaN
        raise ValueError(f"score: {score} is not from 0 to 1")
    text = f"{Decimal(repr(float(score))).quantize(STEP, ROUND_HALF_EVEN):f}"
    return Grade("scored", answer, reason, text)


def grade_agreement(agrees: str) -> Grade:
    """Return the grade of a lane that was fed the full cache's text and agrees at these positions."""
    return Grade("scored", None, "", format_agreement(agrees))


def best_grade(grade: Callable[[str, str], Grade], gold: Gold, text: str) -> Grade:
    """Return the best grade of a text over the gold answers; the first one on ties.

    If grading against some gold answer fails ("timeout", "error"), the text is not graded unless another
    answer makes it correct.
    """
    if isinstance(gold, str):
        return grade_safely(grade, gold, text)
    grades = [grade_safely(grade, answer, text) for answer in gold]
    ungraded = [result for result in grades if result.status in ("timeout", "error")]
    top = max(grades, key=lambda result: result.worth or Decimal(0))
    return ungraded[0] if ungraded and top.worth != 1 else top


def grade_safely(grade: Callable[[str, str], Grade], gold: str, text: str) -> Grade:
    """Return the grade, or "error" if the grader raises or returns something invalid: an external grader may,
    and one text that it cannot read is no reason to lose the others.
    """
    try:
        result = grade(gold, text)
    except MemoryError:
        raise
    except Exception as error:
        return Grade("error", None, f"{type(error).__name__}: {' '.join(str(error).split())}"[:MAX_REASON])
    if reason := _fault(result):
        return Grade("error", None, f"the grader's answer {reason}"[:MAX_REASON])
    return result


def _fault(result: object) -> str:
    """Return why this is not a valid grade; "" for a valid one."""
    if not isinstance(result, Grade):
        return f"is {type(result).__name__}, not a Grade"
    if result.status not in STATUSES:
        return f"has the status {result.status!r}"
    if not _is_text(result.reason) or not (result.answer is None or _is_text(result.answer)):
        return "has an answer or a reason that is not text"
    if (result.status == "scored") != (result.score is not None):
        return f"has the status {result.status!r}, which does not go with the score {result.score!r}"
    if result.score is not None and not (isinstance(result.score, str) and re.fullmatch(SCORE, result.score)):
        return f"has the score {result.score!r}, which must be text: a number from 0 to 1 with six decimal places"
    return ""


def _is_text(value: object) -> bool:
    """Whether it is a string that can be recorded, without half of a surrogate pair."""
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)
