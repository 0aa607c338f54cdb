"""Find registrations that git has and no folder here: nothing that was locked disappears unnoticed."""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from protocol.evidence.external.git_repository import Repository
from protocol.formats import files
from protocol.formats.findings import CannotTell
from protocol.formats.refusals import Tampered
from protocol.lock import lock


class MissingRegistrations(NamedTuple):
    """Registrations that were committed on any branch and whose lock no folder here has."""

    names: list[str]
    is_complete: bool  # False without a repository and in a shallow clone, where more may be missing


def find_missing(registrations: Path) -> MissingRegistrations:
    """Return the registrations that were committed in this folder on any branch and are missing now.

    A registration is identified by the bytes of its lock: a renamed one is present, one that was locked again
    under its old name is missing.
    """
    try:
        repository = Repository(registrations)
        present_locks = {repository.blob_id(data) for data in _read_locks(registrations)}
        folder_trees = repository.trees(f"{commit}:{repository.prefix}" for commit in repository.commits("--all"))
        entries = sorted({entry for tree in folder_trees if tree for entry in tree.items()})
        study_trees = repository.trees(tree_id for _, tree_id in entries)
    except CannotTell:
        return MissingRegistrations([], False)
    is_complete = not (repository.is_shallow or repository.is_partial)
    locks = {
        (name, (study_tree or {}).get(lock.NAME)) for (name, _), study_tree in zip(entries, study_trees, strict=True)
    }
    return MissingRegistrations(
        sorted({name for name, study_tree in locks if study_tree not in {None, *present_locks}}), is_complete
    )


def _read_locks(registrations: Path) -> list[bytes]:
    """Return the lock of every registration in the folder; audits report those that are no plain file."""
    locks = []
    for path in sorted(registrations.glob(f"*/{lock.NAME}")):
        with suppress(Tampered):
            locks.append(files.read(path, files.MAX_DOCUMENT_BYTES))
    return locks
