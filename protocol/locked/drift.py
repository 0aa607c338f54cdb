"""Drift: differences between the current files and those that a lock froze. Needs no torch."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protocol import tasks
from protocol.evidence.bytes import files
from protocol.evidence.lock import closure, identities
from protocol.evidence.refusals import BadInput, Drifted, Refusal
from protocol.evidence.run.registration import CLAIM, PROTOCOL, Registration
from protocol.models import paths, sources

__all__ = [
    "ROOT",
    "apart",
    "drifted",
    "files_of",
    "of_data",
    "of_locked",
    "of_sources",
    "packages",
    "refuse",
    "refuse_edited",
]

ROOT = Path(__file__).resolve().parents[2]  # the tree whose sources get locked
NEEDS_TORCH = "torch"  # build and device, unknown without importing torch


def drifted(study: Registration, home: Path, environment: Mapping[str, Any]) -> list[str]:
    """Return one line for each difference that can be found without torch; something missing is a line, too.

    environment: the current `closure.environment()`, computed once for many locks. Weights whose device,
    inode, size and times are those of the last hash are not read again (`identities`), so this is only for
    status displays; commands that run a study hash them in full.
    """
    content = study.lock.content
    try:
        found = of_locked(content) + of_data(content, study.folder)
        known = {name: value for name, value in content["environment"].items() if name != NEEDS_TORCH}
        found += closure.differences({"environment": known}, {"environment": environment})
        named = {source: files_of(source, home, locked) for source, locked in content["weights"].items()}
        found += closure.differences(content["weights"], identities.weights(named, home))
    except Refusal as missing:
        return [str(missing)]
    return found


def refuse(study: Registration, differences: list[str]) -> None:
    """Raise Drifted with the first three differences, if there are any."""
    if differences:
        more = f" (and {len(differences) - 3} more)" if len(differences) > 3 else ""
        amend = f", or: kv-prereg amend {study.folder} <new folder> --reason <why>"
        raise Drifted(
            f"{study.folder.name}: {'; '.join(differences[:3])}{more} since the lock "
            f"{study.lock.digest[:12]}; bring back what was locked{'' if study.has(CLAIM) else amend}"
        )


def refuse_edited(study: Registration) -> bytes:
    """Return the bytes of protocol.toml. Raises BadInput if it or the lock is missing, Drifted if it is not
    the file that was locked.
    """
    data = written(study.folder)
    if closure.digest_of(data) != study.lock.content["protocol"]["sha256"]:
        raise Drifted(
            f"{study.folder / PROTOCOL}: differs from the locked file; restore it or register another folder"
        )
    return data


def written(folder: Path) -> bytes:
    """Return the bytes of protocol.toml. Raises BadInput if it is missing."""
    path = folder / PROTOCOL
    if not files.there(path):
        raise BadInput(f"{folder}: no {PROTOCOL} here; name a folder such as registrations/quickstart")
    return files.read(path, files.MOST_OF_A_DOCUMENT)


def of_sources(content: Mapping[str, Any]) -> list[str]:
    return closure.differences(content["sources"], closure.sources(ROOT))


def of_locked(content: Mapping[str, Any]) -> list[str]:
    """Compare as `compare_sources` does, but ignore new files, which the locked tree does not run."""
    now = closure.sources(ROOT)
    there = {name: now[name] for name in content["sources"] if name in now}
    return closure.differences(content["sources"], there)


def apart(locked: Mapping[str, str], *below: str) -> list[str]:
    """Return the paths below these folders whose bytes differ from the locked ones, or that only one side
    has; paths that both have come first. locked: SHA-256 by path.
    """
    here = closure.sources(ROOT)
    names = (name for name in locked.keys() | here.keys() if name.startswith(below))
    differing = (name for name in names if locked.get(name) != here.get(name))
    return sorted(differing, key=lambda name: (name not in locked or name not in here, name))


def packages(content: Mapping[str, Any]) -> str:
    """Summarize by package how many locked sources differ from the installed ones or are missing,
    for a reader who asks whether a study ran the installed code.
    """
    differing = Counter(line.partition("/")[0] for line in of_locked(content))
    if not differing:
        return "all are those installed here"
    by_package = ", ".join(f"{number} of {name}" for name, number in sorted(differing.items()))
    return f"{differing.total()} are not those installed here ({by_package})"


def of_data(content: Mapping[str, Any], folder: Path) -> list[str]:
    """Compare the data that tasks read. folder: the registration."""
    registered = content["protocol"]["content"]["tasks"]
    written = (task for task in registered if tasks.called(task) in content["data"])
    return closure.differences(content["data"], tasks.data(tasks.made(written, folder)))


def files_of(source: str, home: Path, locked: Mapping[str, str]) -> dict[str, Path]:
    """Return the files of a model, and its locked calibration statistics, by the name that the lock uses.
    Locks up to 2026-11-22 list all statistics that existed then, whether or not an arm needs them.
    """
    measured = {paths.locked_name(name): path for name, path in paths.statistics_paths(source, home).items()}
    there = {name: path for name, path in measured.items() if name in locked and path.is_file()}
    return sources.files(source, home) | there
