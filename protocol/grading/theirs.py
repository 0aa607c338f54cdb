"""A grader from an entry point, whose grades are checked against what it declares."""

from dataclasses import dataclass

from protocol.grading.grade import Grade, Grader, guarded

__all__ = ["Theirs"]


@dataclass(frozen=True)
class Theirs:
    """Returns the wrapped grader's grade or, if that is invalid or raises, "error": a lane without a grade.
    """

    own: Grader

    @property
    def scores(self) -> bool:
        """Whether a grade may be a score; true unless the grader has a false attribute of this name."""
        return bool(getattr(self.own, "scores", True))

    def grade(self, gold: str, text: str) -> Grade:
        found = guarded(self.own.grade, gold, text)
        if found.status == "scored" and not self.scores:
            return Grade("error", None, "the grader's answer is a score, and it says that it never gives one")
        return found
