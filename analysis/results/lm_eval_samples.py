"""Reads samples of lm-eval (`--log_samples`): one JSON object a line, for a problem and a filter.

Supports lm-eval 0.4.0 (a JSON list, no filter, no hashes) to 0.4.13. A task of RULER scores each of its
lengths under its own metric, with -1 for problems of another length; these rows are left out.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from analysis.results import bounded
from analysis.results.rows import Found, ResultError, Row, Wanted, at, chosen, digest, errors, score

__all__ = ["read", "task_of"]

KIND = "lm-eval samples"
# The fields of a line that are no metrics.
FIELDS = {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics", "doc_hash"}
FIELDS |= {"prompt_hash", "target_hash", "task_name", "prompt", "logit_0", "truth"}
_NAME = re.compile(r"samples_(.+?)(_\d{4}-\d\d-\d\dT[\d.-]+)?\.jsonl?$")


def task_of(path: Path) -> str:
    """Return the task in the name of the file; "" for another name."""
    named = _NAME.match(path.name)
    return named[1] if named else ""


def read(path: Path, data: bytes, wanted: Wanted) -> Found:
    """Read every problem under the chosen metric and filter. Raises ResultError."""
    records = list(_records(path, data))
    metrics = dict.fromkeys(name for _, record in records for name in _metrics(record))
    metric = chosen(wanted.metric, metrics, "metric", str(path))
    filters = dict.fromkeys(str(record.get("filter", "none")) for _, record in records)
    kept = chosen(wanted.filter, filters, "filter", str(path))
    rows, elsewhere = [], 0
    measure: tuple[tuple[str, str], ...] = ((f"metric of {KIND}", metric),)
    if any("filter" in record for _, record in records):
        measure += ((f"filter of {KIND}", kept),)
    for where, record in records:
        if str(record.get("filter", "none")) != kept:
            continue
        value = record.get(metric)
        if value is None:
            raise ResultError(f"{where}: {metric}: is missing; every problem has a score")
        if value == -1 and metric.isdecimal():
            elsewhere += 1
            continue
        row = _row(path, where, record, score(value, metric, where), wanted)
        rows.append(row._replace(measure=measure))
    said = [f"{path.name}: metric {metric}, filter {kept}"] if len(metrics) > 1 or len(filters) > 1 else []
    said += errors(metric)
    if elsewhere:
        said.append(f"{path.name}: {elsewhere} problems of another length than {metric} are left out")
    return Found(KIND, rows, tuple(said))


def _records(path: Path, data: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if data.lstrip()[:1] == b"[":
        every = bounded.parsed(data, str(path))
        places = [(f"{path}: item {number}", one) for number, one in enumerate(every, start=1)]
    else:
        lines = enumerate(data.split(b"\n"), start=1)
        full = ((f"{path}: line {number}", line) for number, line in lines if line.strip())
        places = [(where, bounded.parsed(line, where)) for where, line in full]
    for where, record in places:
        if not isinstance(record, Mapping) or "doc_id" not in record:
            raise ResultError(
                f"{where}: doc_id: is missing; name a samples_*.jsonl of lm-eval's --log_samples"
            )
        yield where, record


def _metrics(record: Mapping[str, Any]) -> list[str]:
    if isinstance(named := record.get("metrics"), list):
        return [str(name) for name in named]
    return [name for name, value in record.items() if name not in FIELDS and isinstance(value, int | float)]


def _row(path: Path, where: str, record: Mapping[str, Any], value: float, wanted: Wanted) -> Row:
    number = record["doc_id"]
    if isinstance(number, bool) or not isinstance(number, int | str):
        raise ResultError(f"{where}: doc_id: {number!r} is no id; it is a number or a text")
    asked = {name: record[name] for name in ("doc", "doc_hash", "target", "target_hash") if name in record}
    given = _prompt(record)
    cluster = None
    if wanted.cluster is not None:
        doc = record.get("doc")
        cluster = at(doc if isinstance(doc, Mapping) else record, wanted.cluster, where)
    return Row(
        arm="",
        task=task_of(path),
        id=str(number),
        seed="0",
        score=value,
        cluster=cluster,
        question=(f"{KIND}: {', '.join(sorted(asked))}", digest(asked)) if asked else None,
        prompt=(KIND, given) if given is not None else None,
        where=where,
    )


def _prompt(record: Mapping[str, Any]) -> str | None:
    """Return what identifies the prompt: its hash, or for older files the digest of the arguments."""
    if isinstance(known := record.get("prompt_hash"), str):
        return known
    return digest(record["arguments"]) if "arguments" in record else None
