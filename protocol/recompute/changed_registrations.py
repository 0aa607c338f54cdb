"""Find the registrations that a set of changed files belongs to, and those that a change removes."""

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from protocol.evidence import ledger
from protocol.evidence.external.git_repository import Change, Repository
from protocol.evidence.registration import PROTOCOL, Registration
from protocol.formats import escape, files
from protocol.formats.findings import CannotTell
from protocol.formats.refusals import BadInput
from protocol.lock import bundle, lock


class ChangedRegistrations(NamedTuple):
    registered: list[Path]  # folders to audit
    unlocked: list[Path]  # folders with a protocol that is not locked yet: nothing to audit
    removed: list[str]  # folders that were locked before the change and are gone after it


def find_registrations(paths: Collection[Path]) -> ChangedRegistrations:
    """Return the registrations that contain these files, each once; for a deleted file, the folder that contained it.

    Every folder above a file counts if something is registered in it, so that no registration hides in another. With
    an archive of sources that studies share, all of them count.
    """
    folders = {folder for name in paths for folder in (name, *name.parents) if folder.is_dir()}
    folders |= {folder for name in paths if name.name == bundle.SHARED for folder in _find_sharing(name.parent)}
    if broken := [folder for folder in folders if not escape.is_one_line(folder.name)]:
        raise BadInput(f"{min(broken)!a}: has a line break in its name; rename the folder")
    registered = sorted(folder for folder in folders if Registration(folder).has_documents())
    unlocked = sorted(folders.difference(registered))
    return ChangedRegistrations(registered, [folder for folder in unlocked if (folder / PROTOCOL).is_file()], [])


def _find_sharing(shelf: Path) -> Iterator[Path]:
    """Yield the locked studies of a folder that have no sources of their own."""
    for path in shelf.glob(f"*/{lock.NAME}"):
        if not files.exists(path.parent / bundle.NAME):
            yield path.parent


def changed_since(commit: str) -> ChangedRegistrations:
    """Return the registrations that HEAD changed since it branched from `commit`, in the current repository.

    A registration that continues in another folder, with its lock and all lines of its ledger, was moved and
    does not count as removed. Raises BadInput where git fails.
    """
    if not commit:  # git would compare HEAD with itself
        raise BadInput("--since: does not name a commit; write the commit to compare with, such as origin/main")
    try:
        repository = Repository(Path.cwd())
        changes = repository.changes_since(commit)
        removed = _removed_folders(repository, commit, changes)
    except CannotTell as problem:
        raise BadInput(f"--since {commit}: {problem}; a shallow clone lacks it: fetch the whole history") from None
    paths = [Path(os.path.relpath(repository.root / change.path)) for change in changes]
    return find_registrations(paths)._replace(removed=removed)


def _removed_folders(repository: Repository, commit: str, changes: Sequence[Change]) -> list[str]:
    """Return the folders that lost their lock. Other programs write lock.json too, but no ledger beside it."""
    locks = [change for change in changes if PurePosixPath(change.path).name == lock.NAME]
    removed_locks = [change for change in locks if not change.new]
    old_ledgers = _read_ledgers(repository, commit, removed_locks)
    new_ledgers = _read_ledgers(repository, "HEAD", [change for change in locks if change.new])
    remaining = {(change.new, folder): lines for (change, folder), lines in new_ledgers.items()}
    return [
        folder
        for (change, folder), lines in old_ledgers.items()
        if not any(new == change.old and new_lines.startswith(lines) for (new, _), new_lines in remaining.items())
    ]


def _read_ledgers(repository: Repository, commit: str, locks: Sequence[Change]) -> dict[tuple[Change, str], bytes]:
    """Return the contents of the ledgers beside these locks at `commit`, by lock and folder."""
    folders = [PurePosixPath(change.path).parent.as_posix() for change in locks]
    objects = repository.objects(f"{commit}:{folder}/{ledger.NAME}" for folder in folders)
    rows = zip(locks, folders, objects, strict=True)
    return {(change, folder): ledger_object.data for change, folder, ledger_object in rows if ledger_object}
