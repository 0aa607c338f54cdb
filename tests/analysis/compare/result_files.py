"""Scores written as the result files that others leave, and a finished study of the same scores."""

import csv
import hashlib
import json
import uuid
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import study

Scores = Mapping[str, Sequence[Sequence[float]]]  # by arm, [problem][seed]

SCORES: Scores = {
    "crystal": [[(i * 7 + s) % 11 < 8 for s in range(2)] for i in range(60)],
    "snapkv": [[(i * 5 + s) % 9 < 6 for s in range(2)] for i in range(60)],
    "h2o": [[(i * 3 + 2 * s) % 7 < 3 for s in range(2)] for i in range(60)],
}


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def ids(count: int) -> list[str]:
    return [f"p{i:03d}" for i in range(count)]


def lm_eval(path: Path, scores: Sequence[float], metric: str = "exact_match", **own: Any) -> Path:
    """Samples as 0.4.13 writes them. own: more fields of every line."""
    lines = []
    for number, score in enumerate(scores):
        doc = {"question": f"question {number}", "template": f"t{number % 12}"}
        line = {
            "doc_id": number,
            "doc": doc,
            "target": str(number),
            "arguments": {"gen_args_0": {"arg_0": f"Q: {number}", "arg_1": {"until": ["\n"]}}},
            "resps": [["7"]],
            "filtered_resps": ["7"],
            "filter": "none",
            "metrics": [metric],
            "doc_hash": sha(json.dumps(doc)),
            "prompt_hash": sha(f"Q: {number}"),
            "target_hash": sha(str(number)),
            metric: float(score),
        }
        lines.append(json.dumps(line | own))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def inspect_log(scores: Sequence[Sequence[float]], words: bool = True) -> dict[str, Any]:
    """A log as 0.3.285 writes it in JSON. words: 1 and 0 as C and I. Messages have other ids in every run."""
    samples = [
        {
            "id": name,
            "epoch": epoch,
            "input": [{"id": uuid.uuid4().hex, "role": "user", "content": f"question {name}"}],
            "target": name,
            "metadata": {"template": f"t{number % 12}"},
            "scores": {"match": {"value": ("C" if score else "I") if words else float(score)}},
        }
        for number, (name, seeds) in enumerate(zip(ids(len(scores)), scores, strict=True))
        for epoch, score in enumerate(seeds, start=1)
    ]
    return {"version": 2, "status": "success", "eval": {"task": "toy", "model": "m"}, "samples": samples}


def inspect_zip(path: Path, log: Mapping[str, Any]) -> Path:
    """An .eval file, packed as the standard library can."""
    header = {name: value for name, value in log.items() if name != "samples"}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("_journal/start.json", json.dumps(header))
        for sample in log["samples"]:
            packed.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample))
        packed.writestr("header.json", json.dumps(header))
    return path


def table(path: Path, scores: Scores, **columns: Sequence[str]) -> Path:
    """A CSV of every arm. columns: more of them, by problem."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "arm", "seed", "score", *columns])
        for arm, problems in scores.items():
            for number, (name, seeds) in enumerate(zip(ids(len(problems)), problems, strict=True)):
                for seed, score in enumerate(seeds):
                    writer.writerow([name, arm, seed, float(score), *(column[number] for column in columns.values())])
    return path


def finished(folder: Path, scores: Scores, **decision: Any) -> Path:
    """A study whose records have these grades, its memory matched, and a verdict file beside them."""

    def record(lane: study.Lane) -> Mapping[str, Any]:
        _, _, _, arm, seed, problem = lane
        right = arm == "full" or scores[arm][int(problem[1:])][seed]
        return {"grade": "correct" if right else "wrong"}

    made = study.write(folder, study.content(**decision), len(scores["crystal"]), record)
    (made / "verdict.json").write_text(json.dumps({"judged": {"verdict": "INCONCLUSIVE"}}))
    return made
