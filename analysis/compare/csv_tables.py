"""Reads tables of scores in CSV: columns `id` and `score`; optionally `arm`, `task`, `cluster`, `seed`, and what
was asked: `question`, `input`, `doc_hash`, `prompt`.

The predictions of kvpress are such a table without scores: see `kvpress_predictions`.
"""

import csv
import io
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from analysis.compare import untrusted_files
from analysis.compare.scored_answers import (
    ReadOptions,
    ResultError,
    ResultFile,
    ScoredAnswer,
    digest_json,
    error_metric_notes,
    parse_score,
    read_cluster,
)

KIND = "table"
QUESTION_COLUMNS = "question", "input", "doc_hash"  # columns that tell what was asked


def read_rows(path: Path, data: bytes) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield every row with its location, by the names of the header; the first is the header, {name: name}."""
    reader = csv.reader(io.StringIO(untrusted_files.decode_text(data, str(path)), newline=""), strict=True)
    try:
        header = next(reader, [])
        names = [name.strip() for name in header]
        if len(names) == 1 and (separator := next((mark for mark in ";\t|" if mark in names[0]), None)):
            raise ResultError(f"{path}: line 1: columns are separated by {separator!r}; separate them by commas")
        if len(set(names)) != len(names):
            raise ResultError(f"{path}: line 1: two columns have the same name; rename one")
        yield f"{path}: line 1", dict(zip(names, names, strict=True))
        for cells in reader:
            where = f"{path}: line {reader.line_num}"
            if len(cells) != len(names) and cells:
                raise ResultError(
                    f"{where}: has {len(cells)} cells, but the header has {len(names)}; quote each cell that "
                    "contains a comma"
                )
            if cells:
                yield where, dict(zip(names, cells, strict=True))
    except csv.Error as problem:
        raise ResultError(f"{path}: line {reader.line_num}: is not valid CSV ({problem})") from None


def read_table(rows: Iterator[tuple[str, Mapping[str, str]]], options: ReadOptions) -> ResultFile:
    """Read the rows after the header. Raises ResultError."""
    metric = options.metric or "score"
    answers = []
    for where, row in rows:
        for name in ("id", metric):
            if name not in row:
                raise ResultError(
                    f"{where}: {name}: is not a column; the columns are {', '.join(row)}; rename the one that has it"
                )
        if not row["id"]:
            raise ResultError(f"{where}: id: is empty; every problem needs an id")
        asked = [(f"{KIND}: {name}", digest_json(row[name])) for name in QUESTION_COLUMNS if row.get(name)]
        field = options.cluster or ("cluster" if "cluster" in row else None)
        answers.append(
            ScoredAnswer(
                arm=row.get("arm", ""),
                task=row.get("task", ""),
                id=row["id"],
                seed=row.get("seed", "") or "0",
                score=parse_number(row[metric], metric, where),
                cluster=None if field is None else read_cluster(row, field, where),
                question=tuple(asked),
                prompt=(KIND, digest_json(row["prompt"])) if row.get("prompt") else None,
                where=where,
            )
        )
    return ResultFile(KIND, answers, tuple(error_metric_notes(metric)))


def parse_number(text: str, name: str, where: str) -> float:
    """Parse a score; NaN for an empty cell."""
    if not text.strip():
        return math.nan
    try:
        value = float(text)
    except ValueError:
        value = None
    if value is None or "_" in text or not text.isascii():  # Python reads 0_1 as 1
        raise ResultError(f"{where}: {name}: {text[:40]!r} is not a number; write one in [0, 1]")
    return parse_score(value, name, where)
