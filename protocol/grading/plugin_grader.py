"""A grader from an entry point, whose grades are checked against what it declares."""

from dataclasses import dataclass

from protocol.grading.grade import Grade, Grader, grade_safely


@dataclass(frozen=True)
class PluginGrader:
    """Returns the wrapped grader's grade or, if that is invalid or raises, "error": a lane without a grade."""

    grader: Grader

    @property
    def scores(self) -> bool:
        """Whether a grade may be a score; true unless the grader has a false attribute of this name."""
        return bool(getattr(self.grader, "scores", True))

    def grade(self, gold: str, text: str) -> Grade:
        result = grade_safely(self.grader.grade, gold, text)
        if result.status == "scored" and not self.scores:
            return Grade("error", None, "the grader's answer is a score, and it says that it never gives one")
        return result
