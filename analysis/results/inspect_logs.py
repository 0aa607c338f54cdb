"""Reads logs of inspect_ai: a JSON document, or a zip file of its header and one document for each sample
(.eval).
"""

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.results import bounded
from analysis.results.rows import Found, ResultError, Row, Wanted, at, chosen, digest, errors, score

__all__ = ["read", "read_zip"]

KIND = "inspect_ai log"
HEADER = "header.json"
# As in inspect_ai (scorer/_metric.py, value_to_float); any other text is refused as a score.
WORDS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}


def read_zip(path: Path, data: bytes, wanted: Wanted) -> Found:
    """Read an .eval file. Raises ResultError."""
    header, samples = None, []
    for name, member in bounded.members(data, str(path), _read):
        read = bounded.parsed(member, f"{path}: {name}")
        if name == HEADER:
            header = read
        else:
            samples.append((f"{path}: {name}", read))
    if header is None:
        raise ResultError(
            f"{path}: header.json: is missing; the log did not finish, or is none of inspect_ai"
        )
    return _found(path, header, samples, wanted)


def _read(name: str) -> bool:
    return name == HEADER or (name.startswith("samples/") and name.endswith(".json"))


def read(path: Path, log: Mapping[str, Any], wanted: Wanted) -> Found:
    """Read a log in JSON. Raises ResultError."""
    samples = log.get("samples")
    if not isinstance(samples, list):
        raise ResultError(f"{path}: samples: are missing; a header alone has no scores to pair")
    places = [(f"{path}: sample {number}", one) for number, one in enumerate(samples, start=1)]
    return _found(path, log, places, wanted)


def _found(path: Path, header: Any, samples: list[tuple[str, Any]], wanted: Wanted) -> Found:
    header = _mapping(header, "header", str(path))
    if header.get("invalidated"):
        raise ResultError(f"{path}: invalidated: somebody marked this log as not to be used")
    status = header.get("status")
    if status != "success" and not wanted.common:
        raise ResultError(f"{path}: status: {status!r}: the log did not finish; --common takes what it has")
    task = _mapping(header.get("eval"), "eval", str(path)).get("task", "")
    each = [(where, _mapping(sample, "sample", where)) for where, sample in samples]
    metric = chosen(
        wanted.metric,
        (name for where, sample in each for name in _scores(sample, where)),
        "metric",
        str(path),
    )
    rows = [_row(str(task), where, sample, metric, wanted) for where, sample in each]
    said = [f"{path.name}: status {status!r}"] if status != "success" else []
    limited = Counter(_limit(sample) for _, sample in each if sample.get("limit") is not None)
    said += [f"{path.name}: {count} samples ran into the limit of {kind}" for kind, count in limited.items()]
    return Found(KIND, rows, (*said, *errors(metric)))


def _limit(sample: Mapping[str, Any]) -> str:
    limit = sample["limit"]
    return str(limit.get("type")) if isinstance(limit, Mapping) else str(limit)


def _row(task: str, where: str, sample: Mapping[str, Any], metric: str, wanted: Wanted) -> Row:
    for name in ("id", "epoch"):
        if isinstance(sample.get(name), bool) or not isinstance(sample.get(name), int | str):
            raise ResultError(f"{where}: {name}: is missing; a sample of inspect_ai has one")
    asked = [sample.get(name) for name in ("target", "choices")]
    cluster = None
    if wanted.cluster is not None:
        cluster = at(_mapping(sample.get("metadata"), "metadata", where), wanted.cluster, where)
    value = _scores(sample, where).get(metric)
    return Row(
        arm="",
        task=task,
        id=str(sample["id"]),
        seed=str(sample["epoch"]),
        score=math.nan if value is None else _number(value, metric, where),
        cluster=cluster,
        question=(KIND, digest(_said(sample.get("input")), *asked)),
        prompt=None,
        where=where,
        measure=((f"metric of an {KIND}", metric),),
    )


def _scores(sample: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return values by scorer, and by scorer/key if it gives several; none for a sample that ended in an
    error.
    """
    if sample.get("error") is not None:
        return {}
    found: dict[str, Any] = {}
    for name, given in _mapping(sample.get("scores") or {}, "scores", where).items():
        value = _mapping(given, f"scores.{name}", where).get("value")
        if isinstance(value, Mapping):
            found |= {f"{name}/{key}": one for key, one in value.items()}
        else:
            found[name] = value
    return found


def _number(value: Any, name: str, where: str) -> float:
    return WORDS[value] if isinstance(value, str) and value in WORDS else score(value, name, where)


def _said(given: Any) -> Any:
    """Return the input without the ids that each run gives to its messages."""
    if isinstance(given, list):
        return list(map(_said, given))
    if isinstance(given, Mapping):
        return {name: _said(one) for name, one in given.items() if name != "id"}
    return given


def _mapping(value: Any, name: str, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ResultError(f"{where}: {name}: is not an object; is this a log of inspect_ai?")
    return value
