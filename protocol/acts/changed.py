"""Which registrations a set of changed files belongs to, and which of them a change takes away."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from protocol.evidence.findings import CannotTell
from protocol.evidence.lock import lock
from protocol.evidence.outside.repository import Repository
from protocol.evidence.refusals import BadInput
from protocol.evidence.run import ledger, records
from protocol.evidence.run.registration import PROTOCOL, Registration

__all__ = ["Changed", "of", "since"]


class Changed(NamedTuple):
    registered: list[Path]  # folders to audit
    written: list[Path]  # a protocol that is not locked yet: nothing to audit
    gone: list[str]  # folders that were locked before the change and are not there after it


def of(names: Iterable[Path]) -> Changed:
    """The registrations that these files lie in, each once; of a file that was deleted, where it lay.

    Every folder above a file counts in which something was registered, so that none hides in another.
    """
    above = {place for name in names for place in (name, *name.parents) if place.is_dir()}
    registered = sorted(place for place in above if _written(place))
    written = sorted(above.difference(registered))
    return Changed(registered, [place for place in written if (place / PROTOCOL).is_file()], [])


def since(commit: str) -> Changed:
    """The same of what HEAD changed since it left `commit`, in the repository around the current folder.

    A registration whose lock lies in another folder now was moved, and is not gone.
    Raises BadInput where git cannot tell.
    """
    try:
        repository = Repository(Path.cwd())
        changes = repository.changed(commit)
        now = {change.new for change in changes}
        lost = [change for change in changes if not change.new and change.old not in now]
        locks = [change.path for change in lost if Path(change.path).name == lock.NAME]
        gone = _registrations(repository, commit, [Path(path).parent.as_posix() for path in locks])
    except CannotTell as why:
        raise BadInput(
            f"--since {commit}: {why}; a shallow clone lacks it: fetch the whole history"
        ) from None
    paths = (Path(os.path.relpath(repository.root / change.path)) for change in changes)
    return of(paths)._replace(gone=gone)


def _written(place: Path) -> bool:
    """Whether a document of a registration lies there; anybody's folder may be named records or probe."""
    return bool({*Registration(place).traces()}.difference(records.FOLDERS.values()))


def _registrations(repository: Repository, commit: str, folders: Sequence[str]) -> list[str]:
    """Those of `folders` that had a ledger beside their lock: others' programs write lock.json, too."""
    ledgers = repository.objects(f"{commit}:{folder}/{ledger.NAME}" for folder in folders)
    return [folder for folder, held in zip(folders, ledgers, strict=True) if held]
