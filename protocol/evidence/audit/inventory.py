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

from protocol.evidence import ledger, records
from protocol.evidence.external import anchors
from protocol.evidence.registration import CLAIM, PROTOCOL, SEAL, SELECTION, VERDICT, Registration
from protocol.formats import files, runners, shards
from protocol.formats.findings import CannotTell
from protocol.formats.instruments import INSTRUMENTS, folder_patterns
from protocol.formats.refusals import Refusal, Tampered
from protocol.lock import bundle, git_attributes, lock

Kind = Literal["evidence", "derived", "unknown"]

FIGURES, REPORT = "figures", "report.html"
# The files that `figures.report` writes next to report.html; each study has some of them.
DRAWINGS = frozenset(
    {
        "collapse.md",
        *(
            f"{name}.{suffix}"
            for name in (
                "ablation",
                "accuracy",
                "budget_curve",
                "collapse",
                "cost_curve",
                "divergence",
                "forest",
                "levels",
                "looks",
                "needle",
                "settings_map",
                "trajectories",
                *(name for instrument in INSTRUMENTS for name in instrument.drawings),
            )
            for suffix in ("svg", "png")
        ),
    }
)
PROOFS = ("ots", "tsr", "git.json", "sigstore.json")  # suffixes of the proofs by `protocol.witnesses`
_ALWAYS = {PROTOCOL, lock.NAME, lock.SIGNATURE, bundle.NAME, ledger.NAME, CLAIM, SEAL, VERDICT}
_PHASES = tuple(records.FOLDERS.values())
_SIDES = tuple(f"{phase}/{records.TRAJECTORIES}" for phase in _PHASES)
_HEADERS = f"{anchors.FOLDER}/{anchors.HEADERS}"
_MEASURED = folder_patterns() | runners.folder_patterns()
_EVIDENCE_FOLDERS = (
    *_PHASES,
    anchors.FOLDER,
    *(instrument.name for instrument in INSTRUMENTS),
    *runners.folder_patterns(),
)  # which hold nothing but evidence
_FOLDERS = frozenset({*_EVIDENCE_FOLDERS, *_SIDES, _HEADERS, FIGURES, *_MEASURED})
_SIDE_FILE = re.compile(r"[0-9a-f]{64}\.json\.gz")
_PROOF = re.compile(rf"({'|'.join(anchors.DOCUMENTS)})\.({'|'.join(map(re.escape, PROOFS))})")
_HEADER_FILE = re.compile(r"\d+\.hex")
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{8}")  # a temporary file of `files.create`, which was killed
_SYSTEM_FILE = re.compile(
    r"\.DS_Store|\._.+|Thumbs\.db|desktop\.ini|\.directory|\.nfs[0-9a-f]+"
    r"|.+~|\.#.+|#.+#|\.~lock\..+#|\..+\.sw[a-p]"  # of editors
)
_FILE_TYPES = MappingProxyType(
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
_MAX_NAMES = 5


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
    kinds = classify(study)
    unknown = [path for path, kind in kinds.items() if kind == "unknown"]
    for path in unknown:
        folder, name = path.rstrip("/").rpartition("/")[::2]
        is_empty = path.endswith("/") and is_leftover(study.folder / path)
        if folder.startswith(_EVIDENCE_FOLDERS) and not (is_empty or _is_leftover(folder, name)):
            raise Tampered(
                f"{printable_name(path)}: is not a file that kv-prereg writes as evidence; move it out of {folder}/"
            )
    derived = [path for path, kind in kinds.items() if kind == "derived"]
    parts = [f"evidence: {format_file_count(sum(kind == 'evidence' for kind in kinds.values()))}"]
    if derived:
        fraction = sum(entries[path].size for path in derived) / max(1, sum(other.size for other in entries.values()))
        parts.append(f"{_format_drawings(derived)} ({100 * fraction:.0f} % of the bytes), compared only with --draw")
    if unknown:
        parts.append(
            f"NOT VOUCHED FOR: {format_names(printable_name(path) + _format_type(entries[path]) for path in unknown)}"
        )
    return "; ".join(parts)


def classify(study: Registration) -> dict[str, Kind]:
    """Return the kind of everything in the folder, by relative path, sorted.

    An unknown folder is one entry, whose path ends in a slash; nothing in it is ever read. Raises Tampered
    for a special file with the name of a file or folder of ours.
    """
    entries = list(_entries(study.folder))
    for entry in entries:
        _refuse_special(entry)
    task_names = _task_file_names(study)  # reads the lock, so the names that every study has were checked first
    for entry in entries:
        _refuse_special(entry, task_names)
    cited = {side: _cited_names(study, phase) for phase, side in zip(records.FOLDERS, _SIDES, strict=True)}
    return {
        entry.path: "unknown" if entry.kind == "a folder" else _classify_path(study, entry.path, cited)
        for entry in entries
        if entry.path not in _FOLDERS
    }


def is_leftover(path: Path) -> bool:
    """Return whether file managers, network drives or editors leave such a file in any folder, or it is an empty
    folder: neither says anything, and neither accuses anybody.
    """
    if path.is_dir() and not path.is_symlink():
        return not any(path.iterdir())
    return _SYSTEM_FILE.fullmatch(path.name) is not None


def printable_name(path: str) -> str:
    """Return a name that is safe to print: non-ASCII letters are escaped, since some look like ASCII ones."""
    return path if path.isascii() and path.isprintable() else ascii(path)


def _entries(folder: Path, below: str = "") -> Iterator[_Entry]:
    with os.scandir(folder / below) as scan:
        entries = sorted(scan, key=lambda entry: entry.name)
    for entry in entries:
        path = f"{below}/{entry.name}" if below else entry.name
        status = entry.stat(follow_symlinks=False)
        kind = _FILE_TYPES.get(stat.S_IFMT(status.st_mode), "something that is not a plain file")
        if kind == "a folder" and path not in _FOLDERS:
            path += "/"
        yield _Entry(path, kind, status.st_size if kind == "a file" else 0)
        if kind == "a folder" and path in _FOLDERS:
            yield from _entries(folder, path)


def _refuse_special(entry: _Entry, task_names: frozenset[str] = frozenset()) -> None:
    """Raise Tampered for a special file with the name of ours. task_names: files that tasks read."""
    path = entry.path.rstrip("/")
    if path in _FOLDERS:
        if entry.kind != "a folder":
            raise Tampered(f"{path}: is {entry.kind}; put a real folder there")
        return
    folder, name = path.rpartition("/")[::2]
    is_ours = (
        name in {*_ALWAYS, SELECTION, REPORT, *task_names} if not folder else folder != FIGURES or name in DRAWINGS
    )
    if is_ours and entry.kind != "a file" and not (folder and entry.kind == "a folder"):
        raise Tampered(f"{printable_name(path)}: is {entry.kind}; put a real file there")


def _classify_path(study: Registration, path: str, cited: dict[str, set[str] | None]) -> Kind:
    """Classify one path. cited: side files that records cite, by folder; None where records are damaged."""
    folder, name = path.rpartition("/")[::2]
    if not folder:
        if name == REPORT:
            return "derived"
        is_ours = name in _ALWAYS or _is_conditional_evidence(study, name)
    elif folder == FIGURES:
        return "derived" if name in DRAWINGS else "unknown"
    elif folder in _SIDES:
        names = cited[folder]
        is_ours = name in names if names is not None else _SIDE_FILE.fullmatch(name) is not None
    elif folder in _MEASURED:
        table, pattern = _MEASURED[folder]
        plain = study.folder / folder / shards.plain_name(Path(name))
        is_ours = shards.find_form(plain).name == name and pattern.fullmatch(plain.name) is not None
        is_ours = is_ours and (plain.name == name or plain.suffix == ".jsonl") and _has_section(study, table)
    elif folder in _PHASES:
        is_ours = study.folder / path in shards.list_shards(study.folder / folder)
    else:
        is_ours = bool((_HEADER_FILE if folder == _HEADERS else _PROOF).fullmatch(name))
    return "evidence" if is_ours else "unknown"


def _is_conditional_evidence(study: Registration, name: str) -> bool:
    """Return whether a file is evidence that only some studies have, or only with certain content."""
    if name == SELECTION:
        try:
            return study.has_sweep
        except (Refusal, CannotTell):  # the check of the lock reports it
            return True
    if name.endswith(".jsonl"):
        return name in _task_file_names(study)
    if name == git_attributes.NAME:
        path, content = study.folder / name, git_attributes.CONTENT
        return path.lstat().st_size == len(content) and files.read(path) == content
    return False


def _has_section(study: Registration, section: str) -> bool:
    try:
        return section in study.protocol
    except (Refusal, CannotTell):  # the check of the lock reports it
        return True


def _task_file_names(study: Registration) -> frozenset[str]:
    try:
        return study.task_files
    except (Refusal, CannotTell):  # the check of the lock reports it
        return frozenset()


def _cited_names(study: Registration, phase: str) -> set[str] | None:
    try:
        recorded = study.confirm_records if phase == "confirm" else study.probe_records
        return {path.name for path in records.cited_files(study.phase_folder(phase), recorded)}
    except (Refusal, CannotTell):  # the checks of the records report it
        return None


def _is_leftover(folder: str, name: str) -> bool:
    """Return whether a killed run or the operating system may have left such a file.

    Whether the run may have such leftovers is for the check of its records.
    """
    partial = _UNFINISHED.fullmatch(name) or (folder in _SIDES and _SIDE_FILE.fullmatch(name))
    return bool(partial) or _SYSTEM_FILE.fullmatch(name) is not None


def _format_drawings(paths: list[str]) -> str:
    figure_count = sum(path != REPORT for path in paths)
    folder = f"{format_file_count(figure_count)} in {FIGURES}/"
    return f"drawn from it: {' and '.join([REPORT] * (figure_count < len(paths)) + [folder] * (figure_count > 0))}"


def format_file_count(number: int) -> str:
    return f"{number} file{'s' * (number != 1)}"


def _format_type(entry: _Entry) -> str:
    return "" if entry.kind in ("a file", "a folder") else f" ({entry.kind})"


def format_names(names: Iterable[str]) -> str:
    first = list(names)
    rest = f" and {len(first) - _MAX_NAMES} more" if len(first) > _MAX_NAMES else ""
    return ", ".join(first[:_MAX_NAMES]) + rest
