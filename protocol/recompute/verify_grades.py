"""Check recorded grades with the graders and golds of this installation, without a model."""

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from protocol import grading, tasks
from protocol.evidence import records
from protocol.evidence.records import Record
from protocol.evidence.registration import SEAL, Registration
from protocol.formats.findings import CannotTell, NotRun
from protocol.formats.refusals import Refusal, Tampered
from protocol.grading import Grade
from protocol.tasks import Task, held_out_guard
from protocol.workspace import drift

TRANSIENT_GRADES = ("timeout", "error")  # may be the fault of this machine and this moment
PROGRAM = "program"  # the grader that runs what a model wrote
MORE_RUNS = 3  # of a program whose grade is not that of the records
MAX_MESSAGES = 3  # of undetermined grades
MAX_SECONDS = 60.0  # time limit of an audit; `kv-prereg regrade` has none


class Graders:
    """The graders and golds of this installation. The same text of a problem is graded only once, if its
    lanes follow each other as they do in the records.

    key: that of the claim, if held-out problems have late randomness. identity: a file with the private key
    of encrypted problems. find_task: returns a task by name, for tasks that are not built in.
    """

    def __init__(
        self, key: str | None = None, identity: Path | None = None, find_task: Callable[[str], Task] = tasks.get
    ):
        self.key, self.identity, self.find_task = key, identity, cache(find_task)
        self.graders: dict[str, grading.Grader] = {}
        self.golds: dict[tuple[str, str], grading.Gold] = {}
        self.grades: dict[tuple[str, grading.Gold, str], tuple[Grade, Grade | None]] = {}
        self.current_problem = ("", "")  # task and problem of the cached grades

    def grade(self, body: Mapping[str, Any]) -> tuple[Grade, Grade | None]:
        """Return the grade of a lane that ended well, and the second grader's grade if there is a second
        grader. A lane that was fed the full cache's text is worth its agreement.

        Raises as `find_task`, door.gold and grading.grader do.
        """
        if "divergence" in body:
            return grading.grade_agreement(body["divergence"]["agrees"]), None
        return self.grade_text(body["cell"]["task"], body["problem"], body["text"])

    def grade_text(self, task: str, problem: str, text: str, *, with_second: bool = True) -> tuple[Grade, Grade | None]:
        """Return the grade of a text, and the second grader's if there is one and `with_second`. Raises as `grade`."""
        task_object = self.find_task(task)
        name = task_object.grader
        if (task, problem) not in self.golds:
            self.golds[task, problem] = held_out_guard.gold(task_object, problem, self.key, self.identity)
        gold = self.golds[task, problem]
        if self.current_problem != (task, problem):
            self.grades.clear()
            self.current_problem = task, problem
        if (name, gold, text) not in self.grades:
            if name not in self.graders:
                self.graders[name] = grading.get_grader(name)
            second = grading.second_grader(name) if with_second else None
            second_grade = None if second is None else grading.best_grade(second.grade, gold, text)
            self.grades[name, gold, text] = grading.best_grade(self.graders[name].grade, gold, text), second_grade
        return self.grades[name, gold, text]


def check_grades(study: Registration, identity: Path | None = None) -> str:
    """Check that every recorded text of development problems and, once they are sealed, of held-out ones,
    gets the recorded answer, grade and reason from this installation.

    Raises Tampered if it gets others, CannotTell with the remedy if this machine, this moment or another
    version of the graders may be the cause, NotRun before anything can be graded.
    """
    graded, wrong, undetermined, skipped = 0, list[str](), list[str](), set[str]()
    spent, find_task = 0.0, tasks.task_finder(study.protocol["tasks"], study.folder)
    for phase_records, key in _gradable_phases(study):
        graders = Graders(key, identity, find_task)
        for record in phase_records:
            body = record["body"]
            task = body["cell"]["task"]
            if body["state"] != "ok" or task in skipped:
                continue
            if spent > MAX_SECONDS:
                undetermined.append(f"not all texts could be graded in {MAX_SECONDS:g} s; {_regrade_command(study)}")
                break
            started = time.monotonic()
            try:
                new_grade, second_grade = graders.grade(body)
            except Refusal as missing:  # the task, its data, the key or math-verify is missing
                undetermined.append(str(missing))
                skipped.add(task)
                continue
            except (KeyError, ValueError, IndexError):
                wrong.append(f"{records.body_key(body)}: is not a problem of {task}")
                continue
            spent += time.monotonic() - started
            graded += 1
            if difference := _describe_difference(body, new_grade, second_grade):
                message = f"{records.body_key(body)}: {difference}"
                if {new_grade.status, body["grade"]} & {*TRANSIENT_GRADES}:
                    undetermined.append(f"{message}; on an idle machine, {_regrade_command(study)}")
                elif find_task(task).grader == PROGRAM and (reason := _excuse_program(study, graders, body, new_grade)):
                    undetermined.append(f"{message}; {reason}")
                else:
                    wrong.append(message)
    refuse_other_grades(study, wrong, f"{graded} lanes")
    if undetermined:
        more = f"; {len(undetermined) - MAX_MESSAGES} more" if len(undetermined) > MAX_MESSAGES else ""
        raise CannotTell("; ".join(undetermined[:MAX_MESSAGES]) + more)
    if not graded:
        raise NotRun("before the seal only texts of a probe are graded")
    return f"{graded} texts grade as recorded"


def refuse_other_grades(study: Registration, wrong: Sequence[str], graded: str) -> None:
    """Raise Tampered for texts that grade otherwise than recorded, CannotTell where other code or libraries graded.
    graded: how many were graded, with their noun.
    """
    if not wrong:
        return
    first = f"{wrong[0]}; {len(wrong)} of {graded} differ"
    if reasons := drift.other_code(study, grading.LIBRARIES):
        raise CannotTell(f"{first}; {', '.join(reasons)}; compare the graders")
    raise Tampered(first)


def _gradable_phases(study: Registration) -> Iterator[tuple[Sequence[Record], str | None]]:
    """Yield the records that may be graded, with the key that their problems were drawn with."""
    if study.phase_folder("probe").exists():
        yield study.probe_records, None
    if study.has(SEAL):
        yield study.confirm_records, study.late_key()


def _excuse_program(study: Registration, graders: Graders, body: Mapping[str, Any], grade: Grade) -> str:
    """Return why a program may grade otherwise than recorded though nothing was changed; "" if nothing explains it."""
    locked, installed = study.lock.content["environment"]["python"], platform.python_version()
    if locked != installed:
        return f"Python {installed} for {locked!a}"
    for _ in range(MORE_RUNS):
        graders.grades.clear()
        if graders.grade(body)[0] != grade:
            return "the program does not give the same result each time"
    return ""


def _describe_difference(body: Mapping[str, Any], new_grade: Grade, second_grade: Grade | None) -> str:
    new_values = {
        "grade": new_grade.status,
        "score": new_grade.score,
        "answer": new_grade.answer,
        "grade_reason": new_grade.reason,
        "grade_second": second_grade and second_grade.status,
        "score_second": second_grade and second_grade.score,
    }
    for name, value in new_values.items():
        if body.get(name) != value:
            return f"{name} is {body.get(name)!r}, now {value!r}"[:200]
    return ""


def _regrade_command(study: Registration) -> str:
    return f"run: kv-prereg regrade {study.folder}"
