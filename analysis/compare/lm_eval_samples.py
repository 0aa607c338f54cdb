"""Reads samples of lm-eval (`--log_samples`): one JSON object a line, for a problem and a filter.

Supports lm-eval 0.4.0 (a JSON list, no filter, no hashes) to 0.4.13. A task of RULER scores each of its
lengths under its own metric, with -1 for problems of another length; these rows are left out.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from analysis.compare import untrusted_files
from analysis.compare.scored_answers import (
    ReadOptions,
    ResultError,
    ResultFile,
    ScoredAnswer,
    choose_name,
    digest_json,
    error_metric_notes,
    parse_score,
    read_cluster,
)

KIND = "lm-eval samples"
# The fields of a line that are no metrics.
FIELDS = {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics", "doc_hash"}
FIELDS |= {"prompt_hash", "target_hash", "task_name", "prompt", "logit_0", "truth"}
QUESTION_FIELDS = "doc", "doc_hash", "target", "target_hash"
_NAME = re.compile(r"samples_(.+?)(_\d{4}-\d\d-\d\dT[\d.-]+)?\.jsonl?$")


def task_of(path: Path) -> str:
    """Return the task in the name of the file; "" for another name."""
    match = _NAME.match(path.name)
    return match[1] if match else ""


def read_samples(path: Path, data: bytes, options: ReadOptions) -> ResultFile:
    """Read every problem under the chosen metric and filter. Raises ResultError."""
    records = list(_read_records(path, data))
    metrics = dict.fromkeys(name for _, record in records for name in _metric_names(record))
    metric = choose_name(options.metric, metrics, "metric", str(path))
    filters = dict.fromkeys(str(record.get("filter", "none")) for _, record in records)
    filter_name = choose_name(options.filter, filters, "filter", str(path))
    rows, other_length = [], 0
    measure: tuple[tuple[str, str], ...] = ((f"metric of {KIND}", metric),)
    if any("filter" in record for _, record in records):
        measure += ((f"filter of {KIND}", filter_name),)
    for where, record in records:
        if str(record.get("filter", "none")) != filter_name:
            continue
        value = record.get(metric)
        if value is None:
            raise ResultError(f"{where}: {metric}: is missing; every problem needs a score")
        if value == -1 and metric.isdecimal():
            other_length += 1
            continue
        row = _to_answer(path, where, record, parse_score(value, metric, where), options)
        rows.append(row._replace(measure=measure))
    notes = [f"{path.name}: metric {metric}, filter {filter_name}"] if len(metrics) > 1 or len(filters) > 1 else []
    notes += error_metric_notes(metric)
    if other_length:
        notes.append(f"{path.name}: {other_length} problems whose length differs from {metric} are left out")
    return ResultFile(KIND, rows, tuple(notes))


def _read_records(path: Path, data: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if data.lstrip()[:1] == b"[":
        items = untrusted_files.parse_json(data, str(path))
        located = [(f"{path}: item {number}", item) for number, item in enumerate(items, start=1)]
    else:
        lines = enumerate(data.split(b"\n"), start=1)
        nonempty = ((f"{path}: line {number}", line) for number, line in lines if line.strip())
        located = [(where, untrusted_files.parse_json(line, where)) for where, line in nonempty]
    for where, record in located:
        if not isinstance(record, Mapping) or "doc_id" not in record:
            raise ResultError(
                f"{where}: doc_id: is missing; name a samples_*.jsonl that lm-eval wrote with --log_samples"
            )
        yield where, record


def _metric_names(record: Mapping[str, Any]) -> list[str]:
    if isinstance(declared := record.get("metrics"), list):
        return [str(name) for name in declared]
    return [name for name, value in record.items() if name not in FIELDS and isinstance(value, int | float)]


def _to_answer(path: Path, where: str, record: Mapping[str, Any], value: float, options: ReadOptions) -> ScoredAnswer:
    number = record["doc_id"]
    if isinstance(number, bool) or not isinstance(number, int | str):
        raise ResultError(f"{where}: doc_id: {number!r} is not an id; it must be a number or a text")
    cluster = None
    if options.cluster is not None:
        doc = record.get("doc")
        cluster = read_cluster(doc if isinstance(doc, Mapping) else record, options.cluster, where)
    return ScoredAnswer(
        task=task_of(path),
        id=str(number),
        score=value,
        cluster=cluster,
        question=tuple((f"{KIND}: {name}", digest_json(record[name])) for name in QUESTION_FIELDS if name in record),
        prompt=_prompt_digest(record),
        where=where,
    )


def _prompt_digest(record: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what identifies the prompt: its hash, or for older files the digest of the arguments."""
    if isinstance(recorded := record.get("prompt_hash"), str):
        return f"{KIND}: prompt_hash", recorded
    return (f"{KIND}: arguments", digest_json(record["arguments"])) if "arguments" in record else None
