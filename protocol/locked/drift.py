"""What differs between today's bytes and those that a lock froze. Needs no torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protocol import tasks
from protocol.evidence.lock import closure, identities
from protocol.evidence.lock.lock import Lock
from protocol.evidence.refusals import Drifted, Refusal
from protocol.evidence.run import claim
from protocol.models import paths, sources

__all__ = ["ROOT", "drifted", "of_environment", "of_files", "of_sources", "refuse"]

ROOT = Path(__file__).resolve().parents[2]  # the tree whose sources are locked
NEEDS_TORCH = "torch"  # how it was built and on what it runs: nothing to ask without importing it


def drifted(locked: Lock, home: Path, environment: Mapping[str, Any]) -> list[str]:
    """One line for each difference that can be told without torch; what is not here at all is one line too.

    environment: `closure.environment()` of now, computed once for many locks. Weights that have not changed
    by device, inode, size and times since they were last hashed are not read again (`identities`), so this is
    for looking; what runs a study hashes them in full.
    """
    content = locked.content
    try:
        found = of_files(content)
        known = {name: value for name, value in content["environment"].items() if name != NEEDS_TORCH}
        found += of_environment(known, environment)
        named = {source: _files(source, home, locked) for source, locked in content["weights"].items()}
        found += closure.differences(content["weights"], identities.weights(named, home))
    except Refusal as missing:
        return [str(missing)]
    return found


def refuse(folder: Path, locked: Lock, found: list[str]) -> None:
    """Raises Drifted with the first three differences, if there are any."""
    if found:
        more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
        amend = f", or: python -m protocol.amend {folder} <new folder> --reason <why>"
        raise Drifted(
            f"{folder.name}: {'; '.join(found[:3])}{more} since the lock {locked.digest[:12]}; "
            f"bring back what was locked{'' if (folder / claim.NAME).exists() else amend}"
        )


def of_sources(content: Mapping[str, Any]) -> list[str]:
    return closure.differences(content["sources"], closure.sources(ROOT))


def of_files(content: Mapping[str, Any]) -> list[str]:
    """Of the sources and of the data that tasks read."""
    return of_sources(content) + closure.differences(content["data"], tasks.data(content["data"]))


def of_environment(locked: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return closure.differences({"environment": locked}, {"environment": now})


def _files(source: str, home: Path, locked: Mapping[str, str]) -> dict[str, Path]:
    """The files of a model by the name that the lock uses, statistics among them."""
    measured = {paths.locked_name(name): path for name, path in paths.statistics_paths(source, home).items()}
    there = {name: path for name, path in measured.items() if name in locked and path.is_file()}
    return sources.files(source, home) | there
