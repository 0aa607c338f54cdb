"""Register a changed protocol as an amendment of a locked one, and close the old ledger by it."""

from functools import partial
from pathlib import Path
from typing import NamedTuple

from protocol.evidence import claim
from protocol.evidence.audit import amendment, study_status
from protocol.evidence.registration import PROTOCOL, Registration
from protocol.formats import files
from protocol.formats.refusals import AlreadyClaimed, BadInput
from protocol.lock import lock
from protocol.lock.lock import Lock
from protocol.plan import checks

__all__ = ["AmendResult", "amend"]


class AmendResult(NamedTuple):
    new_lock: Lock | None  # None: the old protocol was copied, and there is nothing to lock yet
    is_after_claim: bool


def amend(old: Registration, new: Registration, reason: str, key: Path | None) -> AmendResult:
    """reason: one line, as `amendment.reason` returns it; key: to sign the new lock with.

    Raises BadInput for a folder that is not beside the old one, AlreadyClaimed when it is locked or the old
    one was amended before, and as registering does.
    """
    _ = old.lock  # BadInput without one
    old_folder, new_folder = old.folder.resolve(), new.folder.resolve()
    if new_folder == old_folder or new_folder.parent != old_folder.parent:
        raise BadInput(f"{new.folder}: an amendment is a folder of its own beside the one that it amends, {old.folder}")
    with claim.exclusive_run(old):
        is_after_claim = amendment.is_after_claim(old.lock, study_status.read_exposure(old))
        has_begun = amendment.is_unfinished(old, new.folder)
        if not has_begun and not new.has(PROTOCOL):
            for file in (*old.task_files, PROTOCOL):
                if not new.has(file):
                    files.create(new.folder / file, files.read(old.folder / file))
            return AmendResult(None, is_after_claim)
        if not has_begun and new.has(lock.NAME):
            raise AlreadyClaimed(f"{new.folder}: is locked already and amends nothing; name another folder")
        if has_begun and new.has_entries:
            amending_lock = new.lock
        else:
            # Imports torch, which no check above needs.
            from protocol.acts.register import register
            from protocol.workspace.planned_study import read_protocol

            _, protocol = read_protocol(new.folder)

            amending_lock = register(
                new.folder,
                files.cache_home(),
                amends=partial(amendment.describe_amendment, old, reason),
                predates_gates=checks.needs_no_gate(old.protocol, protocol.content()),
                key=key,
            )
        amendment.close_ledger(old, amending_lock)
    return AmendResult(amending_lock, is_after_claim)
