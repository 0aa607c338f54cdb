"""One scored answer of a result file, and what a person chose of a file that holds several readings."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from analysis.studies.plain_files import RecordError

__all__ = ["Found", "ResultError", "Row", "Wanted", "at", "chosen", "digest", "errors", "score"]

# Metrics of which less is better.
ERRORS = {"wer", "cer", "ter", "mer", "brier", "perplexity", "word_perplexity", "byte_perplexity"}
ERRORS |= {"bits_per_byte", "loss", "nll", "error", "error_rate", "ece", "edit_distance", "levenshtein"}
NAMES = 12  # of a list of names in a refusal


class ResultError(RecordError):
    """A result file that cannot be compared; one line names the file, line, field and what to do."""


class Row(NamedTuple):
    """arm: "" where the file is one arm. score: in [0, 1]; NaN where the file says that there is none.

    question, prompt: (what was digested, digest) of what identifies the question, and of the text that the
    model was given; None where the file does not tell. Of two rows they are compared where the first parts
    are alike. where: file and line. measure: what the score is, by kind, as far as the file tells: two arms
    are compared under one.
    """

    arm: str
    task: str
    id: str
    seed: str
    score: float
    cluster: str | None
    question: tuple[str, str] | None
    prompt: tuple[str, str] | None
    where: str
    measure: tuple[tuple[str, str], ...] = ()


class Found(NamedTuple):
    """What a file holds. kind: of file, in words. said: what a reader of numbers has to know of it.
    subject: the arm that a registered study is about.
    """

    kind: str
    rows: list[Row]
    said: tuple[str, ...] = ()
    subject: str | None = None


class Wanted(NamedTuple):
    """metric, filter: of files with several. cluster: the field that names clusters. common: whether what is
    not whole may be left out.
    """

    metric: str | None = None
    filter: str | None = None
    cluster: str | None = None
    common: bool = False


def score(value: Any, name: str, where: str) -> float:
    """Raises ResultError for what is no number in [0, 1]."""
    if not isinstance(value, bool | int | float):
        raise ResultError(
            f"{where}: {name}: {_short(value)} is no number; choose another metric: --metric NAME"
        )
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ResultError(
            f"{where}: {name}: {number} is not finite; leave the score empty where there is none"
        )
    if not 0 <= number <= 1:
        raise ResultError(f"{where}: {name}: {number:.12g} lies outside [0, 1]; divide percentages by 100")
    return number + 0.0  # of -0.0 the zero


def errors(metric: str) -> list[str]:
    """What has to be said of a metric that counts errors, by its usual names."""
    if metric.lower().rsplit("/", 1)[-1].removesuffix("_score") not in ERRORS:
        return []
    return [f"{metric}: less of it is better: where the first arm has more, it is the worse one"]


def chosen(name: str | None, names: Iterable[str], option: str, where: str) -> str:
    """The one of `names` that is there or that was asked for; else a refusal that offers them."""
    there = list(dict.fromkeys(names))
    if name is None and len(there) == 1:
        return there[0]
    offered = ", ".join(there[:NAMES]) + (", ..." if len(there) > NAMES else "")
    if not there:
        raise ResultError(f"{where}: {option}: there is none; name a file with a score for each problem")
    if name is None:
        raise ResultError(f"{where}: {option}: there are {len(there)}; choose one with --{option}: {offered}")
    if name not in there:
        raise ResultError(f"{where}: {option}: {name!r} is not there; choose one of {offered}")
    return name


def at(record: Mapping[str, Any], path: str, where: str) -> str:
    """The text of a field, of fields in it where the path has dots. Raises ResultError, with the names."""
    value: Any = record
    if path in record:
        return _label(record[path], path, where)
    for step in path.split("."):
        if not isinstance(value, Mapping) or step not in value:
            there = ", ".join(map(str, list(value)[:NAMES])) if isinstance(value, Mapping) else "no fields"
            raise ResultError(f"{where}: {path}: is not there; --cluster takes one of: {there}")
        value = value[step]
    return _label(value, path, where)


def digest(*values: Any) -> str:
    """SHA-256 of JSON values."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _label(value: Any, path: str, where: str) -> str:
    if isinstance(value, Mapping | list) or value is None or value == "":
        raise ResultError(f"{where}: {path}: {_short(value)} names no cluster; it is a text or a number")
    return str(value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
