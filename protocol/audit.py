"""Check a registration from its files alone: offline, without torch, on any machine.

    python -m protocol.audit registrations/quickstart

Recomputes every digest, the ledger's chain, the seal and the accounting of cells, compares with git's history
and with outside witnesses where there are any, unpacks the locked source tree and lets it derive the verdict
again from the raw records. Each item is held, failed, cannot tell or not run. Deriving the verdict runs the
locked `analysis` package in a subprocess: read sources.zip first if you do not trust its author.

Exit status: 0 all held (what lies outside the folder may be missing, and is named); 2 not a registration; 3
something failed or could not be told; 5 with --require-anchor, a document of the study is not anchored.
"""

import argparse
import sys
from pathlib import Path

from protocol import command, witnesses
from protocol.evidence import findings
from protocol.evidence.audit import auditing, standing
from protocol.evidence.findings import Finding
from protocol.evidence.outside import anchors
from protocol.evidence.refusals import BadInput, Refusal
from protocol.evidence.run import verdict
from protocol.witnesses import Block


def main(argv: list[str] | None = None) -> int:
    parser = command.parser("protocol.audit", __doc__)
    command.folder(parser)
    parser.add_argument(
        "--signers", type=Path, metavar="FILE", help="who may sign: ssh's list of allowed signers"
    )
    command.trust(parser)
    args = parser.parse_args(argv)
    return command.answer(args.json, lambda: act(args))


def act(args: argparse.Namespace) -> int:
    folder = args.folder
    if not standing.traces(folder):
        raise BadInput(f"{folder}: no registration is here; name the folder of one")
    if args.signers and not args.signers.is_file():
        raise BadInput(f"--signers {args.signers}: no such file; see ALLOWED SIGNERS in man ssh-keygen")
    anchored = anchors.verified(folder, command.trusted(args))
    found = auditing.audit(
        folder, signers=args.signers, anchored=anchored, block=lambda: block(folder, args.headers)
    )
    broken, gaps = auditing.failed(found), auditing.untold(found)
    word = anchors.word(anchored)
    status = 3 if broken or gaps else 0
    lines = [f"{one.status:<12} {one.item}: {one.detail}".rstrip(": ") for one in found]
    lines += ["", f"{folder}: {summary(found)}; {judged(folder, broken)}{word}"]
    values = {
        "held": not status,
        "findings": [one._asdict() for one in found],
        "verdict": "INVALID" if broken else said(folder),
        "anchors": word,
    }
    command.say(args.json, "\n".join(lines), values)
    if args.require_anchor and not status:
        anchors.require(anchored, anchors.existing(folder))
    return status


def summary(found: list[Finding]) -> str:
    if broken := auditing.failed(found):
        return f"AUDIT FAILED ({', '.join(broken)})"
    if gaps := auditing.untold(found):
        return f"could not be told: {', '.join(gaps)}"
    outside = [one.item for one in found if one.status == "cannot tell"]
    return "everything held" + (f", but for what is not here: {', '.join(outside)}" if outside else "")


def judged(folder: Path, broken: list[str]) -> str:
    """The verdict as it stands after this audit, ready to be followed by who witnesses it."""
    word = "INVALID" if broken else said(folder)
    return f"{word}, " if word else ""


def said(folder: Path) -> str | None:
    """What the verdict of the study says; None without one that can be read."""
    try:
        return verdict.word(verdict.read(folder))
    except Refusal:
        return None


def block(folder: Path, headers: Path | None) -> Block:
    """The block of the lock's proof, for an audit: what is not proven cannot be told."""
    try:
        return witnesses.block(folder, headers)
    except (anchors.Unproven, BadInput) as unproven:
        raise findings.CannotTell(str(unproven)) from None


if __name__ == "__main__":
    sys.exit(main())
