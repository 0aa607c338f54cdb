"""Register a changed protocol as an amendment of a locked one, which is kept.

    python -m protocol.amend registrations/001-mine registrations/001-mine-b --reason "A budget was mistyped."

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
from functools import partial
from pathlib import Path
from typing import Any

from protocol import command
from protocol.evidence.audit import amendment, standing
from protocol.evidence.audit.standing import PROTOCOL
from protocol.evidence.bytes import files
from protocol.evidence.lock import lock
from protocol.evidence.lock.lock import Lock
from protocol.evidence.refusals import AlreadyClaimed, BadInput
from protocol.evidence.run import claim, ledger, selection


def main(argv: list[str] | None = None) -> int:
    parser = command.parser("protocol.amend", __doc__)
    parser.add_argument("old", type=Path, help="the registration to amend, e.g. registrations/001-mine")
    parser.add_argument("new", type=Path, help="a folder beside it")
    parser.add_argument("--reason", required=True, help="why, in one sentence")
    parser.add_argument("--sign", type=Path, metavar="KEY", help="private ssh key to sign the new lock with")
    args = parser.parse_args(argv)
    return command.answer(args.json, lambda: act(args.old, args.new, args.reason, args.sign, args.json))


def act(old: Path, new: Path, reason: str, key: Path | None, as_json: bool) -> int:
    why = amendment.reason(reason)
    amended = lock.read(old)
    if new.resolve() == old.resolve() or new.resolve().parent != old.resolve().parent:
        raise BadInput(f"{new}: an amendment is a folder of its own beside the one that it amends, {old}")
    with claim.running(old):
        seen = standing.seen(old)
        begun = amendment.begun(old, amended, new)
        if not begun and not (new / PROTOCOL).exists():
            files.create(new / PROTOCOL, (old / PROTOCOL).read_bytes())
            line = f"edit {new / PROTOCOL}, then run the same command again; nothing is locked yet"
            command.say(as_json, line, {"copied": str(new / PROTOCOL), "lock": None})
            return 0
        if amendment.after_claim(amended, seen):
            print(
                f"after a claim: whatever the rule says, the verdict of {new} will be DEVIATED",
                file=sys.stderr,
            )
        if not begun and (new / lock.NAME).exists():
            raise AlreadyClaimed(f"{new}: is locked already and amends nothing; name another folder")
        made = (
            lock.read(new)
            if begun and (new / ledger.NAME).exists()
            else registered(old, amended, new, why, key)
        )
        amendment.close(old, made)
    about = made.content["amends"]
    command.say(as_json, text(old, new, made), {"lock": made.digest, "amends": about})
    return 0


def registered(old: Path, amended: Lock, new: Path, why: str, key: Path | None) -> Lock:
    from protocol.acts.register import register  # with torch, which --help and every refusal above do without

    return register(new, files.home(), amends=partial(amendment.describe, old, amended, why), key=key)


def text(old: Path, new: Path, made: Lock) -> str:
    about = made.content["amends"]
    parts = Counter(one["path"].partition("/")[0] for one in about["diff"])
    fields = [one for one in about["diff"] if one["path"].startswith("protocol/")]
    others = [f"{number} of {part}" for part, number in parts.items() if part != "protocol"]
    return "\n".join(
        [
            f"locked {new} as {made.digest}",
            f"amends {old}: {about['reason']}",
            *(f"  {one['path']}: {shown(one, 'was')} -> {shown(one, 'is')}" for one in fields),
            *([f"  differing besides: {', '.join(others)}"] if others else []),
            f"next: python -m protocol.probe {new}, "
            f"{'then' if selection.swept(made) else 'or'} python -m protocol.confirm {new}",
        ]
    )


def shown(one: dict[str, Any], side: str) -> str:
    return repr(one[side]) if side in one else "(not there)"


if __name__ == "__main__":
    sys.exit(main())
