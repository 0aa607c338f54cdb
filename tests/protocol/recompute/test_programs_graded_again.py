"""A program that grades otherwise than recorded: what explains it, so that nobody is accused of an edit."""

import itertools
import platform
from types import SimpleNamespace

import pytest

from protocol.grading import Grade
from protocol.recompute import verify_grades
from protocol.recompute.verify_grades import Graders


class Graded(Graders):
    """Grades as a list says, over and over; it may not answer from its memory."""

    def __init__(self, *statuses):
        super().__init__()
        self.answers = itertools.cycle(Grade(status, None, "") for status in statuses)

    def grade(self, body):
        if "same" not in self.grades:
            self.grades["same"] = (next(self.answers), None)
        return self.grades["same"]


def study(python):
    return SimpleNamespace(lock=SimpleNamespace(content={"environment": {"python": python}}))


@pytest.mark.parametrize(
    ("statuses", "python", "said"),
    [
        (["correct"], platform.python_version(), ""),
        (["correct", "wrong"], platform.python_version(), "the program does not give the same result each time"),
        (
            ["correct", "correct", "wrong"],
            platform.python_version(),
            "the program does not give the same result each time",
        ),
        (["correct"], "3.99.1", f"Python {platform.python_version()} for '3.99.1'"),
    ],
)
def test_another_grade_is_an_edit_unless_the_program_or_python_explains_it(statuses, python, said):
    graders = Graded(*statuses)
    grade = graders.grade({})[0]
    assert verify_grades._excuse_program(study(python), graders, {}, grade) == said
