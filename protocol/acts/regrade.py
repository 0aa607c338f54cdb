"""Grade recorded texts again with the graders and golds of this installation, without a model."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from protocol import grading, tasks
from protocol.evidence.findings import CannotTell, NotRun
from protocol.evidence.refusals import Refusal, Tampered
from protocol.evidence.run import late_randomness, records
from protocol.evidence.run.records import Record
from protocol.evidence.run.registration import SEAL, Registration
from protocol.grading import Grade
from protocol.locked import drift
from protocol.tasks import Task, door

__all__ = ["Difference", "Regraded", "check", "regrade"]

UNGRADED = ("timeout", "error")  # may be the fault of this machine and this moment
SHOWN = 3  # of undetermined grades
SECONDS = 60.0  # time limit of an audit; `kv-prereg regrade` has none
READING = ("protocol/grading/", "protocol/tasks/")  # the code that grades a text


class Difference(NamedTuple):
    """before: the recorded grade, or the first grader's, with its score if it has one. after: the new grade,
    or the second grader's.
    """

    lane: str
    before: str
    after: str


class Regraded(NamedTuple):
    """graded: lanes with a grade. changed: those that grade differently now. second: the number of lanes that
    two graders graded; disagreed: those of them on which the two differ now, in grade or score. apart: the
    mean difference of the two scores, over all lanes that both graded; None without scores.
    """

    graded: int
    changed: tuple[Difference, ...]
    second: int
    disagreed: tuple[Difference, ...]
    apart: str | None = None


class Graders:
    """The graders and golds of this installation. The same text of a problem is graded only once, if its
    lanes follow each other as they do in the records.

    key: that of the claim, if held-out problems have late randomness. identity: a file with the private key
    of encrypted problems. find_task: returns a task by name, for tasks that are not built in.
    """

    def __init__(
        self, key: str | None = None, identity: Path | None = None, find: Callable[[str], Task] = tasks.get
    ):
        self.key, self.identity, self.find = key, identity, find
        self.graders: dict[str, grading.Grader] = {}
        self.golds: dict[tuple[str, str], grading.Gold] = {}
        self.grades: dict[tuple[str, grading.Gold, str], tuple[Grade, Grade | None]] = {}
        self.now = ("", "")  # task and problem of the cached grades

    def grade(self, body: Mapping[str, Any]) -> tuple[Grade, Grade | None]:
        """Return the grade of a lane that ended well, and the second grader's grade if there is a second
        grader.

        Raises as `find_task`, door.gold and grading.grader do.
        """
        task, problem, text = body["cell"]["task"], body["problem"], body["text"]
        own = self.find(task)
        name = own.grader
        if (task, problem) not in self.golds:
            self.golds[task, problem] = door.gold(own, problem, self.key, self.identity)
        gold = self.golds[task, problem]
        if self.now != (task, problem):
            self.grades.clear()
            self.now = task, problem
        if (name, gold, text) not in self.grades:
            if name not in self.graders:
                self.graders[name] = grading.grader(name)
            second = grading.second(name)
            other = None if second is None else grading.best(second.grade, gold, text)
            self.grades[name, gold, text] = grading.best(self.graders[name].grade, gold, text), other
        return self.grades[name, gold, text]


def regrade(
    bodies: Iterable[Mapping[str, Any]],
    key: str | None = None,
    identity: Path | None = None,
    find: Callable[[str], Task] = tasks.get,
) -> Regraded:
    """Grade the texts of these record bodies again; lanes that did not end well are left out. key, identity,
    find_task: as in Graders.
    """
    graded, changed, disagreed = 0, list[Difference](), list[Difference]()
    both: list[tuple[Grade, Grade]] = []
    graders = Graders(key, identity, find)
    for body in bodies:
        if body["state"] != "ok":
            continue
        again, other = graders.grade(body)
        lane, now, before = str(records.key(body)), _word(again), _recorded(body)
        graded += 1
        if now != before:
            changed.append(Difference(lane, before, now))
        if other is not None and again.status not in UNGRADED:
            both.append((again, other))
            if _word(other) != now:
                disagreed.append(Difference(lane, now, _word(other)))
    return Regraded(graded, tuple(changed), len(both), tuple(disagreed), _apart(both))


def _word(grade: Grade) -> str:
    return grade.status if grade.score is None else f"{grade.status} {grade.score}"


def _recorded(body: Mapping[str, Any]) -> str:
    return " ".join(body[name] for name in ("grade", "score") if name in body)


def _apart(both: list[tuple[Grade, Grade]]) -> str | None:
    """Return the mean difference over the lanes that both graders graded."""
    if not any(grade.score is not None for pair in both for grade in pair):
        return None
    worth = [(one.worth, other.worth) for one, other in both]
    each = [abs(one - other) for one, other in worth if one is not None and other is not None]
    return f"{sum(each, Decimal(0)) / len(each):.6f}" if each else None


def check(study: Registration, identity: Path | None = None) -> str:
    """Check that every recorded text of development problems and, once they are sealed, of held-out ones,
    gets the recorded answer, grade and reason from this installation.

    Raises Tampered if it gets others, CannotTell with the remedy if this machine, this moment or another
    version of the graders may be the cause, NotRun before anything can be graded.
    """
    graded, wrong, untold, skipped = 0, list[str](), list[str](), set[str]()
    spent, find = 0.0, tasks.finder(study.registered["tasks"], study.folder)
    for found, key in _phases(study):
        graders = Graders(key, identity, find)
        for record in found:
            body = record["body"]
            task = body["cell"]["task"]
            if body["state"] != "ok" or task in skipped:
                continue
            if spent > SECONDS:
                untold.append(f"not all was graded in {SECONDS:g} s; {_alone(study)}")
                break
            started = time.monotonic()
            try:
                again, second = graders.grade(body)
            except Refusal as missing:  # the task, its data, the key or math-verify is missing
                untold.append(str(missing))
                skipped.add(task)
                continue
            except (KeyError, ValueError, IndexError):
                wrong.append(f"{records.key(body)}: is no problem of {task}")
                continue
            spent += time.monotonic() - started
            graded += 1
            if difference := _difference(body, again, second):
                said = f"{records.key(body)}: {difference}"
                if {again.status, body["grade"]} & {*UNGRADED}:
                    untold.append(f"{said}; on an idle machine {_alone(study)}")
                else:
                    wrong.append(said)
    if wrong:
        first = f"{wrong[0]}; {len(wrong)} of {graded} lanes differ"
        if others := drift.apart(study.lock.content["sources"], *READING):
            raise CannotTell(f"{first}, and so do the locked graders ({', '.join(others[:3])}); compare them")
        raise Tampered(first)
    if untold:
        more = f"; {len(untold) - SHOWN} more" if len(untold) > SHOWN else ""
        raise CannotTell("; ".join(untold[:SHOWN]) + more)
    if not graded:
        raise NotRun("no text is graded before the seal but those of a probe")
    return f"{graded} texts grade as recorded"


def _phases(study: Registration) -> Iterator[tuple[Sequence[Record], str | None]]:
    """Yield the records that may be graded, with the key that their problems were drawn with."""
    if study.place("probe").exists():
        yield study.probed, None
    if study.has(SEAL):
        yield study.confirmed, late_randomness.key_of(study.lock, study.claim)


def _difference(body: Mapping[str, Any], again: Grade, second: Grade | None) -> str:
    now = {
        "grade": again.status,
        "score": again.score,
        "answer": again.answer,
        "grade_reason": again.reason,
        "grade_second": second and second.status,
        "score_second": second and second.score,
    }
    told = (f"{name} is {body.get(name)!r}, now {value!r}" for name, value in now.items())
    return next((said for said, name in zip(told, now, strict=True) if body.get(name) != now[name]), "")[:200]


def _alone(study: Registration) -> str:
    return f"run: kv-prereg regrade {study.folder}"
