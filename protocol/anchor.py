"""Have outside witnesses time-stamp a registration, and check their proofs.

    kv-prereg anchor registrations/quickstart                       what the proofs there show
    kv-prereg anchor registrations/quickstart lock --witness ots    OpenTimestamps (Bitcoin)
    kv-prereg anchor registrations/quickstart --upgrade             its block, some hours later
    kv-prereg anchor registrations/quickstart --witness rfc3161 --tsa URL --ca FILE
    kv-prereg anchor registrations/quickstart --witness git --remote URL
    kv-prereg anchor registrations/quickstart --witness sigstore    prints what to run: signing wants your login

Each witness stamps the documents named (lock, claim, seal, verdict; without a name all that exist) that it has not
stamped yet; the proofs are kept in anchors/. Then every proof is checked. A proof is checked against what you name
as trusted: certificates (--ca), a git remote (--remote), the logs of sigstore (--sigstore-root, or those that the
installed library trusts); headers of Bitcoin blocks (--headers, or anchors/headers/<height>.hex) are checked by
their proof of work.

Exit status: 0 no proof fails; 2 bad input, or a witness cannot be reached; 3 a proof does not
verify; 5 with --require-anchor, a document has no valid proof.
"""

import argparse
import sys
from collections.abc import Iterable

from protocol import command
from protocol.evidence.external import anchors
from protocol.evidence.registration import Registration
from protocol.formats.progress_display import phase
from protocol.formats.refusals import BadInput
from protocol.formats.suggestions import unknown_message
from protocol.witnesses import Authority, GitRemote, OpenTimestamps, SigstoreLog, stamping
from protocol.witnesses.ots import CALENDARS


class Options(command.Trust):
    documents: list[str]
    witness: list[str]
    tsa: str | None
    calendar: list[str] | None
    upgrade: bool


def main(argv: list[str] | None = None) -> int:
    args = _make_parser().parse_args(argv, namespace=Options())

    def act() -> int:
        study = Registration(args.folder)
        _ = study.lock  # raises for a folder that is no registration
        trusted = command.make_witnesses(study, args)
        documents = select_documents(study, args.documents)
        calendars = OpenTimestamps(calendars=tuple(args.calendar or CALENDARS))
        witnesses_by_name: dict[str, anchors.Witness] = {
            "ots": calendars,
            "rfc3161": Authority(args.tsa, args.ca),
            "git": GitRemote(args.remote, args.branch),
            "sigstore": SigstoreLog(study, args.sigstore_root),
        }
        if args.upgrade:
            for document in documents:
                if stamping.has_proof(study, document, calendars):
                    with phase(f"asking for the block of {document}"):
                        stamping.upgrade(study, document, calendars)
        for witness in (witnesses_by_name[name] for name in args.witness):
            for document in documents:
                if not stamping.has_proof(study, document, witness):
                    with phase(f"asking a witness to stamp {document}"):
                        stamping.stamp(study, document, witness)
        with phase("checking the proofs"):
            proofs = anchors.verify_anchors(study, trusted)
        if args.require_anchor:
            anchors.require_anchors(proofs, documents)
        has_failed = any(proof.status == "failed" for proof in proofs)
        anchoring = anchors.format_anchoring(proofs)
        text = "\n".join([*(proof.format_line() for proof in proofs), anchoring])
        command.print_result(args.json, text, {"anchors": [proof._asdict() for proof in proofs], "word": anchoring})
        return 3 if has_failed else 0

    return command.execute(args.json, act)


def select_documents(study: Registration, names: Iterable[str]) -> list[str]:
    """Return the documents in `names`, in the order of their creation; without names all that exist."""
    present, wanted = anchors.existing_documents(study), set(names)
    for name in wanted:
        if name not in anchors.DOCUMENTS:
            raise BadInput(unknown_message("document", name, anchors.DOCUMENTS))
        if name not in present:
            raise BadInput(f"{study.folder} has no {anchors.DOCUMENTS[name]} yet")
    return [name for name in present if name in wanted or not wanted]


def _make_parser() -> argparse.ArgumentParser:
    parser = command.make_parser("anchor", __doc__)
    command.add_folder(parser)
    parser.add_argument("documents", nargs="*", metavar="document", help="lock, claim, seal or verdict")
    parser.add_argument(
        "--witness",
        action="append",
        default=[],
        choices=["ots", "rfc3161", "git", "sigstore"],
        help="the kind of witness that stamps the document",
    )
    parser.add_argument(
        "--calendar", action="append", metavar="URL", help="the calendar server to ask; may be repeated"
    )
    parser.add_argument("--tsa", metavar="URL", help="the time-stamping authority to ask")
    parser.add_argument(
        "--upgrade", action="store_true", help="complete pending ots proofs with the blocks that now contain them"
    )
    command.add_trust(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
