"""For an audit of labelled traces: grade every text again, and recompute chosen.json and verdict.json."""

import re
import time
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, NoReturn

from analysis.judgement.untrusted_files import RecordError
from protocol import tasks
from protocol.evidence.registration import Registration
from protocol.formats import canonical, files
from protocol.formats.findings import CannotTell, NotRun
from protocol.formats.refusals import SHAPE_ERRORS, Refusal, Tampered
from protocol.instruments.anatomy import analysis, trace_file
from protocol.instruments.anatomy.slip import DROPS
from protocol.instruments.anatomy.trace_file import ANATOMY, CHOSEN, VERDICT
from protocol.recompute import verify_grades, verify_judgement

DECIMAL = re.compile(r"-?[0-9]{1,9}\.[0-9]{6}")
LAST_DIGIT = Decimal("0.000001")
ANALYSIS = "protocol/instruments/anatomy/analysis/"
MAX_CHARACTERS = 300  # of a message about a difference


def check(study: Registration) -> str:
    """Check that the installed analysis gives the content of both documents from the traces.

    Raises Tampered for a difference that nothing here explains, CannotTell where another version of the
    analysis or of its libraries may explain it, NotRun before anything was chosen.
    """
    folder, checked = study.folder / ANATOMY, list[str]()
    for name, analyse in ((CHOSEN, analysis.choose), (VERDICT, analysis.judge)):
        if not files.exists(folder / name):
            continue
        recorded = trace_file.read_document(study, name).content
        try:
            computed = canonical.loads(canonical.dumps(analyse(study.folder)), name)
        except (RecordError, *SHAPE_ERRORS) as problem:
            _refuse_difference(study, f"{ANATOMY}/{name}: today's analysis cannot read the traces: {problem}")
        for path, recorded_value, expected in (
            difference for key in computed for difference in differing_values(recorded.get(key), computed[key], key)
        ):
            _refuse_difference(
                study,
                f"{ANATOMY}/{name}: {path} is {recorded_value!r}, but today's analysis gives {expected!r}"[
                    :MAX_CHARACTERS
                ],
            )
        added_fields = {"kind", "version", "lock", "traces", "ledger"} | ({"chosen"} if name == VERDICT else set())
        if unexpected := sorted(recorded.keys() - computed.keys() - added_fields):
            _refuse_difference(
                study, f"{ANATOMY}/{name}: {unexpected[0]} does not occur in what today's analysis gives"
            )
        checked.append(name)
    if not checked:
        raise NotRun("no signal has been chosen yet")
    return f"{_check_grades(study)}; {' and '.join(checked)} equal what today's analysis gives"


def differing_values(recorded: Any, computed: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield (path, recorded, computed) wherever two documents differ by more than the last digit of a
    decimal, which another processor may round differently.
    """
    if isinstance(recorded, Mapping) and isinstance(computed, Mapping):
        for key in sorted({*recorded, *computed}):
            yield from differing_values(recorded.get(key), computed.get(key), f"{path}.{key}")
    elif isinstance(recorded, list) and isinstance(computed, list) and len(recorded) == len(computed):
        for index, (written_item, computed_item) in enumerate(zip(recorded, computed, strict=True)):
            yield from differing_values(written_item, computed_item, f"{path}[{index}]")
    elif type(recorded) is not type(computed) or (recorded != computed and not _is_rounding(recorded, computed)):
        yield path, recorded, computed


def _is_rounding(recorded: Any, computed: Any) -> bool:
    if not (isinstance(recorded, str) and DECIMAL.fullmatch(recorded) and DECIMAL.fullmatch(computed)):
        return False
    return abs(Decimal(recorded) - Decimal(computed)) <= LAST_DIGIT


def _check_grades(study: Registration) -> str:
    """Check that every text gets the recorded grade from this installation. Raises as `verify_grades.check_grades`."""
    graders = verify_grades.Graders(find_task=tasks.task_finder(study.protocol["tasks"], study.folder))
    graded, started, wrong = 0, time.monotonic(), list[str]()
    for body in trace_file.read_traces(study).bodies:
        task, problem = body["task"], body["problem"]
        for location, text, grade in graded_texts(body):
            try:
                new_grade = graders.grade_text(task, problem, text, with_second=False)[0].status
            except Refusal as missing:  # the task, its data or math-verify is missing
                raise CannotTell(str(missing)) from None
            except (KeyError, ValueError, IndexError):
                raise Tampered(f"{task}/{problem}: is not a problem of {task}") from None
            graded += 1
            if new_grade == grade:
                continue
            message = (
                f"{task}/{problem}: {location} is recorded with the grade {grade!r}, but is now graded {new_grade!r}"
            )
            if {new_grade, grade} & {*verify_grades.TRANSIENT_GRADES}:
                raise CannotTell(f"{message}; audit again on an idle machine")
            wrong.append(message)
        if time.monotonic() - started > verify_grades.MAX_SECONDS:
            raise CannotTell(
                f"not all texts could be graded in {verify_grades.MAX_SECONDS:g} s; audit again on a faster machine"
            )
    verify_grades.refuse_other_grades(study, wrong, f"{graded} texts")
    return f"{graded} texts of traces grade as recorded"


def graded_texts(body: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (location, text, grade) of everything that was graded in a line."""
    if "text" in body:
        yield "text", body["text"], body["grade"]
    if "control" in body:
        yield "control", body["control"]["text"], body["control"]["grade"]
    for name in DROPS if "slip" in body else ():
        yield f"slip.{name}", body["slip"][name]["text"], body["slip"][name]["grade"]
    for reading, windows in body.get("windows", {}).items():
        for start, stop, text, grade in windows:
            yield f"windows.{reading} [{start}, {stop})", text, grade
    for row in body.get("kept", ()):
        if "text" in row:
            yield f"{row['arm']} at {row['budget']}", row["text"], row["grade"]


def _refuse_difference(study: Registration, message: str) -> NoReturn:
    """Raise Tampered if the installed analysis is the locked one, else CannotTell with the remedy."""
    installed = verify_judgement.compare_installed(study, ANALYSIS)
    if installed.is_same:
        raise Tampered(f"{message}; {installed}")
    raise CannotTell(f"{message}; {installed}; install the locked versions")
