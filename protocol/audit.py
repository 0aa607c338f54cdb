"""Check a registration from its files alone: offline, without torch, on any machine.

    python -m protocol.audit registrations/quickstart

Recomputes every digest, the ledger's chain, the seal and the accounting of cells, compares with git's history
and with outside witnesses where there are any, unpacks the locked source tree and lets it derive the verdict
again from the raw records. Each item is held, failed, cannot tell or not run. Deriving the verdict runs the
locked `analysis` package in a subprocess: read sources.zip first if you do not trust its author.

Exit status: 0 all held (what lies outside the folder may be missing, and is named); 2 not a registration; 3
something failed or could not be told; 5 with --require-anchor, a document of the study is not anchored.
"""

import sys
from pathlib import Path

from protocol import command
from protocol.acts import audit
from protocol.acts.audit import Audited
from protocol.evidence.outside import anchors
from protocol.evidence.run.registration import Registration


class Options(command.Trust):
    signers: Path | None


def main(argv: list[str] | None = None) -> int:
    parser = command.parser("protocol.audit", __doc__)
    command.folder(parser)
    parser.add_argument(
        "--signers", type=Path, metavar="FILE", help="who may sign: ssh's list of allowed signers"
    )
    command.trust(parser)
    args = parser.parse_args(argv, namespace=Options())
    return command.answer(args.json, lambda: act(args))


def act(args: Options) -> int:
    study = Registration(args.folder)
    audited = audit.audit(study, command.trusted(args), args.signers, args.headers)
    word = anchors.word(audited.anchored)
    status = 3 if audited.broken or audited.gaps else 0
    lines = [f"{each.status:<12} {each.item}: {each.detail}".rstrip(": ") for each in audited.findings]
    given = f"{audited.verdict}, " if audited.verdict else ""
    lines += ["", f"{study.folder}: {summary(audited)}; {given}{word}"]
    values = {
        "held": not status,
        "findings": [each._asdict() for each in audited.findings],
        "verdict": audited.verdict,
        "anchors": word,
    }
    command.say(args.json, "\n".join(lines), values)
    if args.require_anchor and not status:
        anchors.require(audited.anchored, anchors.existing(study))
    return status


def summary(audited: Audited) -> str:
    if audited.broken:
        return f"AUDIT FAILED ({', '.join(audited.broken)})"
    if audited.gaps:
        return f"could not be told: {', '.join(audited.gaps)}"
    outside = [each.item for each in audited.findings if each.status == "cannot tell"]
    return "everything held" + (f", but for what is not here: {', '.join(outside)}" if outside else "")


if __name__ == "__main__":
    sys.exit(main())
