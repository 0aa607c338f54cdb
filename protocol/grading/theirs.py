"""A grader of an entry point, whose grades are held to what a grade is."""

import re
from dataclasses import dataclass
from typing import get_args

from protocol.grading.grade import Grade, Grader

__all__ = ["Theirs"]

STATUSES = get_args(Grade.__annotations__["status"])
SCORE = re.compile(r"0\.[0-9]{6}|1\.000000")


@dataclass(frozen=True)
class Theirs:
    """What it returns is a grade or, where it is none or it fails, "error": a lane without a grade."""

    own: Grader

    @property
    def scores(self) -> bool:
        """Whether a grade may be a score: unless it says by an attribute of this name that it never is."""
        return bool(getattr(self.own, "scores", True))

    def grade(self, gold: str, text: str) -> Grade:
        try:
            found = self.own.grade(gold, text)
        except Exception as error:  # whatever somebody else's code raises, the other lanes go on
            return Grade("error", None, f"its grader failed: {type(error).__name__}")
        if fault := self._fault(found):
            return Grade("error", None, f"its grader gave no grade: {fault}")
        return found

    def _fault(self, found: object) -> str | None:
        if not isinstance(found, Grade):
            return f"a {type(found).__name__}"
        if found.status not in STATUSES:
            return "an unknown status"
        if not _is_text(found.reason) or not (found.answer is None or _is_text(found.answer)):
            return "an answer or a reason that is no text"
        if found.status != "scored":
            return None if found.score is None else "a score beside another status"
        if not self.scores:
            return "a score, and it says that it never gives one"
        score = isinstance(found.score, str) and SCORE.fullmatch(found.score)
        return None if score else "a score that is not from 0.000000 to 1.000000"


def _is_text(value: object) -> bool:
    """Half of a surrogate pair cannot be recorded."""
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)
