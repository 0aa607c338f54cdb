"""Grading: from generated text to a grade with its reason.

grader = grading.grader("math")     # or "boxed", "exact"; made once, used for every text
grade = grading.best(grader.grade, problem.gold, text)

May import: protocol.evidence; math_verify, sympy.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from protocol.evidence.refusals import BadInput, unknown
from protocol.grading import boxed, exact, spelling
from protocol.grading.grade import Gold, Grade, Grader, best, scored
from protocol.grading.mathverify import MathVerify

__all__ = [
    "GRADERS",
    "SECOND",
    "Gold",
    "Grade",
    "Grader",
    "MathVerify",
    "best",
    "grader",
    "names",
    "scored",
    "scores",
    "second",
]

GRADERS: Mapping[str, Callable[[], Grader]] = MappingProxyType(
    {"exact": lambda: exact, "boxed": lambda: boxed, "math": MathVerify}
)
# Whose verdict is recorded beside that of the grader.
SECOND: Mapping[str, Grader] = MappingProxyType({"math": spelling})


def grader(name: str) -> Grader:
    """Made anew. Raises BadInput for a name that no grader has."""
    if name not in GRADERS:
        raise BadInput("grader: " + unknown("grader", name, list(GRADERS)))
    return GRADERS[name]()


def names() -> tuple[str, ...]:
    """What `grader` takes."""
    return tuple(GRADERS)


def second(name: str) -> Grader | None:
    """The grader whose verdict is recorded beside that of the named one; None where there is none."""
    return SECOND.get(name)


def scores(name: str) -> bool:
    """Whether the grades of the named grader may be "scored": it says so by an attribute `scores`."""
    return bool(getattr(grader(name), "scores", False))
