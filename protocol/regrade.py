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
from pathlib import Path

from protocol import command, tasks
from protocol.acts import regrade
from protocol.acts.regrade import Regraded
from protocol.evidence import late_randomness
from protocol.evidence.registration import SEAL, Registration
from protocol.formats.progress_display import phase
from protocol.formats.refusals import BadInput


class Options(command.Options):
    probe: bool
    identity: Path | None


def main(argv: list[str] | None = None) -> int:
    parser = command.make_parser("protocol.regrade", __doc__)
    command.add_folder(parser)
    parser.add_argument("--probe", action="store_true", help="the records of the development problems")
    command.add_identity(parser)
    args = parser.parse_args(argv, namespace=Options())
    return command.execute(args.json, lambda: act(args))


def act(args: Options) -> int:
    study, probe = Registration(args.folder), args.probe
    locked = study.lock
    if not probe and not study.has(SEAL):
        raise BadInput(f"{study.folder}: is not sealed; pass --probe for the development problems")
    with phase("reading the records"):
        records = study.probe_records if probe else study.confirm_records
    if not records:
        raise BadInput(f"{study.folder}: has no such records; run probe or confirm first")
    key = None if probe else late_randomness.claim_key(locked, study.claim)
    find = tasks.task_finder(study.protocol["tasks"], study.folder)
    with phase(f"grading {len(records):,} records again"):
        result = regrade.regrade((record["body"] for record in records), key, args.identity, find)
    values = result._asdict() | {name: [change._asdict() for change in getattr(result, name)] for name in CHANGE_FIELDS}
    if result.apart is None:
        del values["apart"]
    command.print_result(args.json, format_regrades(result), values)
    return 1 if result.changed else 0


CHANGE_FIELDS = ("changed", "disagreed")


def format_regrades(result: Regraded) -> str:
    lines = [f"{len(result.changed)} of {result.graded} lanes grade otherwise than recorded"]
    lines += [f"  {change.lane}: {change.before}, now {change.after}" for change in result.changed]
    if result.second:
        share = 100 * len(result.disagreed) / result.second
        lines.append(f"{len(result.disagreed)} of {result.second} ({share:.1f} %): the two graders disagree")
        if result.apart is not None:
            lines[-1] += f"; their scores lie {result.apart} apart, mean of all"
            return "\n".join(lines)
        kinds = Counter((change.before, change.after) for change in result.disagreed)
        lines += [f"  {number} {first}, second grader {other}" for (first, other), number in kinds.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
