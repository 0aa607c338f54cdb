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

import argparse
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from protocol import command
from protocol.evidence import claim
from protocol.evidence.audit import amendment, study_status
from protocol.evidence.registration import PROTOCOL, Registration
from protocol.formats import files
from protocol.formats.progress_display import phase
from protocol.formats.refusals import AlreadyClaimed, BadInput
from protocol.lock import lock
from protocol.lock.lock import Lock
from protocol.register import register
from protocol.witnesses import registered
from protocol.workspace import imports


class Options(argparse.Namespace):
    json: bool
    old: Path
    new: Path
    reason: str
    sign: Path | None


class AmendResult(NamedTuple):
    new_lock: Lock | None  # None: the old protocol was copied, and there is nothing to lock yet
    is_after_claim: bool


def main(argv: list[str] | None = None, *, is_typed: bool = False) -> int:
    """is_typed: see `protocol.register`."""
    parser = command.make_parser("amend", __doc__)
    parser.add_argument("old", type=Path, help="the registration to amend, e.g. registrations/001-mine")
    parser.add_argument("new", type=Path, help="a new folder next to it")
    parser.add_argument("--reason", required=True, help="why, in one sentence")
    parser.add_argument("--sign", type=Path, metavar="KEY", help="private ssh key to sign the new lock with")
    return command.run(parser, argv, Options(), partial(act, is_typed=is_typed))


def act(args: Options, is_typed: bool) -> int:
    if is_typed:
        imports.refuse_uncovered()
    old, new = Registration(args.old), Registration(args.new)
    amended = amend(old, new, amendment.clean_reason(args.reason), args.sign)
    if amended.new_lock is None:
        copied = new.folder / PROTOCOL
        line = f"edit {copied}, then run the same command again; nothing has been locked yet"
        command.print_result(args.json, line, {"copied": str(copied), "lock": None})
        return 0
    if amended.is_after_claim:
        command.print_notice(
            f"the amended study had been claimed, so the verdict of {new.folder} will be DEVIATED, whatever the "
            "rule says"
        )
    amends = amended.new_lock.content["amends"]
    with phase("asking a witness to stamp the lock"):
        text = "\n".join(
            filter(None, (format_amendment(old, new, amended.new_lock), registered.stamp_lock(new.reopen())))
        )
    command.print_result(args.json, text, {"lock": amended.new_lock.digest, "amends": amends})
    return 0


def format_amendment(old: Registration, new: Registration, locked: Lock) -> str:
    amends = locked.content["amends"]
    parts = Counter(difference["path"].partition("/")[0] for difference in amends["diff"])
    fields = [difference for difference in amends["diff"] if difference["path"].startswith("protocol/")]
    others = [f"{number} of {part}" for part, number in parts.items() if part != "protocol"]
    return "\n".join(
        [
            f"locked {new.folder} as {locked.digest}",
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


def amend(old: Registration, new: Registration, reason: str, key: Path | None) -> AmendResult:
    """reason: one line, as `amendment.reason` returns it; key: to sign the new lock with.

    Raises BadInput for a folder that is not beside the old one, AlreadyClaimed when it is locked or the old
    one was amended before, and as registering does.
    """
    _ = old.lock  # BadInput without one
    old_folder, new_folder = old.folder.resolve(), new.folder.resolve()
    if new_folder == old_folder or new_folder.parent != old_folder.parent:
        raise BadInput(
            f"{new.folder}: an amendment needs its own folder next to the one that it amends; name {old.folder}-b"
        )
    with claim.exclusive_run(old):
        is_after_claim = amendment.is_after_claim(old.lock, study_status.read_exposure(old))
        has_begun = amendment.is_unfinished(old, new.folder)
        if not has_begun and not new.has(PROTOCOL):
            for file in (*old.task_files, PROTOCOL):
                if not new.has(file):
                    files.create(new.folder / file, files.read(old.folder / file))
            return AmendResult(None, is_after_claim)
        if not has_begun and new.has(lock.NAME):
            raise AlreadyClaimed(f"{new.folder}: is locked already and is not an amendment; name another folder")
        if has_begun and new.has_entries:
            amending_lock = new.lock
        else:
            amending_lock = register(
                new.folder, files.cache_home(), amends=partial(amendment.describe_amendment, old, reason), key=key
            )
        amendment.close_ledger(old, amending_lock)
    return AmendResult(amending_lock, is_after_claim)


if __name__ == "__main__":
    sys.exit(main(is_typed=True))
