"""What differs between today's bytes and those that a lock froze. Needs no torch."""

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

ROOT = Path(__file__).resolve().parents[2]  # the tree whose sources are locked
NEEDS_TORCH = "torch"  # how it was built and on what it runs: nothing to ask without importing it


def drifted(study: Registration, home: Path, environment: Mapping[str, Any]) -> list[str]:
    """One line for each difference that can be told without torch; what is not here at all is one line too.

    environment: `closure.environment()` of now, computed once for many locks. Weights that have not changed
    by device, inode, size and times since they were last hashed are not read again (`identities`), so this is
    for looking; what runs a study hashes them in full.
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
    """Raises Drifted with the first three differences, if there are any."""
    if differences:
        more = f" (and {len(differences) - 3} more)" if len(differences) > 3 else ""
        amend = f", or: kv-prereg amend {study.folder} <new folder> --reason <why>"
        raise Drifted(
            f"{study.folder.name}: {'; '.join(differences[:3])}{more} since the lock "
            f"{study.lock.digest[:12]}; bring back what was locked{'' if study.has(CLAIM) else amend}"
        )


def refuse_edited(study: Registration) -> bytes:
    """The bytes of protocol.toml. Raises BadInput without one and without a lock, Drifted when it is not the
    file that was locked.
    """
    data = written(study.folder)
    if closure.digest_of(data) != study.lock.content["protocol"]["sha256"]:
        raise Drifted(
            f"{study.folder / PROTOCOL}: differs from the locked file; restore it or register another folder"
        )
    return data


def written(folder: Path) -> bytes:
    """The bytes of protocol.toml. Raises BadInput without one."""
    path = folder / PROTOCOL
    if not files.there(path):
        raise BadInput(f"{folder}: no {PROTOCOL} here; name a folder such as registrations/quickstart")
    return files.read(path, files.MOST_OF_A_DOCUMENT)


def of_sources(content: Mapping[str, Any]) -> list[str]:
    return closure.differences(content["sources"], closure.sources(ROOT))


def of_locked(content: Mapping[str, Any]) -> list[str]:
    """As `of_sources`, but for sources that are new: a working tree is not run, the locked tree is."""
    now = closure.sources(ROOT)
    there = {name: now[name] for name in content["sources"] if name in now}
    return closure.differences(content["sources"], there)


def apart(locked: Mapping[str, str], *below: str) -> list[str]:
    """The sources below these folders that are other bytes here than were locked, or that one of the two
    alone has, by path; those that both have come first. locked: SHA-256 by path.
    """
    here = closure.sources(ROOT)
    names = (name for name in locked.keys() | here.keys() if name.startswith(below))
    differing = (name for name in names if locked.get(name) != here.get(name))
    return sorted(differing, key=lambda name: (name not in locked or name not in here, name))


def packages(content: Mapping[str, Any]) -> str:
    """How many locked sources are other bytes here, or not here at all, by package: for a reader who wonders
    whether a study ran the code that is installed.
    """
    differing = Counter(line.partition("/")[0] for line in of_locked(content))
    if not differing:
        return "all are those installed here"
    by_package = ", ".join(f"{number} of {name}" for name, number in sorted(differing.items()))
    return f"{differing.total()} are not those installed here ({by_package})"


def of_data(content: Mapping[str, Any], folder: Path) -> list[str]:
    """Of the data that tasks read. folder: of the registration."""
    registered = content["protocol"]["content"]["tasks"]
    written = (task for task in registered if tasks.called(task) in content["data"])
    return closure.differences(content["data"], tasks.data(tasks.made(written, folder)))


def files_of(source: str, home: Path, locked: Mapping[str, str]) -> dict[str, Path]:
    """The files of a model by the name that the lock uses, and of what was calibrated those that it has.
    Locks of up to 2026-11-22 have all that then lay beside the weights, whether or not an arm asked for it.
    """
    measured = {paths.locked_name(name): path for name, path in paths.statistics_paths(source, home).items()}
    there = {name: path for name, path in measured.items() if name in locked and path.is_file()}
    return sources.files(source, home) | there
