"""What lies in the folder of a registration: evidence, what was drawn from it, and what nobody vouches for.

Names and kinds are looked at before anything is opened. A link shows other bytes on another machine and a
pipe waits for ever: none of them is evidence, whatever it leads to.
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
# The files that `figures.report` writes beside report.html, for studies that have what they show.
DRAWINGS = frozenset(
    {
        "collapse.md",
        "forest-narrow.svg",
        *(
            f"{name}.{suffix}"
            for name in (
                "ablation",
                "accuracy",
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
PROOFS = ("ots", "tsr", "git.json")  # what the witnesses in `protocol.witnesses` give
_ALWAYS = {PROTOCOL, lock.NAME, signing.NAME, bundle.NAME, ledger.NAME, CLAIM, SEAL, VERDICT}
_PHASES = tuple(records.FOLDERS.values())
_SIDES = tuple(f"{phase}/{records.TRAJECTORIES}" for phase in _PHASES)
_HEADERS = f"{anchors.FOLDER}/{anchors.HEADERS}"
_OCCLUDED = f"{ANATOMY}/{anatomies.VALUES}"
_STRICT = (*_PHASES, anchors.FOLDER, COST, ANATOMY)  # where nothing lies that is not evidence
_FOLDERS = frozenset({*_STRICT, *_SIDES, _HEADERS, FIGURES, _OCCLUDED})
_SIDE_FILE = re.compile(r"[0-9a-f]{64}\.json\.gz")
_PROOF = re.compile(rf"({'|'.join(anchors.DOCUMENTS)})\.({'|'.join(map(re.escape, PROOFS))})")
_MEASURED = re.compile(r"[0-9a-f]{12}\.jsonl")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_TRACED = (anatomies.TRACES, anatomies.CHOSEN, anatomies.VERDICT)
_HEADER = re.compile(r"\d+\.hex")
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{8}")  # what `files.create` was writing when it was killed
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
    path: str  # from the folder, with slashes
    kind: str  # as in _OTHER
    size: int  # bytes


def check(study: Registration) -> str:
    """How much is evidence, how much is drawn from it, and by name what is neither.

    Raises Tampered for a link or another special file in the place of ours, and for what lies among records,
    probe or proofs and is none. What a write that was cut off or a file manager leaves there fails nothing.
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
    """Everything in the folder, by its path from there, sorted. A folder that is not ours is one entry, its
    path ending in a slash: nothing in it is ever read.

    Raises Tampered as `check` does for what is no plain file or folder in the place of one of ours.
    """
    entries = list(_entries(study.folder))
    for entry in entries:
        _refuse_special(entry)
    read = _task_files(study)  # of the lock, which is opened when all that is always ours is a plain file
    for entry in entries:
        _refuse_special(entry, read)
    cited = {side: _cited(study, phase) for phase, side in zip(records.FOLDERS, _SIDES, strict=True)}
    return {
        entry.path: "unknown" if entry.kind == "a folder" else _kind(study, entry.path, cited)
        for entry in entries
        if entry.path not in _FOLDERS
    }


def of_a_system(name: str) -> bool:
    """Whether file managers and network drives leave files of this name in any folder."""
    return _OF_SYSTEMS.fullmatch(name) is not None


def shown(path: str) -> str:
    """A name as it may be printed: letters that only look like ours are told apart."""
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
    """read: names of the files that tasks read."""
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
    """cited: names of the side files that records cite, by their folder; None where records are damaged."""
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
    """Whether a file is evidence that is evidence of some studies only, or with some content only."""
    if name == SELECTION:
        try:
            return study.swept
        except (Refusal, CannotTell):  # the item of the lock says so
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
    except (Refusal, CannotTell):  # the item of the lock says so
        return True


def _task_files(study: Registration) -> frozenset[str]:
    try:
        return study.task_files
    except (Refusal, CannotTell):  # the item of the lock says so
        return frozenset()


def _cited(study: Registration, phase: str) -> set[str] | None:
    try:
        found = study.confirmed if phase == "confirm" else study.probed
        return {path.name for path in records.cited(study.place(phase), found)}
    except (Refusal, CannotTell):  # the items of the records say so
        return None


def _left_behind(folder: str, name: str) -> bool:
    """Whether a run that was killed leaves such a thing, or a system where somebody looked: whether a run may
    is for the item of its records.
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
