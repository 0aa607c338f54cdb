"""Register a changed protocol as an amendment of a locked one, which is kept.

    kv-prereg amend registrations/001-mine registrations/001-mine-b --reason "A budget was mistyped."

The new folder stands beside the old one. Without a protocol.toml in it, it gets a copy of the old one to
edit and nothing is locked. With one, it is registered like any other; its lock lists everything that
differs, the reason and what had been seen, and the old ledger is closed. Cut off in between, the same
command completes it. Before the claim this is a new version; after the claim the amendment may run and its
verdict is DEVIATED.

Exit status: 0 locked, or copied; 2 bad input; 3 the files contradict each other, or weights are corrupt; 4
it was amended before, or is being run, or the new folder is locked.
"""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

from protocol import command
from protocol.acts import amend
from protocol.evidence.audit import amendment
from protocol.evidence.registration import PROTOCOL, Registration
from protocol.lock.lock import Lock
from protocol.workspace import imports


def main(argv: list[str] | None = None, *, is_typed: bool = False) -> int:
    """is_typed: see `protocol.register`."""
    parser = command.make_parser("protocol.amend", __doc__)
    parser.add_argument("old", type=Path, help="the registration to amend, e.g. registrations/001-mine")
    parser.add_argument("new", type=Path, help="a folder beside it")
    parser.add_argument("--reason", required=True, help="why, in one sentence")
    parser.add_argument("--sign", type=Path, metavar="KEY", help="private ssh key to sign the new lock with")
    args = parser.parse_args(argv)
    old, new = Registration(args.old), Registration(args.new)
    return command.execute(args.json, lambda: act(old, new, args.reason, args.sign, args.json, is_typed))


def act(old: Registration, new: Registration, reason: str, key: Path | None, as_json: bool, is_typed: bool) -> int:
    if is_typed:
        imports.refuse_uncovered()
    amended = amend.amend(old, new, amendment.clean_reason(reason), key)
    if amended.new_lock is None:
        copied = new.folder / PROTOCOL
        line = f"edit {copied}, then run the same command again; nothing is locked yet"
        command.print_result(as_json, line, {"copied": str(copied), "lock": None})
        return 0
    if amended.is_after_claim:
        command.print_notice(f"after a claim: whatever the rule says, the verdict of {new.folder} will be DEVIATED")
    amends = amended.new_lock.content["amends"]
    command.print_result(
        as_json, format_amendment(old, new, amended.new_lock), {"lock": amended.new_lock.digest, "amends": amends}
    )
    return 0


def format_amendment(old: Registration, new: Registration, lock: Lock) -> str:
    amends = lock.content["amends"]
    parts = Counter(difference["path"].partition("/")[0] for difference in amends["diff"])
    fields = [difference for difference in amends["diff"] if difference["path"].startswith("protocol/")]
    others = [f"{number} of {part}" for part, number in parts.items() if part != "protocol"]
    return "\n".join(
        [
            f"locked {new.folder} as {lock.digest}",
            f"amends {old.folder}: {amends['reason']}",
            *(
                f"  {difference['path']}: {format_side(difference, 'was')} -> {format_side(difference, 'is')}"
                for difference in fields
            ),
            *([f"  differing besides: {', '.join(others)}"] if others else []),
            f"next: kv-prereg probe {new.folder}, {'then' if new.has_sweep else 'or'} kv-prereg confirm {new.folder}",
        ]
    )


def format_side(difference: dict[str, Any], side: str) -> str:
    return repr(difference[side]) if side in difference else "(not there)"


if __name__ == "__main__":
    sys.exit(main(is_typed=True))
