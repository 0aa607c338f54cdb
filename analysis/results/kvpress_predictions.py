"""Reads predictions of kvpress's evaluation: predictions.csv has no scores, metrics.json only their mean.

The scores of the problems are computed here as its evaluation computes them (NVIDIA/kvpress 8bb29b9,
evaluation/benchmarks/*/calculate_metrics.py), for the benchmarks whose scorers need no other package. They
are refused if their mean differs from the one in metrics.json. A row has no id: its number identifies the
problem, and its reference answer must equal that of the same row in another file.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from analysis.results import bounded
from analysis.results.rows import Found, ResultError, Row, Wanted, at, digest

__all__ = ["boxed", "letter", "read", "several", "string_match"]

KIND = "kvpress predictions"
PREDICTED = "predicted_answer"
_TEXT = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_CONTROLS = re.compile(r"[\x00-\x1f]")
_DATASET = re.compile(r"^dataset: *['\"]?([\w-]+)['\"]? *$", re.MULTILINE)


def string_match(predicted: str, row: Mapping[str, str], where: str) -> float:
    """Return RULER's score: the share of the references that the answer contains, ignoring case; for tasks
    `qa` whether it contains any.
    """
    text = _CONTROLS.sub("", predicted.strip()).strip().lower()
    found = [one.lower() in text for one in several(row["answer"], where)]
    return float(any(found)) if row.get("task", "").startswith("qa") else sum(found) / len(found)


def boxed(predicted: str, row: Mapping[str, str], where: str) -> float:
    """Return aime25's score: whether the text after the last `boxed{`, up to the first brace, is the answer.
    Without such a box the whole text is compared.
    """
    return float(predicted.split("boxed{")[-1].split("}")[0] == row["answer"])


def first_boxed(predicted: str, row: Mapping[str, str], where: str) -> float:
    """Return math500's score: as aime25, after the first `boxed{`; wrong without one."""
    parts = predicted.split("boxed{")
    return float(len(parts) > 1 and parts[1].split("}")[0] == row["answer"])


def letter(predicted: str, row: Mapping[str, str], where: str) -> float:
    """Return longbenchv2's score: whether the answer contains the requested sentence, ignoring asterisks."""
    text, answer = predicted.replace("*", ""), row["answer"]
    return float(any(f"The correct answer is {one}" in text for one in (f"({answer})", answer)))


Scorer = Callable[[str, Mapping[str, str], str], float]
# by the name of the data set in config.yaml
SCORERS: Mapping[str, Scorer] = MappingProxyType(
    {"ruler": string_match, "aime25": boxed, "math500": first_boxed, "longbenchv2": letter}
)


def read(
    path: Path,
    rows: Iterator[tuple[str, Mapping[str, str]]],
    beside: Callable[[str], bytes | None],
    wanted: Wanted,
) -> Found:
    """Read the rows after the header. read_sibling: returns the bytes of a file in the same folder, None
    without one.
    """
    config = beside("config.yaml")
    named = _DATASET.search(bounded.text(config, f"{path.parent}: config.yaml")) if config else None
    dataset = named[1] if named else "ruler"
    if dataset not in SCORERS:
        raise ResultError(
            f"{path}: dataset: {dataset!r} is scored by packages that are not at hand; add columns "
            f"`id` and `score` to the table (computed here: {', '.join(SCORERS)})"
        )
    found = []
    for number, (where, row) in enumerate(rows, start=1):
        for name in (PREDICTED, "answer"):
            if name not in row:
                raise ResultError(
                    f"{where}: {name}: is no column; name predictions.csv of kvpress's evaluation"
                )
        task, answer = row.get("task", ""), row["answer"]
        found.append(
            Row(
                arm="",
                task=task,
                id=str(number),
                seed="0",
                score=SCORERS[dataset](row[PREDICTED], row, where),
                cluster=None if wanted.cluster is None else at(row, wanted.cluster, where),
                question=(KIND, digest(task, answer)),
                prompt=(KIND, digest(row.get("question", ""), row.get("answer_prefix", ""))),
                where=where,
                measure=((f"dataset of {KIND}", dataset),),
            )
        )
    metrics = beside("metrics.json")
    if metrics is None:
        return Found(KIND, found, (f"{path}: no metrics.json lies beside it to check its scores",))
    _check(path, dataset, found, bounded.parsed(metrics, f"{path.parent}: metrics.json"))
    return Found(KIND, found)


def several(text: str, where: str) -> list[str]:
    """Parse the texts of a list as pandas prints it, with commas between them, or as numpy does, without.

    Texts are parsed one by one: Python would join two literals without a comma.
    """
    inner = text.strip()
    left = _TEXT.sub("", inner)
    if inner.startswith("[") and not left.strip("[], \n"):
        if found := [str(ast.literal_eval(one)) for one in _TEXT.findall(inner)]:
            return found
    elif inner and not inner.startswith("["):
        return [inner]
    raise ResultError(f"{where}: answer: {text[:40]!r} is no list of texts; has the table been edited?")


def _check(path: Path, dataset: str, rows: list[Row], metrics: Any) -> None:
    """Raise ResultError if kvpress's own mean, in percent with two digits or as a share, is different."""
    means = {}
    if dataset == "ruler":
        by_task: dict[str, list[float]] = defaultdict(list)
        for row in rows:
            by_task[row.task].append(row.score)
        for task, scores in by_task.items():
            means[f"{task}.string_match"] = 100 * sum(scores) / len(scores)
    elif rows:
        name = "average" if dataset == "longbenchv2" else "accuracy"
        means[name] = sum(row.score for row in rows) / len(rows)
    for name, mean in means.items():
        said = metrics
        for step in name.split("."):
            said = said.get(step) if isinstance(said, Mapping) else None
        if not isinstance(said, int | float) or abs(said - mean) > 0.00501:
            raise ResultError(
                f"{path.parent}: metrics.json: {name}: says {said}, the answers of {path.name} "
                f"give {mean:.2f}; the two are not of one run"
            )
