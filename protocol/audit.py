"""Check a registration from its files alone: offline, without torch, on any machine.

    python -m protocol.audit registrations/quickstart

Recomputes every digest, the ledger's chain, the seal and the accounting of cells, unpacks the locked source
tree and lets it derive the verdict again from the raw records. Each item is held, failed or cannot tell.
Deriving the verdict runs the locked `analysis` package in a subprocess: read sources.zip first if you do not
trust its author.

Exit status: 0 all held; 2 not a registration; 3 something failed or could not be told.
"""

import sys

from protocol import command
from protocol.evidence import audit


def main(argv: list[str] | None = None) -> int:
    parser = command.parser("protocol.audit", __doc__)
    command.folder(parser)
    args = parser.parse_args(argv)

    def act() -> int:
        findings = audit.audit(args.folder)
        held = all(one.status in ("held", "not run") for one in findings)
        lines = [f"{one.status:<12} {one.item}: {one.detail}".rstrip(": ") for one in findings]
        lines += ["", f"{args.folder}: " + ("everything held (UNANCHORED)" if held else "AUDIT FAILED")]
        command.say(
            args.json, "\n".join(lines), {"held": held, "findings": [one._asdict() for one in findings]}
        )
        return 0 if held else 3

    return command.answer(args.json, act)


if __name__ == "__main__":
    sys.exit(main())
