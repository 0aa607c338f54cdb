"""Recognises the kind of a result file and reads its rows by arm."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from analysis.compare import (
    csv_tables,
    inspect_logs,
    kvpress_predictions,
    lm_eval_samples,
    registered_study,
    untrusted_files,
)
from analysis.compare.scored_answers import ReadOptions, ResultError, ResultFile, ScoredAnswer

KNOWN = (
    "samples_*.jsonl of lm-eval, a log of inspect_ai, predictions.csv of kvpress, a CSV with id and score, "
    "or a judged registration"
)


class Results(NamedTuple):
    rows: list[ScoredAnswer]  # every row has the name of its arm
    notes: list[str]
    subject: str | None  # the subject of a registered study


def read_results(arguments: Iterable[str], options: ReadOptions) -> Results:
    """Read the rows of every path, each "PATH" or "NAME=PATH".

    A file without arms is one arm. Its name is the given one, or the shortest part of its path that
    distinguishes the files. Raises ResultError, and OSError.
    """
    named_paths = [_split_name(argument) for argument in arguments]
    labels = _distinct_names([path for _, path in named_paths])
    rows: list[ScoredAnswer] = []
    notes: list[str] = []
    subject = None
    for (name, path), label in zip(named_paths, labels, strict=True):
        kinds = []
        for file in _list_files(path):
            contents = read_file(file, options)
            kinds.append(contents.kind)
            notes += contents.notes
            subject = subject or contents.subject
            has_arms = any(row.arm for row in contents.rows)
            if has_arms and name is not None and len({row.arm for row in contents.rows}) > 1:
                raise ResultError(f"{path}: arm: the file itself names several arms; leave out {name!r}")
            rows += [row if row.arm and name is None else row._replace(arm=name or label) for row in contents.rows]
        notes.append(f"{path}: {', '.join(dict.fromkeys(kinds))}")
    return Results(rows, notes, subject)


def _split_name(argument: str) -> tuple[str | None, Path]:
    """Split NAME=PATH, unless the whole argument is an existing path that contains "="."""
    name, equals, path = argument.partition("=")
    if equals and name and not Path(argument).exists():
        return name, Path(path)
    return None, Path(argument)


def _distinct_names(paths: list[Path]) -> list[str]:
    """Return the stems, else the folder names, else the whole paths: the first that are distinct."""
    for names in ([path.stem for path in paths], [path.absolute().parent.name for path in paths]):
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def _list_files(path: Path) -> list[Path]:
    """Return the result files of a path: the file itself, or those that a harness leaves in a folder."""
    if not path.is_dir():
        return [path]
    if (path / "lock.json").exists():
        return [path]
    if (path / "predictions.csv").exists():
        return [path / "predictions.csv"]
    files = sorted([*path.glob("samples_*.jsonl"), *path.glob("*/samples_*.jsonl")])
    tasks = [lm_eval_samples.task_of(file) for file in files]
    for task in tasks:
        if tasks.count(task) > 1:
            raise ResultError(f"{path}: has {tasks.count(task)} files of the task {task!r}; name one of them")
    if not files:
        raise ResultError(f"{path}: contains no known result file; name {KNOWN}")
    return files


def read_file(path: Path, options: ReadOptions) -> ResultFile:
    """Read one file, or a judged registration. Raises ResultError."""
    if path.is_dir():
        return registered_study.study_rows(path)
    data = untrusted_files.read_bytes(path)
    start = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if data[:4] == b"PK\x03\x04":
        return inspect_logs.read_zip(path, data, options)
    if not start:
        raise ResultError(f"{path}: is empty; name {KNOWN}")
    if start in b"{[":
        return _read_json(path, data, options)
    rows = csv_tables.read_rows(path, data)
    _, header = next(rows)
    if "score" not in header and kvpress_predictions.PREDICTED in header and options.metric is None:
        return kvpress_predictions.read_predictions(path, rows, lambda name: _read_sibling(path.parent / name), options)
    if "id" not in header:
        raise ResultError(f"{path}: line 1: id: is not among the columns {', '.join(header)[:80]!r}; name {KNOWN}")
    return csv_tables.read_table(rows, options)


def _read_json(path: Path, data: bytes, options: ReadOptions) -> ResultFile:
    """Read one document, or one a line; the first line distinguishes a log, indented or not, from samples."""
    if path.suffix != ".jsonl" and data.lstrip()[:1] == b"{":
        log = untrusted_files.parse_json(data, str(path))
        if isinstance(log, Mapping) and "eval" in log:
            return inspect_logs.read_json(path, log, options)
        if isinstance(log, Mapping) and "results" in log and "doc_id" not in log:
            raise ResultError(f"{path}: samples: are missing; run lm-eval again with --log_samples")
    return lm_eval_samples.read_samples(path, data, options)


def _read_sibling(path: Path) -> bytes | None:
    return untrusted_files.read_bytes(path) if path.exists() else None
