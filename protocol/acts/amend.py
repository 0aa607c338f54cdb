"""Register a changed protocol as an amendment of a locked one, and close the old ledger by it."""

from functools import partial
from pathlib import Path
from typing import NamedTuple

from protocol.evidence.audit import amendment, standing
from protocol.evidence.bytes import files
from protocol.evidence.lock import lock
from protocol.evidence.lock.lock import Lock
from protocol.evidence.refusals import AlreadyClaimed, BadInput
from protocol.evidence.run import claim
from protocol.evidence.run.registration import PROTOCOL, Registration
from protocol.plan import checks

__all__ = ["Amended", "amend"]


class Amended(NamedTuple):
    by: Lock | None  # None: the old protocol was copied, and there is nothing to lock yet
    after_claim: bool


def amend(old: Registration, new: Registration, why: str, key: Path | None) -> Amended:
    """reason: one line, as `amendment.reason` returns it; key: to sign the new lock with.

    Raises BadInput for a folder that is not beside the old one, AlreadyClaimed when it is locked or the old
    one was amended before, and as registering does.
    """
    _ = old.lock  # BadInput without one
    here, there = old.folder.resolve(), new.folder.resolve()
    if there == here or there.parent != here.parent:
        raise BadInput(
            f"{new.folder}: an amendment is a folder of its own beside the one that it amends, {old.folder}"
        )
    with claim.running(old):
        late = amendment.after_claim(old.lock, standing.seen(old))
        begun = amendment.begun(old, new.folder)
        if not begun and not new.has(PROTOCOL):
            for file in (*old.task_files, PROTOCOL):
                if not new.has(file):
                    files.create(new.folder / file, files.read(old.folder / file))
            return Amended(None, late)
        if not begun and new.has(lock.NAME):
            raise AlreadyClaimed(f"{new.folder}: is locked already and amends nothing; name another folder")
        if begun and new.entered:
            made = new.lock
        else:
            # Imports torch, which no check above needs.
            from protocol.acts.register import register
            from protocol.locked.planned import read_protocol

            _, protocol = read_protocol(new.folder)

            made = register(
                new.folder,
                files.home(),
                amends=partial(amendment.describe, old, why),
                gateless=checks.needs_no_gate(old.registered, protocol.content()),
                key=key,
            )
        amendment.close(old, made)
    return Amended(made, late)
