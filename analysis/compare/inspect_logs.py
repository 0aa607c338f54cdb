"""Reads logs of inspect_ai: a JSON document, or a zip file of its header and one document for each sample (.eval)."""

import math
from collections import Counter
from collections.abc import Mapping
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

KIND = "inspect_ai log"
HEADER = "header.json"
SAID = {"model": "model", "made": "created", "run": "eval_id"}  # of a run, and where a log says it
# As in inspect_ai (scorer/_metric.py, value_to_float); any other text is refused as a score.
WORDS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}


def read_zip(path: Path, data: bytes, options: ReadOptions) -> ResultFile:
    """Read an .eval file. Raises ResultError."""
    header, samples = None, []
    for name, member in untrusted_files.zip_members(data, str(path), _is_log_member):
        content = untrusted_files.parse_json(member, f"{path}: {name}")
        if name == HEADER:
            header = content
        else:
            samples.append((f"{path}: {name}", content))
    if header is None:
        raise ResultError(f"{path}: header.json: is missing; the log did not finish, or it is not a log of inspect_ai")
    return _collect_rows(path, header, samples, options)


def _is_log_member(name: str) -> bool:
    return name == HEADER or (name.startswith("samples/") and name.endswith(".json"))


def read_json(path: Path, log: Mapping[str, Any], options: ReadOptions) -> ResultFile:
    """Read a log in JSON. Raises ResultError."""
    samples = log.get("samples")
    if not isinstance(samples, list):
        raise ResultError(f"{path}: samples: are missing; a log with only a header has no scores to pair")
    located = [(f"{path}: sample {number}", sample) for number, sample in enumerate(samples, start=1)]
    return _collect_rows(path, log, located, options)


def _collect_rows(path: Path, header: Any, samples: list[tuple[str, Any]], options: ReadOptions) -> ResultFile:
    header = _require_mapping(header, "header", str(path))
    if header.get("invalidated"):
        raise ResultError(f"{path}: invalidated: this log was marked as invalid; run the evaluation again")
    status = header.get("status")
    if status != "success" and not options.common:
        raise ResultError(
            f"{path}: status: {status!r}: the log did not finish; --common compares the samples that it has"
        )
    run = _require_mapping(header.get("eval"), "eval", str(path))
    checked = [(where, _require_mapping(sample, "sample", where)) for where, sample in samples]
    metric = choose_name(
        options.metric,
        (name for where, sample in checked for name in _sample_scores(sample, where)),
        "metric",
        str(path),
    )
    rows = [_to_answer(str(run.get("task", "")), where, sample, metric, options) for where, sample in checked]
    notes = [f"{path.name}: status {status!r}"] if status != "success" else []
    limits = Counter(_limit_kind(sample) for _, sample in checked if sample.get("limit") is not None)
    notes += [f"{path.name}: {count} samples reached their limit ({kind})" for kind, count in limits.items()]
    said = {name: str(run.get(field, "")) for name, field in SAID.items()}
    return ResultFile(KIND, rows, (*notes, *error_metric_notes(metric)), **said)


def _limit_kind(sample: Mapping[str, Any]) -> str:
    limit = sample["limit"]
    return str(limit.get("type")) if isinstance(limit, Mapping) else str(limit)


def _to_answer(task: str, where: str, sample: Mapping[str, Any], metric: str, options: ReadOptions) -> ScoredAnswer:
    for name in ("id", "epoch"):
        if isinstance(sample.get(name), bool) or not isinstance(sample.get(name), int | str):
            raise ResultError(f"{where}: {name}: is missing; every sample of inspect_ai has this field")
    question_fields = [sample.get(name) for name in ("target", "choices")]
    cluster = None
    if options.cluster is not None:
        cluster = read_cluster(_require_mapping(sample.get("metadata"), "metadata", where), options.cluster, where)
    value = _sample_scores(sample, where).get(metric)
    return ScoredAnswer(
        task=task,
        id=str(sample["id"]),
        seed=str(sample["epoch"]),
        score=math.nan if value is None else _score_value(value, metric, where),
        cluster=cluster,
        question=((KIND, digest_json(_without_ids(sample.get("input")), *question_fields)),),
        where=where,
        measure=((f"metric of an {KIND}", metric),),
    )


def _sample_scores(sample: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return values by scorer, and by scorer/key if it gives several; none for a sample that ended in an error."""
    if sample.get("error") is not None:
        return {}
    scores: dict[str, Any] = {}
    for name, entry in _require_mapping(sample.get("scores") or {}, "scores", where).items():
        value = _require_mapping(entry, f"scores.{name}", where).get("value")
        if isinstance(value, Mapping):
            scores |= {f"{name}/{key}": part for key, part in value.items()}
        else:
            scores[name] = value
    return scores


def _score_value(value: Any, name: str, where: str) -> float:
    return WORDS[value] if isinstance(value, str) and value in WORDS else parse_score(value, name, where)


def _without_ids(value: Any) -> Any:
    """Return the input without the ids that each run gives to its messages."""
    if isinstance(value, list):
        return list(map(_without_ids, value))
    if isinstance(value, Mapping):
        return {name: _without_ids(item) for name, item in value.items() if name != "id"}
    return value


def _require_mapping(value: Any, name: str, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ResultError(f"{where}: {name}: is not an object; this is not a log of inspect_ai")
    return value
