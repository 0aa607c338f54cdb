"""Check a registration from its files alone: offline, without torch, on any machine.

    kv-prereg audit registrations/quickstart
    kv-prereg audit registrations/quickstart --replay 20     20 lanes are decoded again
    kv-prereg audit registrations/quickstart --run-locked    the author's judge too, contained

Asks three things. Does it follow from what was registered: the lock is derived again from protocol.toml and
the frozen splits, and the judge that is installed here judges the records. Is it consistent with itself:
digests, chains, cells, every relation between the fields of a record, every grade against its text. What do
git and outside witnesses say. Nothing that the author wrote is run, unless --run-locked asks for it.

Exit status: 0 all held (what lies outside the folder may be missing, and is named); 2 not a registration; 3
something failed; 5 with --require-anchor, a document of the study is not anchored; 6 the study is unfinished,
and what is there holds; 7 something could not be told here.
"""

from __future__ import annotations

import secrets
import sys
from pathlib import Path

from protocol import command
from protocol.evidence.external import anchors
from protocol.evidence.registration import Registration
from protocol.formats import terms
from protocol.formats.progress_display import phase
from protocol.formats.refusals import BadInput
from protocol.messages import audit_page as texts

# Words of the output that the help explains.
TERMS = ("held", "failed", "unfinished", "cannot tell", "not run", "INVALID", "ANCHORED", "UNANCHORED")


class Options(command.Trust):
    signers: Path | None
    identity: Path | None
    run_locked: bool
    replay: int
    nonce: str
    draw: bool
    details: bool


def main(argv: list[str] | None = None) -> int:
    parser = command.make_parser("protocol.audit", __doc__)
    parser.epilog = terms.format_terms(*TERMS)
    command.add_folder(parser)
    parser.add_argument("--details", action="store_true", help="one line for each item")
    parser.add_argument("--replay", type=int, default=0, metavar="N", help="decode N lanes again, drawn by --nonce")
    parser.add_argument("--nonce", default="", metavar="HEX", help="which lanes (default: drawn, and printed)")
    parser.add_argument("--draw", action="store_true", help="make the drawings again, and compare them")
    parser.add_argument(
        "--run-locked",
        action="store_true",
        help="run the author's judge as well, contained, when all else held",
    )
    parser.add_argument("--signers", type=Path, metavar="FILE", help="who may sign: ssh's list of allowed signers")
    command.add_identity(parser)
    command.add_trust(parser)
    args = parser.parse_args(argv, namespace=Options())
    return command.execute(args.json, lambda: act(args))


def act(args: Options) -> int:
    study = Registration(args.folder)
    if not study.written_files():
        raise BadInput(f"{study.folder}: no registration is here; name the folder of one")
    if args.nonce and not args.replay:
        raise BadInput("--nonce: chooses among the lanes that are decoded again; add --replay N")
    # Imported late: scipy is slow, and --help and the refusals above do not need it.
    with phase("loading the libraries that judge"):
        from protocol.acts import audit
    options = audit.AuditOptions(
        signers=args.signers,
        headers=args.headers,
        identity=args.identity,
        run_locked=args.run_locked,
        replay=args.replay,
        nonce=args.nonce or secrets.token_hex(16),
        redraw=args.draw,
    )
    audited = audit.audit(study, command.trusted_witnesses(args), options)
    anchoring = anchors.format_anchoring(audited.proofs)
    if args.details:
        lines = texts.format_details(audited.findings)
    else:
        lines = texts.format_page(study, audited.findings, anchored=anchoring != "UNANCHORED")
    verdict_note = f"{audited.verdict_line}, " if audited.verdict_line else ""
    lines += ["", f"{study.folder}: {audit.summarize(audited)}; {verdict_note}{anchoring}"]
    values = {
        "held": audit.exit_status(audited) == 0,
        "status": audit.exit_status(audited),
        "findings": [finding._asdict() for finding in audited.findings],
        "verdict": audited.verdict,
        "anchors": anchoring,
    }
    command.print_result(args.json, "\n".join(lines), values)
    if args.require_anchor and not audit.exit_status(audited):
        anchors.require_anchors(audited.proofs, anchors.existing_documents(study))
    return audit.exit_status(audited)


if __name__ == "__main__":
    sys.exit(main())
