"""Grading: from generated text to a grade with its reason.

grader = grading.GRADERS["math"]()     # or "boxed", "exact"; made once, used for every text
grade = grader.grade(problem.gold, text)

May import: protocol.evidence; math_verify, sympy.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from protocol.grading import boxed, exact, spelling
from protocol.grading.grade import Gold, Grade, Grader, best, scored
from protocol.grading.mathverify import MathVerify

__all__ = ["GRADERS", "SECOND", "Gold", "Grade", "Grader", "MathVerify", "best", "scored"]

GRADERS: Mapping[str, Callable[[], Grader]] = MappingProxyType(
    {"exact": lambda: exact, "boxed": lambda: boxed, "math": MathVerify}
)
# Whose verdict is recorded beside that of the grader.
SECOND: Mapping[str, Grader] = MappingProxyType({"math": spelling})
