"""Find the registrations that a set of changed files belongs to, and those that a change removes."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from protocol.evidence.findings import CannotTell
from protocol.evidence.lock import lock
from protocol.evidence.outside.repository import Change, Repository
from protocol.evidence.refusals import BadInput
from protocol.evidence.run import ledger, records
from protocol.evidence.run.registration import PROTOCOL, Registration

__all__ = ["Changed", "of", "since"]


class Changed(NamedTuple):
    registered: list[Path]  # folders to audit
    written: list[Path]  # folders with a protocol that is not locked yet: nothing to audit
    gone: list[str]  # folders that were locked before the change and are gone after it


def of(names: Iterable[Path]) -> Changed:
    """Return the registrations that contain these files, each once; for a deleted file, the folder that
    contained it.

    Every folder above a file counts if something is registered in it, so that no registration hides in
    another.
    """
    above = {place for name in names for place in (name, *name.parents) if place.is_dir()}
    registered = sorted(place for place in above if _written(place))
    written = sorted(above.difference(registered))
    return Changed(registered, [place for place in written if (place / PROTOCOL).is_file()], [])


def since(commit: str) -> Changed:
    """Return the registrations that HEAD changed since it branched from `commit`, in the current repository.

    A registration that continues in another folder, with its lock and all lines of its ledger, was moved and
    does not count as removed. Raises BadInput where git fails.
    """
    if not commit:  # git would compare HEAD with itself
        raise BadInput("--since: names no commit; write the one to compare with, such as origin/main")
    try:
        repository = Repository(Path.cwd())
        changes = repository.changed(commit)
        gone = _gone(repository, commit, changes)
    except CannotTell as why:
        raise BadInput(
            f"--since {commit}: {why}; a shallow clone lacks it: fetch the whole history"
        ) from None
    paths = (Path(os.path.relpath(repository.root / change.path)) for change in changes)
    return of(paths)._replace(gone=gone)


def _gone(repository: Repository, commit: str, changes: Sequence[Change]) -> list[str]:
    """Return the folders that lost their lock. Other programs write lock.json too, but no ledger beside it.
    """
    locks = [change for change in changes if PurePosixPath(change.path).name == lock.NAME]
    lost = [change for change in locks if not change.new]
    before = _ledgers(repository, commit, lost)
    now = _ledgers(repository, "HEAD", [change for change in locks if change.new])
    kept = {(change.new, folder): lines for (change, folder), lines in now.items()}
    return [
        folder
        for (change, folder), lines in before.items()
        if not any(new == change.old and more.startswith(lines) for (new, _), more in kept.items())
    ]


def _ledgers(repository: Repository, commit: str, locks: Sequence[Change]) -> dict[tuple[Change, str], bytes]:
    """Return the contents of the ledgers beside these locks at `commit`, by lock and folder."""
    folders = [PurePosixPath(change.path).parent.as_posix() for change in locks]
    found = repository.objects(f"{commit}:{folder}/{ledger.NAME}" for folder in folders)
    beside = zip(locks, folders, found, strict=True)
    return {(change, folder): one.data for change, folder, one in beside if one}


def _written(place: Path) -> bool:
    """Whether a folder contains a document of a registration; any folder may be named records or probe."""
    return bool({*Registration(place).traces()}.difference(records.FOLDERS.values()))
