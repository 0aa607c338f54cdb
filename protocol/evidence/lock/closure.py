"""The closure of a result: the digest of every byte that could change a number, read from disk.

What git thinks of a file plays no part: an untracked helper is imported as well as a tracked one.
"""

import hashlib
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from protocol.evidence.bytes import files
from protocol.evidence.lock import installed_files
from protocol.evidence.refusals import BadInput

PACKAGES = ("policies", "protocol", "splits", "analysis", "figures")
# What Python imports, and the data that code reads beside itself.
_SUFFIXES = (".py", ".json", ".pyc", ".so", ".pyd")


def sources(root: Path) -> dict[str, str]:
    """SHA-256 of every code and JSON file below the packages of `root`, by posix path relative to it.

    Python's caches and hidden folders, which cannot be imported from, are left out.
    """
    found = (path for package in PACKAGES for path in _below(root / package))
    return {path.relative_to(root).as_posix(): files.sha256(path) for path in sorted(found)}


def environment() -> dict[str, Any]:
    """The interpreter, the machine, and everything installed, by its bytes (see `installed`)."""
    packages = installed_files.found(PACKAGES)
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "machine": platform.machine(),
        "library": installed_files.standard_library(),
        "distributions": packages.distributions,
        "altered": packages.altered,
        "own": packages.own,
    }


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def weights(paths: Mapping[str, Path]) -> dict[str, str]:
    """SHA-256 of each file of a model, by the name that the lock uses for it."""
    return {name: files.sha256(path) for name, path in sorted(paths.items())}


def differences(locked: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """One line for every path whose value is not the locked one; nested mappings are compared by path."""
    lines = []
    for name in sorted(locked.keys() | now.keys()):
        if name not in now:
            lines.append(f"{name}: missing")
        elif name not in locked:
            lines.append(f"{name}: new")
        elif isinstance(locked[name], Mapping) and isinstance(now[name], Mapping):
            lines += [f"{name}/{line}" for line in differences(locked[name], now[name])]
        elif locked[name] != now[name]:
            lines.append(f"{name}: changed")
    return lines


def _below(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__" and not name.startswith(".")]
        for name in folders:
            if (linked := Path(place, name)).is_symlink():
                raise BadInput(f"{linked} is a link to a folder; put the folder itself there")
        yield from (Path(place, name) for name in names if name.endswith(_SUFFIXES))
