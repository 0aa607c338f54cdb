"""A scored answer of a result file, and the options for files with several metrics, filters or clusters."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from analysis.judgement.untrusted_files import RecordError

# Metrics for which less is better.
ERROR_METRICS = {"wer", "cer", "ter", "mer", "brier", "perplexity", "word_perplexity", "byte_perplexity"}
ERROR_METRICS |= {"bits_per_byte", "loss", "nll", "error", "error_rate", "ece", "edit_distance", "levenshtein"}
MAX_NAMES = 12  # names in a refusal, at most


class ResultError(RecordError):
    """A result file that cannot be compared; one line names the file, line, field and the fix."""


class ScoredAnswer(NamedTuple):
    """A scored answer. arm: "" if the file is one arm. score: in [0, 1]; NaN if the file says that there is none.

    question: (what was digested, digest) of each part of the file that identifies the question; parts that both rows
    have must be equal. prompt: the same of the prompt; None if the file does not contain it. where: file and line.
    measure: what the score measures, by kind, as far as the file says; two arms are compared only under one.
    """

    task: str
    id: str
    score: float
    question: tuple[tuple[str, str], ...]
    where: str
    arm: str = ""
    seed: str = "0"
    cluster: str | None = None
    prompt: tuple[str, str] | None = None
    measure: tuple[tuple[str, str], ...] = ()


class ResultFile(NamedTuple):
    """The content of a result file. kind: of file, as text. notes: what a reader of the numbers must know
    about it. subject: of a registered study. model, made, run: what ran, when, as ISO 8601, and its name, which no
    other run has; empty where no file of the run says it.
    """

    kind: str
    rows: list[ScoredAnswer]
    notes: tuple[str, ...] = ()
    subject: str | None = None
    model: str = ""
    made: str = ""
    run: str = ""


class ReadOptions(NamedTuple):
    """Options of reading. metric, filter: for files with several. cluster: the field that names clusters.
    common: whether incomplete problems may be left out.
    """

    metric: str | None = None
    filter: str | None = None
    cluster: str | None = None
    common: bool = False


def parse_score(value: Any, name: str, where: str) -> float:
    """Return a score. Raises ResultError for anything but a number in [0, 1]."""
    if not isinstance(value, bool | int | float):
        raise ResultError(f"{where}: {name}: {_shorten(value)} is not a number; choose another metric: --metric NAME")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ResultError(f"{where}: {name}: {number} is not finite; leave the score empty if there is none")
    if not 0 <= number <= 1:
        raise ResultError(f"{where}: {name}: {number:.12g} is outside [0, 1]; divide percentages by 100")
    return number + 0.0  # turns -0.0 into 0.0


def error_metric_notes(metric: str) -> list[str]:
    """Return a note for a metric that counts errors, recognised by its usual names."""
    if metric.lower().rsplit("/", 1)[-1].removesuffix("_score") not in ERROR_METRICS:
        return []
    return [f"{metric}: lower is better: a positive difference means that the first arm is worse"]


def choose_name(name: str | None, names: Iterable[str], option: str, where: str) -> str:
    """Return the requested or only one of `names`. Raises ResultError, which lists them, otherwise."""
    available = list(dict.fromkeys(names))
    if name is None and len(available) == 1:
        return available[0]
    offered = ", ".join(available[:MAX_NAMES]) + (", ..." if len(available) > MAX_NAMES else "")
    if not available:
        raise ResultError(f"{where}: {option}: is missing; name a file with a score for each problem")
    if name is None:
        raise ResultError(f"{where}: {option}: there are {len(available)}; choose one with --{option}: {offered}")
    if name not in available:
        raise ResultError(f"{where}: {option}: {name!r} does not exist; choose one of {offered}")
    return name


def read_cluster(record: Mapping[str, Any], path: str, where: str) -> str:
    """Return the text of a field, or of a nested field if the path has dots. Raises ResultError, with the names."""
    value: Any = record
    if path in record:
        return _cluster_label(record[path], path, where)
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            available = ", ".join(map(str, list(value)[:MAX_NAMES])) if isinstance(value, Mapping) else "no fields"
            raise ResultError(f"{where}: {path}: does not exist; --cluster takes one of: {available}")
        value = value[key]
    return _cluster_label(value, path, where)


def digest_json(*values: Any) -> str:
    """Return the SHA-256 of JSON values."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _cluster_label(value: Any, path: str, where: str) -> str:
    if isinstance(value, Mapping | list) or value is None or value == "":
        raise ResultError(f"{where}: {path}: {_shorten(value)} does not name a cluster; it must be a text or a number")
    return str(value)


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
