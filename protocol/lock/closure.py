"""The closure of a result: digests of all files on disk that could change a number.

Whether git tracks a file does not matter: Python imports an untracked module as well as a tracked one.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from protocol.formats import files
from protocol.formats.refusals import BadInput

PACKAGES = ("policies", "protocol", "splits", "analysis", "figures")
LIBRARY = "kv_prereg"  # calls the commands of the others: nothing that makes a number imports it
# Files that Python imports, and data files that code reads from its own folder.
_SUFFIXES = (".py", ".cpp", ".json", ".html", ".css", ".js", ".pyc", ".so", ".pyd")


def sources(root: Path) -> dict[str, str]:
    """Return the SHA-256 of every code and data file of the packages in `root`, by relative posix path.

    Python's caches and hidden folders are left out, since nothing is imported from them.
    """
    paths = (path for package in PACKAGES for path in _code_files(root / package))
    return {path.relative_to(root).as_posix(): files.sha256(path) for path in sorted(paths)}


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def weights(paths: Mapping[str, Path]) -> dict[str, str]:
    """Return the SHA-256 of each file of a model, by its name in the lock."""
    return {name: files.sha256(path) for name, path in sorted(paths.items())}


def differences(locked: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return one line for each path whose value differs; nested mappings are compared by path."""
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


def _code_files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__" and not name.startswith(".")]
        for name in folders:
            if (link := Path(parent, name)).is_symlink():
                raise BadInput(f"{link} is a link to a folder; put a real folder there")
        yield from (Path(parent, name) for name in names if name.endswith(_SUFFIXES))
