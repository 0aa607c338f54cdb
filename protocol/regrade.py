"""Grade recorded texts again, and say where the grades differ.

    kv-prereg regrade registrations/alpha-math500            the sealed records
    kv-prereg regrade registrations/alpha-math500 --probe    those of the development problems
    kv-prereg regrade registrations/001-mine --identity FILE    with encrypted held-out problems

Every record keeps its raw text, so a grade can be checked, or a later grader tried, without a model. Nothing
is written: a verdict stands on the grades that were recorded. Held-out problems are read after the seal only.

Exit status: 0 every grade came out as recorded; 1 some did not; 2 refused; 3 not the data or records of the
lock.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from protocol import command, tasks
from protocol.evidence import records
from protocol.evidence.registration import SEAL, Registration
from protocol.formats import runners
from protocol.formats.progress_display import phase
from protocol.formats.refusals import BadInput
from protocol.grading import Grade
from protocol.recompute.verify_grades import TRANSIENT_GRADES, Graders
from protocol.tasks import Task

CHANGE_FIELDS = ("changed", "disagreed")


class Difference(NamedTuple):
    """before, after: the recorded grade and today's, or the first grader's and the second's, with scores if any."""

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


class Options(command.Options):
    probe: bool
    identity: Path | None


def main(argv: list[str] | None = None) -> int:
    parser = command.make_parser("regrade", __doc__)
    command.add_folder(parser)
    parser.add_argument("--probe", action="store_true", help="grade the records of the development problems instead")
    command.add_identity(parser)
    return command.run(parser, argv, Options(), act)


def act(args: Options) -> int:
    study, probe = Registration(args.folder), args.probe
    if runners.find_runner(study.protocol) is not None:
        raise BadInput(runners.describe_refusal(study.folder))
    if not probe and not study.has(SEAL):
        raise BadInput(f"{study.folder}: is not sealed; pass --probe to grade its development problems")
    with phase("reading the records"):
        graded = study.probe_records if probe else study.confirm_records
    if not graded:
        raise BadInput(f"{study.folder}: has no records to grade; run probe or confirm first")
    key = None if probe else study.late_key()
    find = tasks.task_finder(study.protocol["tasks"], study.folder)
    with phase(f"grading {len(graded):,} records again"):
        result = regrade((record["body"] for record in graded), key, args.identity, find)
    values = result._asdict() | {name: [change._asdict() for change in getattr(result, name)] for name in CHANGE_FIELDS}
    if result.apart is None:
        del values["apart"]
    command.print_result(args.json, format_regrades(result), values)
    return 1 if result.changed else 0


def format_regrades(result: Regraded) -> str:
    lines = [f"{len(result.changed)} of {result.graded} lanes now have a grade other than the recorded one"]
    lines += [f"  {change.lane}: {change.before}, now {change.after}" for change in result.changed]
    if result.second:
        share = 100 * len(result.disagreed) / result.second
        lines.append(f"{len(result.disagreed)} of {result.second} ({share:.1f} %): the two graders disagree")
        if result.apart is not None:
            lines[-1] += f"; the mean distance of their scores is {result.apart}"
            return "\n".join(lines)
        kinds = Counter((change.before, change.after) for change in result.disagreed)
        lines += [f"  {number} {first}, second grader {other}" for (first, other), number in kinds.items()]
    return "\n".join(lines)


def regrade(
    bodies: Iterable[Mapping[str, Any]],
    key: str | None = None,
    identity: Path | None = None,
    find_task: Callable[[str], Task] = tasks.get,
) -> Regraded:
    """Grade the texts of records again that have one. key, identity, find_task: as in Graders."""
    graded, changed, disagreed = 0, list[Difference](), list[Difference]()
    pairs: list[tuple[Grade, Grade]] = []
    graders = Graders(key, identity, find_task)
    for body in bodies:
        if body["state"] != "ok":
            continue
        new_grade, second_grade = graders.grade(body)
        lane, new_text, recorded_text = str(records.body_key(body)), _format_grade(new_grade), _recorded_grade(body)
        graded += 1
        if new_text != recorded_text:
            changed.append(Difference(lane, recorded_text, new_text))
        if second_grade is not None and new_grade.status not in TRANSIENT_GRADES:
            pairs.append((new_grade, second_grade))
            if _format_grade(second_grade) != new_text:
                disagreed.append(Difference(lane, new_text, _format_grade(second_grade)))
    return Regraded(graded, tuple(changed), len(pairs), tuple(disagreed), _mean_score_difference(pairs))


def _format_grade(grade: Grade) -> str:
    return grade.status if grade.score is None else f"{grade.status} {grade.score}"


def _recorded_grade(body: Mapping[str, Any]) -> str:
    return " ".join(body[name] for name in ("grade", "score") if name in body)


def _mean_score_difference(pairs: list[tuple[Grade, Grade]]) -> str | None:
    """Return the mean difference over the lanes that both graders graded."""
    if not any(grade.score is not None for pair in pairs for grade in pair):
        return None
    scores = [(first.worth, second.worth) for first, second in pairs]
    differences = [abs(first - second) for first, second in scores if first is not None and second is not None]
    return f"{sum(differences, Decimal(0)) / len(differences):.6f}" if differences else None


if __name__ == "__main__":
    sys.exit(main())
