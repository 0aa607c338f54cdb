"""For an audit of labelled traces: grade every text again, and recompute chosen.json and verdict.json."""

import re
import time
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, NoReturn

from analysis import anatomy
from analysis.studies.plain_files import RecordError
from protocol import grading, tasks
from protocol.acts.again import judged_again
from protocol.evidence.bytes import canonical, files
from protocol.evidence.findings import CannotTell, NotRun
from protocol.evidence.refusals import Refusal, Tampered
from protocol.evidence.run import anatomies
from protocol.evidence.run.anatomies import CHOSEN, VERDICT
from protocol.evidence.run.registration import ANATOMY, Registration
from protocol.locked import drift
from protocol.tasks import door

__all__ = ["check"]

READING = ("protocol/grading/", "protocol/tasks/")  # the code that grades a text
UNGRADED = ("timeout", "error")  # may be the fault of this machine and this moment
SECONDS = 60.0  # time limit of the grading in an audit
DECIMAL = re.compile(r"-?[0-9]{1,9}\.[0-9]{6}")
LAST_DIGIT = Decimal("0.000001")
SHOWN = 300  # of a message about a difference


def check(study: Registration) -> str:
    """Check that the installed analysis gives the content of both documents from the traces.

    Raises Tampered for a difference that nothing here explains, CannotTell where another version of the
    analysis or of its libraries may explain it, NotRun before anything was chosen.
    """
    place, checked = study.folder / ANATOMY, list[str]()
    asked = ((CHOSEN, anatomy.choose, anatomies.chosen), (VERDICT, anatomy.judge, anatomies.judged))
    for name, analyse, read in asked:
        if not files.there(place / name):
            continue
        written = read(study).content
        try:
            here = canonical.loads(canonical.dumps(analyse(study.folder)), name)
        except (RecordError, *judged_again.WRONG_SHAPE) as problem:
            _refuse(study, f"{ANATOMY}/{name}: today's analysis cannot read the traces: {problem}")
        for path, said, due in (each for key in here for each in apart(written.get(key), here[key], key)):
            _refuse(study, f"{ANATOMY}/{name}: {path} is {said!r}, today's analysis says {due!r}"[:SHOWN])
        own = {"kind", "version", "lock", "traces", "ledger"} | ({"chosen"} if name == VERDICT else set())
        if more := sorted(written.keys() - here.keys() - own):
            _refuse(study, f"{ANATOMY}/{name}: {more[0]} is nothing that today's analysis says")
        checked.append(name)
    if not checked:
        raise NotRun("nothing was chosen yet")
    return f"{_grades(study)}; {' and '.join(checked)} as today's analysis has them"


def apart(written: Any, here: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield (path, recorded, computed) wherever two documents differ by more than the last digit of a
    decimal, which another processor may round differently.
    """
    if isinstance(written, Mapping) and isinstance(here, Mapping):
        for key in sorted({*written, *here}):
            yield from apart(written.get(key), here.get(key), f"{path}.{key}")
    elif isinstance(written, list) and isinstance(here, list) and len(written) == len(here):
        for place, (one, other) in enumerate(zip(written, here, strict=True)):
            yield from apart(one, other, f"{path}[{place}]")
    elif type(written) is not type(here) or (written != here and not _near(written, here)):
        yield path, written, here


def _near(written: Any, here: Any) -> bool:
    if not (isinstance(written, str) and DECIMAL.fullmatch(written) and DECIMAL.fullmatch(here)):
        return False
    return abs(Decimal(written) - Decimal(here)) <= LAST_DIGIT


def _grades(study: Registration) -> str:
    """Check that every text gets the recorded grade from this installation. Raises as `regrade.check` does.
    """
    find = tasks.finder(study.registered["tasks"], study.folder)
    graded, began, wrong = 0, time.monotonic(), list[str]()
    graders: dict[str, grading.Grader] = {}
    for body in anatomies.read(study).bodies:
        task, problem = body["task"], body["problem"]
        try:
            own = find(task)
            gold, grader = door.gold(own, problem), graders.get(own.grader) or grading.grader(own.grader)
        except Refusal as missing:  # the task, its data or math-verify is missing
            raise CannotTell(str(missing)) from None
        except (KeyError, ValueError, IndexError):
            raise Tampered(f"{task}/{problem}: is no problem of {task}") from None
        graders[own.grader] = grader
        now: dict[str, str] = {}
        for where, text, grade in _texts(body):
            if text not in now:
                now[text] = grading.best(grader.grade, gold, text).status
            graded += 1
            if now[text] == grade:
                continue
            said = f"{task}/{problem}: {where} is graded {grade!r}, now {now[text]!r}"
            if {now[text], grade} & {*UNGRADED}:
                raise CannotTell(f"{said}; audit again on an idle machine")
            wrong.append(said)
        if time.monotonic() - began > SECONDS:
            raise CannotTell(f"not all was graded in {SECONDS:g} s; audit again on a faster machine")
    if wrong:
        first = f"{wrong[0]}; {len(wrong)} of {graded} texts differ"
        if others := drift.apart(study.lock.content["sources"], *READING):
            raise CannotTell(f"{first}, and so do the locked graders ({', '.join(others[:3])}); compare them")
        raise Tampered(first)
    return f"{graded} texts of traces grade as recorded"


def _texts(body: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (location, text, grade) of everything that was graded in a line."""
    if "text" in body:
        yield "text", body["text"], body["grade"]
    if "control" in body:
        yield "control", body["control"]["text"], body["control"]["grade"]
    for reading, found in body.get("windows", {}).items():
        for start, stop, text, grade in found:
            yield f"windows.{reading} [{start}, {stop})", text, grade
    for one in body.get("kept", ()):
        if "text" in one:
            yield f"{one['arm']} at {one['budget']}", one["text"], one["grade"]


def _refuse(study: Registration, said: str) -> NoReturn:
    """Raise Tampered if the installed analysis is the locked one, else CannotTell with the remedy."""
    mine = judged_again.own(study)
    if mine.same:
        raise Tampered(f"{said}; {mine}")
    raise CannotTell(f"{said}; {mine}; install what was locked")
