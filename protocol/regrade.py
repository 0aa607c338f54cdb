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
from protocol.evidence.refusals import BadInput
from protocol.evidence.run import late_randomness
from protocol.evidence.run.registration import SEAL, Registration


class Options(command.Options):
    probe: bool
    identity: Path | None


def main(argv: list[str] | None = None) -> int:
    parser = command.parser("protocol.regrade", __doc__)
    command.folder(parser)
    parser.add_argument("--probe", action="store_true", help="the records of the development problems")
    command.identity(parser)
    args = parser.parse_args(argv, namespace=Options())
    return command.answer(args.json, lambda: act(args))


def act(args: Options) -> int:
    study, probe = Registration(args.folder), args.probe
    locked = study.lock
    if not probe and not study.has(SEAL):
        raise BadInput(f"{study.folder}: is not sealed; pass --probe for the development problems")
    recorded = study.probed if probe else study.confirmed
    if not recorded:
        raise BadInput(f"{study.folder}: has no such records; run probe or confirm first")
    key = None if probe else late_randomness.key_of(locked, study.claim)
    find = tasks.finder(study.registered["tasks"], study.folder)
    done = regrade.regrade((record["body"] for record in recorded), key, args.identity, find)
    values = done._asdict() | {name: [one._asdict() for one in getattr(done, name)] for name in LISTED}
    if done.apart is None:
        del values["apart"]
    command.say(args.json, words(done), values)
    return 1 if done.changed else 0


LISTED = ("changed", "disagreed")


def words(done: Regraded) -> str:
    lines = [f"{len(done.changed)} of {done.graded} lanes grade otherwise than recorded"]
    lines += [f"  {one.lane}: {one.before}, now {one.after}" for one in done.changed]
    if done.second:
        share = 100 * len(done.disagreed) / done.second
        lines.append(f"{len(done.disagreed)} of {done.second} ({share:.1f} %): the two graders disagree")
        if done.apart is not None:
            lines[-1] += f"; their scores lie {done.apart} apart, mean of all"
            return "\n".join(lines)
        kinds = Counter((one.before, one.after) for one in done.disagreed)
        lines += [f"  {number} {first}, second grader {other}" for (first, other), number in kinds.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
