"""Classify the files in the folder of a registration: evidence, drawings derived from it, and unknown files.

Names and file types are checked before anything is opened. A link shows other bytes on another machine and a
pipe blocks, so neither is evidence, whatever it leads to.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from protocol.evidence.bytes import files
from protocol.evidence.findings import CannotTell
from protocol.evidence.lock import attributes, bundle, lock, signing
from protocol.evidence.outside import anchors
from protocol.evidence.refusals import Refusal, Tampered
from protocol.evidence.run import anatomies, ledger, records
from protocol.evidence.run.registration import (
    ANATOMY,
    CLAIM,
    COST,
    PROTOCOL,
    SEAL,
    SELECTION,
    VERDICT,
    Registration,
)

__all__ = [
    "DRAWINGS",
    "FIGURES",
    "PROOFS",
    "REPORT",
    "Kind",
    "accounted",
    "check",
    "counted",
    "listed",
    "of_a_system",
    "shown",
]

Kind = Literal["evidence", "derived", "unknown"]

FIGURES, REPORT = "figures", "report.html"
# The files that `figures.report` writes next to report.html; each study has some of them.
DRAWINGS = frozenset(
    {
        "collapse.md",
        "forest-narrow.svg",
        *(
            f"{name}.{suffix}"
            for name in (
                "ablation",
                "accuracy",
                "anatomy_curve",
                "anatomy_labels",
                "anatomy_map",
                "anatomy_trace",
                "budget_curve",
                "collapse",
                "cost_concurrency",
                "cost_curve",
                "cost_frontier",
                "cost_memory",
                "cost_prefill",
                "cost_throughput",
                "forest",
                "levels",
                "needle",
                "settings_map",
                "trajectories",
            )
            for suffix in ("svg", "png")
        ),
    }
)
PROOFS = ("ots", "tsr", "git.json")  # suffixes of the proofs by `protocol.witnesses`
_ALWAYS = {PROTOCOL, lock.NAME, signing.NAME, bundle.NAME, ledger.NAME, CLAIM, SEAL, VERDICT}
_PHASES = tuple(records.FOLDERS.values())
_SIDES = tuple(f"{phase}/{records.TRAJECTORIES}" for phase in _PHASES)
_HEADERS = f"{anchors.FOLDER}/{anchors.HEADERS}"
_OCCLUDED = f"{ANATOMY}/{anatomies.VALUES}"
_STRICT = (*_PHASES, anchors.FOLDER, COST, ANATOMY)  # which hold nothing but evidence
_FOLDERS = frozenset({*_STRICT, *_SIDES, _HEADERS, FIGURES, _OCCLUDED})
_SIDE_FILE = re.compile(r"[0-9a-f]{64}\.json\.gz")
_PROOF = re.compile(rf"({'|'.join(anchors.DOCUMENTS)})\.({'|'.join(map(re.escape, PROOFS))})")
_MEASURED = re.compile(r"[0-9a-f]{12}\.jsonl")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_TRACED = (anatomies.TRACES, anatomies.CHOSEN, anatomies.VERDICT)
_HEADER = re.compile(r"\d+\.hex")
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{8}")  # a temporary file of `files.create`, which was killed
_OF_SYSTEMS = re.compile(r"\.DS_Store|\._.+|Thumbs\.db|desktop\.ini|\.directory|\.nfs[0-9a-f]+")
_OTHER = MappingProxyType(
    {
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFBLK: "a device",
        stat.S_IFCHR: "a device",
        stat.S_IFDIR: "a folder",
        stat.S_IFREG: "a file",
    }
)
_MOST_SHOWN = 5


class _Entry(NamedTuple):
    path: str  # relative to the folder, with slashes
    kind: str  # a value of _FILE_TYPES
    size: int  # bytes


def check(study: Registration) -> str:
    """Return the count of evidence files, the count of drawings and the names of all other files.

    Raises Tampered for a link or another special file with the name of one of ours, and for an unknown file
    in a folder of evidence. Leftovers of a killed run or a file manager do not fail.
    """
    entries = {entry.path: entry for entry in _entries(study.folder)}
    kinds = accounted(study)
    unknown = [path for path, kind in kinds.items() if kind == "unknown"]
    for path in unknown:
        folder, name = path.rstrip("/").rpartition("/")[::2]
        if folder.startswith(_STRICT) and not _left_behind(folder, name):
            raise Tampered(f"{shown(path)}: is not evidence of ours; move it out of {folder}/")
    drawn = [path for path, kind in kinds.items() if kind == "derived"]
    said = [f"evidence: {counted(sum(kind == 'evidence' for kind in kinds.values()))}"]
    if drawn:
        share = sum(entries[path].size for path in drawn) / max(1, sum(one.size for one in entries.values()))
        said.append(f"{_drawings(drawn)} ({100 * share:.0f} % of the bytes), compared by --draw alone")
    if unknown:
        said.append(f"NOT VOUCHED FOR: {listed(shown(path) + _special(entries[path]) for path in unknown)}")
    return "; ".join(said)


def accounted(study: Registration) -> dict[str, Kind]:
    """Return the kind of everything in the folder, by relative path, sorted.

    An unknown folder is one entry, whose path ends in a slash; nothing in it is ever read. Raises Tampered
    for a special file with the name of a file or folder of ours.
    """
    entries = list(_entries(study.folder))
    for entry in entries:
        _refuse_special(entry)
    read = _task_files(study)  # reads the lock, so the names that every study has were checked first
    for entry in entries:
        _refuse_special(entry, read)
    cited = {side: _cited(study, phase) for phase, side in zip(records.FOLDERS, _SIDES, strict=True)}
    return {
        entry.path: "unknown" if entry.kind == "a folder" else _kind(study, entry.path, cited)
        for entry in entries
        if entry.path not in _FOLDERS
    }


def of_a_system(name: str) -> bool:
    """Return whether file managers or network drives leave files of this name in any folder."""
    return _OF_SYSTEMS.fullmatch(name) is not None


def shown(path: str) -> str:
    """Return a name that is safe to print: non-ASCII letters are escaped, since some look like ASCII ones."""
    return path if path.isascii() and path.isprintable() else ascii(path)


def _entries(folder: Path, below: str = "") -> Iterator[_Entry]:
    with os.scandir(folder / below) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        path = f"{below}/{entry.name}" if below else entry.name
        status = entry.stat(follow_symlinks=False)
        kind = _OTHER.get(stat.S_IFMT(status.st_mode), "no plain file")
        if kind == "a folder" and path not in _FOLDERS:
            path += "/"
        yield _Entry(path, kind, status.st_size if kind == "a file" else 0)
        if kind == "a folder" and path in _FOLDERS:
            yield from _entries(folder, path)


def _refuse_special(entry: _Entry, read: frozenset[str] = frozenset()) -> None:
    """Raise Tampered for a special file with the name of ours. task_names: files that tasks read."""
    path = entry.path.rstrip("/")
    if path in _FOLDERS:
        if entry.kind != "a folder":
            raise Tampered(f"{path}: is {entry.kind}; put the folder itself there")
        return
    folder, name = path.rpartition("/")[::2]
    ours = (
        name in {*_ALWAYS, SELECTION, REPORT, *read} if not folder else folder != FIGURES or name in DRAWINGS
    )
    if ours and entry.kind != "a file" and not (folder and entry.kind == "a folder"):
        raise Tampered(f"{shown(path)}: is {entry.kind}; put the file itself there")


def _kind(study: Registration, path: str, cited: dict[str, set[str] | None]) -> Kind:
    """Classify one path. cited: side files that records cite, by folder; None where records are damaged."""
    folder, name = path.rpartition("/")[::2]
    if not folder:
        if name == REPORT:
            return "derived"
        ours = name in _ALWAYS or _conditional(study, name)
    elif folder == FIGURES:
        return "derived" if name in DRAWINGS else "unknown"
    elif folder in _SIDES:
        named = cited[folder]
        ours = name in named if named is not None else _SIDE_FILE.fullmatch(name) is not None
    elif folder == COST:
        ours = _MEASURED.fullmatch(name) is not None and _registers(study, "cost")
    elif folder == ANATOMY:
        ours = name in _TRACED and _registers(study, "anatomy")
    elif folder == _OCCLUDED:
        ours = _DIGEST.fullmatch(name) is not None and _registers(study, "anatomy")
    elif folder in _PHASES:
        ours = study.folder / path in records.shards(study.folder / folder)
    else:
        ours = bool((_HEADER if folder == _HEADERS else _PROOF).fullmatch(name))
    return "evidence" if ours else "unknown"


def _conditional(study: Registration, name: str) -> bool:
    """Return whether a file is evidence that only some studies have, or only with certain content."""
    if name == SELECTION:
        try:
            return study.swept
        except (Refusal, CannotTell):  # the check of the lock reports it
            return True
    if name.endswith(".jsonl"):
        return name in _task_files(study)
    if name == attributes.NAME:
        path, own = study.folder / name, attributes.CONTENT
        return path.lstat().st_size == len(own) and files.read(path) == own
    return False


def _registers(study: Registration, section: str) -> bool:
    try:
        return section in study.registered
    except (Refusal, CannotTell):  # the check of the lock reports it
        return True


def _task_files(study: Registration) -> frozenset[str]:
    try:
        return study.task_files
    except (Refusal, CannotTell):  # the check of the lock reports it
        return frozenset()


def _cited(study: Registration, phase: str) -> set[str] | None:
    try:
        found = study.confirmed if phase == "confirm" else study.probed
        return {path.name for path in records.cited(study.place(phase), found)}
    except (Refusal, CannotTell):  # the checks of the records report it
        return None


def _left_behind(folder: str, name: str) -> bool:
    """Return whether a killed run or the operating system may have left such a file.

    Whether the run may have such leftovers is for the check of its records.
    """
    cut_off = _UNFINISHED.fullmatch(name) or (folder in _SIDES and _SIDE_FILE.fullmatch(name))
    return bool(cut_off) or of_a_system(name)


def _drawings(paths: list[str]) -> str:
    within = sum(path != REPORT for path in paths)
    folder = f"{counted(within)} in {FIGURES}/"
    return f"drawn from it: {' and '.join([REPORT] * (within < len(paths)) + [folder] * (within > 0))}"


def counted(number: int) -> str:
    return f"{number} file{'s' * (number != 1)}"


def _special(entry: _Entry) -> str:
    return "" if entry.kind in ("a file", "a folder") else f" ({entry.kind})"


def listed(names: Iterable[str]) -> str:
    first = list(names)
    rest = f" and {len(first) - _MOST_SHOWN} more" if len(first) > _MOST_SHOWN else ""
    return ", ".join(first[:_MOST_SHOWN]) + rest
