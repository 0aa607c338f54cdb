"""Recognises the kind of a result file and reads its rows by arm."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from analysis.results import bounded, inspect_logs, kvpress_predictions, lm_eval_samples, registered, tables
from analysis.results.rows import Found, ResultError, Row, Wanted

__all__ = ["Read", "read"]

KNOWN = (
    "samples_*.jsonl of lm-eval, a log of inspect_ai, predictions.csv of kvpress, a CSV with id and score, "
    "or a judged registration"
)


class Read(NamedTuple):
    rows: list[Row]  # every row has the name of its arm
    said: list[str]
    subject: str | None  # the subject of a registered study


def read(named: Iterable[str], wanted: Wanted) -> Read:
    """Read the rows of every path, each "PATH" or "NAME=PATH".

    A file without arms is one arm. Its name is the given one, or the shortest part of its path that
    distinguishes the files. Raises ResultError, and OSError.
    """
    given = [_named(one) for one in named]
    names = _short([path for _, path in given])
    rows: list[Row] = []
    said: list[str] = []
    subject = None
    for (name, path), short in zip(given, names, strict=True):
        kinds = []
        for file in _files(path):
            found = _one(file, wanted)
            kinds.append(found.kind)
            said += found.said
            subject = subject or found.subject
            has_arms = any(row.arm for row in found.rows)
            if has_arms and name is not None and len({row.arm for row in found.rows}) > 1:
                raise ResultError(f"{path}: arm: the file names several itself; leave out {name!r}")
            rows += [
                row if row.arm and name is None else row._replace(arm=name or short) for row in found.rows
            ]
        said.append(f"{path}: {', '.join(dict.fromkeys(kinds))}")
    return Read(rows, said, subject)


def _named(given: str) -> tuple[str | None, Path]:
    """Split NAME=PATH, unless the whole argument is an existing path that contains "="."""
    name, equals, path = given.partition("=")
    if equals and name and not Path(given).exists():
        return name, Path(path)
    return None, Path(given)


def _short(paths: list[Path]) -> list[str]:
    """Return the stems, else the folder names, else the whole paths: the first that are distinct."""
    for names in ([path.stem for path in paths], [path.absolute().parent.name for path in paths]):
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def _files(path: Path) -> list[Path]:
    """Return the result files of a path: the file itself, or those that a harness leaves in a folder."""
    if not path.is_dir():
        return [path]
    if (path / "lock.json").exists():
        return [path]
    if (path / "predictions.csv").exists():
        return [path / "predictions.csv"]
    found = sorted([*path.glob("samples_*.jsonl"), *path.glob("*/samples_*.jsonl")])
    tasks = [lm_eval_samples.task_of(one) for one in found]
    for task in tasks:
        if tasks.count(task) > 1:
            raise ResultError(
                f"{path}: has {tasks.count(task)} files of the task {task!r}; name the one that is meant"
            )
    if not found:
        raise ResultError(f"{path}: holds no result file that is known; name {KNOWN}")
    return found


def _one(path: Path, wanted: Wanted) -> Found:
    if path.is_dir():
        return registered.rows(path)
    data = bounded.data(path)
    start = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if data[:4] == b"PK\x03\x04":
        return inspect_logs.read_zip(path, data, wanted)
    if not start:
        raise ResultError(f"{path}: is empty; name {KNOWN}")
    if start in b"{[":
        return _json(path, data, wanted)
    rows = tables.lines(path, data)
    _, header = next(rows)
    if "score" not in header and kvpress_predictions.PREDICTED in header and wanted.metric is None:
        return kvpress_predictions.read(path, rows, lambda name: _beside(path.parent / name), wanted)
    if "id" not in header:
        raise ResultError(f"{path}: line 1: id: is no column of {', '.join(header)[:80]!r}; name {KNOWN}")
    return tables.read(path, rows, wanted)


def _json(path: Path, data: bytes, wanted: Wanted) -> Found:
    """Read one document, or one a line; the first line distinguishes a log, indented or not, from samples."""
    if path.suffix != ".jsonl" and data.lstrip()[:1] == b"{":
        log = bounded.parsed(data, str(path))
        if isinstance(log, Mapping) and "eval" in log:
            return inspect_logs.read(path, log, wanted)
        if isinstance(log, Mapping) and "results" in log and "doc_id" not in log:
            raise ResultError(f"{path}: samples: are not in it; run lm-eval again with --log_samples")
    return lm_eval_samples.read(path, data, wanted)


def _beside(path: Path) -> bytes | None:
    return bounded.data(path) if path.exists() else None
