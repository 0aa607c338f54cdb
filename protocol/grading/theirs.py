"""A grader of an entry point, whose grades are held to what it says of itself."""

from dataclasses import dataclass

from protocol.grading.grade import Grade, Grader, guarded

__all__ = ["Theirs"]


@dataclass(frozen=True)
class Theirs:
    """What it returns is a grade or, where it is none or it fails, "error": a lane without a grade."""

    own: Grader

    @property
    def scores(self) -> bool:
        """Whether a grade may be a score: unless it says by an attribute of this name that it never is."""
        return bool(getattr(self.own, "scores", True))

    def grade(self, gold: str, text: str) -> Grade:
        found = guarded(self.own.grade, gold, text)
        if found.status == "scored" and not self.scores:
            return Grade("error", None, "the grader's answer is a score, and it says that it never gives one")
        return found
