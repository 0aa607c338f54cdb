"""Straight-line programs as tasks: one is executed line by line, one is written as Python, and facts are looked up."""

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from protocol.formats import canonical
from protocol.grading.program_tests import ProgramTests
from protocol.tasks import file_rows, straight_line
from protocol.tasks.chain import draw_below
from protocol.tasks.generated_task import LevelledTask
from protocol.tasks.problem import Problem
from protocol.tasks.straight_line import Worked

INPUTS = ((0, 0), (1, 0), (0, 1), (7, 4), (3, 9), (8, 8))  # of a function that is to be written
FACTS, FEWEST_COMMENTS, MOST_COMMENTS = 6, 12, 36


@dataclass(frozen=True)
class Programs(LevelledTask):
    """Problems <form>/<level>/<index>, `repetitions` of each level.

    form: executed, the level is the number of lines, and half as many comments to as many stand among them;
        or looked-up, the level is the number of hops; or written, the level is the number of lines.
    chance: of the most frequent digit, as a decimal. Zero is more frequent than others where x - x occurs.
    calibration: further problems of each level, whose indices continue after those of the task.

    A problem depends on its id and `seed` alone, whatever the tokenizer.
    """

    form: str
    levels: tuple[int, ...]
    repetitions: int
    calibration: int
    chance: str
    seed: int = field(default=47, kw_only=True)

    @property
    def grader(self) -> str:
        return "program" if self.form == "written" else "boxed"

    def build(self, problem_id: str, count: Callable[[str], int]) -> Problem:
        """Raises BadInput for another task's id."""
        self.refuse_unknown(problem_id, self.calibration_ids())
        worked = self.worked(problem_id)
        return Problem(problem_id, worked.context, worked.question, prefix="", gold=self.gold(problem_id))

    def gold(self, problem_id: str) -> str:
        """Return the digit; of a program that is to be written its hidden tests."""
        answer = self.worked(problem_id).answer
        if self.form != "written":
            return answer
        calls = {(first, second): straight_line.call(answer, first, second) for first, second in INPUTS}
        tests = tuple(f"assert f{given} == {result}" for given, result in calls.items())
        return ProgramTests(tests=tests, names=("f",), solution=answer).to_gold()

    def population(self) -> str:
        return "drawn afresh from a generator of straight-line programs"

    def worked(self, problem_id: str) -> Worked:
        source = random.Random(f"{self.seed}|{problem_id}")
        level = int(problem_id.split("/")[1])
        if self.form == "written":
            return straight_line.written(level, level // 2 + draw_below(level // 2 + 1, source), source)
        if self.form == "looked-up":
            comments = FEWEST_COMMENTS + draw_below(MOST_COMMENTS + 1 - FEWEST_COMMENTS, source)
            return straight_line.looked_up(level, FACTS, comments, source)
        comments = level - draw_below(level // 2 + 1, source)
        return straight_line.executed(level, comments, source)

    def content_digest(self, problem_id: str) -> str:
        """Return the digest of what the problem asks, the same where its text stands in a file."""
        worked = self.worked(problem_id)
        return file_rows.digest_text(worked.context, worked.question)

    def source(self) -> str:
        """Return the SHA-256 of what the problems are made of: these settings, the words and every problem."""
        problems = [list(self.worked(problem_id)[:4]) for problem_id in self.ids()]
        return canonical.digest(self.materials() | asdict(self) | {"problems": problems})

    def materials(self) -> dict[str, Any]:
        return {"family": "programs", "form": self.form, "words": straight_line.words()}

    def _make_ids(self, indices: range) -> tuple[str, ...]:
        return tuple(f"{self.form}/{level:02d}/{index:03d}" for level in self.levels for index in indices)
