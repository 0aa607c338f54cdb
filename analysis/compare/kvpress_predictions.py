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

from analysis.compare import untrusted_files
from analysis.compare.scored_answers import (
    ReadOptions,
    ResultError,
    ResultFile,
    ScoredAnswer,
    digest_json,
    read_cluster,
)

KIND = "kvpress predictions"
PREDICTED = "predicted_answer"
_TEXT = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_CONTROLS = re.compile(r"[\x00-\x1f]")
_MODEL = re.compile(r"^model: *['\"]?([^\s'\"]+)['\"]? *$", re.MULTILINE)
_DATASET = re.compile(r"^dataset: *['\"]?([\w-]+)['\"]? *$", re.MULTILINE)


def match_strings(predicted: str, row: Mapping[str, str], where: str) -> float:
    """Return RULER's score: the share of the references that the answer contains, ignoring case; for tasks
    `qa` whether it contains any.
    """
    text = _CONTROLS.sub("", predicted.strip()).strip().lower()
    matches = [reference.lower() in text for reference in parse_texts(row["answer"], where)]
    return float(any(matches)) if row.get("task", "").startswith("qa") else sum(matches) / len(matches)


def match_boxed(predicted: str, row: Mapping[str, str], where: str) -> float:
    """Return aime25's score: whether the text after the last `boxed{`, up to the first brace, is the answer.
    Without such a box the whole text is compared.
    """
    return float(predicted.split("boxed{")[-1].split("}")[0] == row["answer"])


def match_first_boxed(predicted: str, row: Mapping[str, str], where: str) -> float:
    """Return math500's score: as aime25, after the first `boxed{`; wrong without one."""
    parts = predicted.split("boxed{")
    return float(len(parts) > 1 and parts[1].split("}")[0] == row["answer"])


def match_letter(predicted: str, row: Mapping[str, str], where: str) -> float:
    """Return longbenchv2's score: whether the answer contains the requested sentence, ignoring asterisks."""
    text, answer = predicted.replace("*", ""), row["answer"]
    return float(any(f"The correct answer is {form}" in text for form in (f"({answer})", answer)))


Scorer = Callable[[str, Mapping[str, str], str], float]
# by the name of the data set in config.yaml
SCORERS: Mapping[str, Scorer] = MappingProxyType(
    {"ruler": match_strings, "aime25": match_boxed, "math500": match_first_boxed, "longbenchv2": match_letter}
)


def read_predictions(
    path: Path,
    rows: Iterator[tuple[str, Mapping[str, str]]],
    read_sibling: Callable[[str], bytes | None],
    options: ReadOptions,
) -> ResultFile:
    """Read the rows after the header. read_sibling: returns the bytes of a file in the same folder, if any."""
    config = read_sibling("config.yaml")
    settings = untrusted_files.decode_text(config, f"{path.parent}: config.yaml") if config else ""
    dataset = match[1] if (match := _DATASET.search(settings)) else "ruler"
    model = match[1] if (match := _MODEL.search(settings)) else ""
    if dataset not in SCORERS:
        raise ResultError(
            f"{path}: dataset: {dataset!r} needs a scorer that is not installed; add columns `id` and "
            f"`score` to the table (scored here: {', '.join(SCORERS)})"
        )
    answers = []
    for number, (where, row) in enumerate(rows, start=1):
        for name in (PREDICTED, "answer"):
            if name not in row:
                raise ResultError(f"{where}: {name}: is not a column; name a predictions.csv of kvpress's evaluation")
        task, answer = row.get("task", ""), row["answer"]
        answers.append(
            ScoredAnswer(
                task=task,
                id=str(number),
                score=SCORERS[dataset](row[PREDICTED], row, where),
                cluster=None if options.cluster is None else read_cluster(row, options.cluster, where),
                question=((KIND, digest_json(task, answer)),),
                prompt=(KIND, digest_json(row.get("question", ""), row.get("answer_prefix", ""))),
                where=where,
                measure=((f"dataset of {KIND}", dataset),),
            )
        )
    metrics = read_sibling("metrics.json")
    if metrics is None:
        return ResultFile(
            KIND,
            answers,
            (f"{path}: there is no metrics.json next to it, so that its scores cannot be checked",),
            model=model,
        )
    _check_means(path, dataset, answers, untrusted_files.parse_json(metrics, f"{path.parent}: metrics.json"))
    return ResultFile(KIND, answers, model=model)


def parse_texts(text: str, where: str) -> list[str]:
    """Parse the texts of a list as pandas prints it, with commas between them, or as numpy does, without.

    Texts are parsed one by one: Python would join two literals without a comma.
    """
    inner = text.strip()
    rest = _TEXT.sub("", inner)
    if inner.startswith("[") and not rest.strip("[], \n"):
        if texts := [str(ast.literal_eval(literal)) for literal in _TEXT.findall(inner)]:
            return texts
    elif inner and not inner.startswith("["):
        return [inner]
    raise ResultError(f"{where}: answer: {text[:40]!r} is not a list of texts; use the table as kvpress wrote it")


def _check_means(path: Path, dataset: str, rows: list[ScoredAnswer], metrics: Any) -> None:
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
        recorded = metrics
        for key in name.split("."):
            recorded = recorded.get(key) if isinstance(recorded, Mapping) else None
        if not isinstance(recorded, int | float) or abs(recorded - mean) > 0.00501:
            raise ResultError(
                f"{path.parent}: metrics.json: {name}: is {recorded}, but the answers of {path.name} give "
                f"{mean:.2f}; the two files are from different runs"
            )
