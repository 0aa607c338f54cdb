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
from protocol.evidence.lock.lock import Lock
from protocol.evidence.run.registration import PROTOCOL, Registration
from protocol.locked import imports


def main(argv: list[str] | None = None, *, typed: bool = False) -> int:
    """is_typed: see `protocol.register`."""
    parser = command.parser("protocol.amend", __doc__)
    parser.add_argument("old", type=Path, help="the registration to amend, e.g. registrations/001-mine")
    parser.add_argument("new", type=Path, help="a folder beside it")
    parser.add_argument("--reason", required=True, help="why, in one sentence")
    parser.add_argument("--sign", type=Path, metavar="KEY", help="private ssh key to sign the new lock with")
    args = parser.parse_args(argv)
    old, new = Registration(args.old), Registration(args.new)
    return command.answer(args.json, lambda: act(old, new, args.reason, args.sign, args.json, typed))


def act(
    old: Registration, new: Registration, reason: str, key: Path | None, as_json: bool, typed: bool
) -> int:
    if typed:
        imports.refuse_uncovered()
    amended = amend.amend(old, new, amendment.reason(reason), key)
    if amended.by is None:
        copied = new.folder / PROTOCOL
        line = f"edit {copied}, then run the same command again; nothing is locked yet"
        command.say(as_json, line, {"copied": str(copied), "lock": None})
        return 0
    if amended.after_claim:
        command.tell(f"after a claim: whatever the rule says, the verdict of {new.folder} will be DEVIATED")
    about = amended.by.content["amends"]
    command.say(as_json, text(old, new, amended.by), {"lock": amended.by.digest, "amends": about})
    return 0


def text(old: Registration, new: Registration, made: Lock) -> str:
    about = made.content["amends"]
    parts = Counter(one["path"].partition("/")[0] for one in about["diff"])
    fields = [one for one in about["diff"] if one["path"].startswith("protocol/")]
    others = [f"{number} of {part}" for part, number in parts.items() if part != "protocol"]
    return "\n".join(
        [
            f"locked {new.folder} as {made.digest}",
            f"amends {old.folder}: {about['reason']}",
            *(f"  {one['path']}: {shown(one, 'was')} -> {shown(one, 'is')}" for one in fields),
            *([f"  differing besides: {', '.join(others)}"] if others else []),
            f"next: kv-prereg probe {new.folder}, "
            f"{'then' if new.swept else 'or'} kv-prereg confirm {new.folder}",
        ]
    )


def shown(one: dict[str, Any], side: str) -> str:
    return repr(one[side]) if side in one else "(not there)"


if __name__ == "__main__":
    sys.exit(main(typed=True))
