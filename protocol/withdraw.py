"""Withdraw a registration that gets no verdict, and say why.

    kv-prereg withdraw registrations/001-mine --reason "The task has wrong golds."

Nothing is deleted: the ledger is closed with the reason and with what had been seen by then, and nobody can
claim, probe or confirm the study any more. Withdrawing after the claim shows as that. A verdict is not
withdrawn.

Exit status: 0 withdrawn; 2 bad input; 3 the files contradict each other; 4 it has its verdict, was amended,
was withdrawn before, or is being run.
"""

import sys

from protocol import command
from protocol.evidence.audit import amendment
from protocol.evidence.registration import Registration


def main(argv: list[str] | None = None) -> int:
    parser = command.make_parser("withdraw", __doc__)
    command.add_folder(parser)
    parser.add_argument("--reason", required=True, help="why, in one sentence")
    args = parser.parse_args(argv)

    def act() -> int:
        why = amendment.clean_reason(args.reason)
        progress = amendment.withdraw(Registration(args.folder), why)
        when = "after" if progress["claim"] else "before"
        counts = f"{progress['probe']['records']} probed and {progress['records']} held-out records"
        line = f"withdrew {args.folder} {when} its claim, with {counts} seen: {why}"
        command.print_result(args.json, line, {"withdrawn": str(args.folder), "reason": why, "seen": progress})
        return 0

    return command.execute(args.json, act)


if __name__ == "__main__":
    sys.exit(main())
