"""Digests of everything installed: the files of every distribution and of the standard library.

A distribution's RECORD has the digest of each installed file. Files are compared with it, and importable files that no
RECORD lists are reported too. Bytecode is not read: a study's run compiles afresh (see protocol.workspace.locked_tree).
"""

import csv
import hashlib
import os
import platform
import site
import sys
import sysconfig
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import metadata
from typing import Any, NamedTuple

from protocol.formats import files
from protocol.lock import closure, installed_versions

MISSING = "missing"
IMPORTABLE = (".py", ".pyc", ".so", ".pyd", ".pth")
_SMALL = 2**20  # bytes; a larger file is hashed in pieces
_BATCH = 256  # files per task of a thread


class Installed(NamedTuple):
    distributions: dict[str, dict[str, str]]  # version, and the digest of RECORD, by name
    altered: dict[str, str]  # SHA-256, or "missing", of files that differ from RECORD, by path
    editable: dict[str, str]  # SHA-256 of files from an editable install of this project, by path


class _RecordLine(NamedTuple):
    """A line of a RECORD that has a digest."""

    site: str
    name: str  # relative to the site folder, with slashes
    digest: str  # algorithm=base64
    is_this_project: bool


def environment() -> dict[str, Any]:
    """Describe the interpreter, the machine and the digests of everything installed, as a lock has them."""
    packages = scan_packages((*closure.PACKAGES, closure.LIBRARY))
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "machine": platform.machine(),
        "library": hash_standard_library(),
        "distributions": packages.distributions,
        "altered": packages.altered,
        "own": packages.editable,
    }


def scan_packages(source_packages: Iterable[str]) -> Installed:
    """Hash every file that a RECORD lists with a digest, and every importable file that none lists.

    source_packages: folders of this project's sources, which `editable` leaves out. Paths are relative to the
    site folder, with slashes. A file that is listed without a digest counts as not listed.
    """
    lines = [line for distribution in installed_versions.distributions() for line in _record_lines(distribution)]
    paths = [os.path.join(line.site, line.name) for line in lines]
    unlisted = _unlisted_files(
        _installation_folders({line.site for line in lines}), {os.path.normpath(path) for path in paths}
    )
    pairs = list(zip(lines, paths, strict=True))
    batches = [pairs[start : start + _BATCH] for start in range(0, len(pairs), _BATCH)]
    with ThreadPoolExecutor(os.cpu_count()) as threads:  # hashing releases the GIL
        digests = [digest for batch in threads.map(_check_batch, batches) for digest in batch]
    altered: dict[str, str] = {}
    editable: dict[str, str] = {}
    sources = {f"{package}/" for package in source_packages}
    for line, path, digest in zip(lines, paths, digests, strict=True):
        if not line.is_this_project:
            if digest is not None:
                altered[_unique_key(line.name, path, altered)] = digest
        elif line.name.endswith(IMPORTABLE) and not line.name.startswith(tuple(sources)):
            editable[_unique_key(line.name, path, editable)] = _sha256(path)
    for name, path in unlisted:
        altered[_unique_key(name, path, altered)] = _sha256(path)
    return Installed(installed_versions.versions(), dict(sorted(altered.items())), dict(sorted(editable.items())))


@cache
def site_folders() -> tuple[str, ...]:
    """Return the folders on Python's path whose importable files `scan_packages` reads."""
    return tuple(
        _installation_folders(
            {line.site for distribution in installed_versions.distributions() for line in _record_lines(distribution)}
        )
    )


def hash_standard_library() -> str:
    """Return one digest of all importable files of the standard library, without its tests."""
    total = hashlib.sha256()
    for folder in sorted({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}):
        for name, path in sorted(_importable(folder, {"site-packages", "dist-packages", "test", "tests"})):
            total.update(f"{name}\0{_sha256(path)}\n".encode(errors="surrogateescape"))
    return total.hexdigest()


def format_altered(altered: dict[str, str]) -> list[str]:
    """Return the lines that report altered installed files; none when there are none."""
    if not altered:
        return []
    first, more = ", ".join(list(altered)[:3]), f" and {len(altered) - 3} more" if len(altered) > 3 else ""
    return [f"installed files that differ from their packages are locked with these differences: {first}{more}"]


def _record_lines(distribution: metadata.Distribution) -> Iterator[_RecordLine]:
    folder, is_this_project = (
        os.path.normpath(str(distribution.locate_file(""))),
        installed_versions.normalised_name(distribution) == installed_versions.SELF,
    )
    for row in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
        if len(row) > 1 and "=" in row[1]:
            yield _RecordLine(folder, row[0], row[1], is_this_project)


def _installation_folders(distribution_folders: Iterable[str]) -> list[str]:
    """Return the folders on Python's path in which packages are installed."""
    known = {*site.getsitepackages(), site.getusersitepackages(), *distribution_folders}
    return [entry for entry in dict.fromkeys(map(os.path.normpath, sys.path)) if entry in known]


def _unlisted_files(folders: Iterable[str], listed_paths: set[str]) -> list[tuple[str, str]]:
    """Return name and path of every importable file of these folders that is not listed."""
    return sorted(
        (name, path)
        for folder in folders
        for name, path in _importable(folder, set())
        if path not in listed_paths and os.path.realpath(path) not in listed_paths
    )


def _importable(folder: str, excluded: set[str]) -> Iterator[tuple[str, str]]:
    """Yield name and path of every file below `folder` that Python could import, following links."""
    walked = set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(parent)) in walked:
            folders.clear()
            continue
        walked.add(real)
        # pip renames folders to begin with a tilde while it uninstalls; metadata folders are not imported.
        folders[:] = [
            name
            for name in folders
            if name != "__pycache__" and name[0] != "~" and not name.endswith(("-info",)) and name not in excluded
        ]
        for name in names:
            if name.endswith(IMPORTABLE):
                path = os.path.join(parent, name)
                yield os.path.relpath(path, folder).replace(os.sep, "/"), path


def _check_batch(batch: Iterable[tuple[_RecordLine, str]]) -> list[str | None]:
    return [_check_line(line, path) for line, path in batch]


def _check_line(line: _RecordLine, path: str) -> str | None:
    """Return None for a file with the listed digest, else its SHA-256 or "missing"."""
    algorithm, _, expected = line.digest.partition("=")
    try:
        digest = _hash(path, algorithm)
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    except ValueError:  # an unknown hash algorithm
        return _sha256(path)
    matches = urlsafe_b64encode(digest).rstrip(b"=").decode() == expected.rstrip("=")
    return None if matches else _sha256(path)


def _sha256(path: str) -> str:
    try:
        return _hash(path, "sha256").hex()
    except (FileNotFoundError, NotADirectoryError):
        return MISSING


def _hash(path: str, algorithm: str) -> bytes:
    return _read(path, algorithm, files.file_identity(path))


@cache  # one process reads a file once, unless its identity changes
def _read(path: str, algorithm: str, identity: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size > _SMALL:
            return hashlib.file_digest(file, algorithm).digest()
        return hashlib.new(algorithm, file.read()).digest()


def _unique_key(name: str, path: str, taken: dict[str, str]) -> str:
    """Return the name as an ASCII key, or the path where another site folder has the same name."""
    return (path if name in taken else name).encode("ascii", "backslashreplace").decode()
