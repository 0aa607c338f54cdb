"""The scores of a judged study of ours: every registered lane, by its rule for lanes without a grade."""

import math
from pathlib import Path
from typing import Any

from analysis.results.rows import Found, Row
from analysis.rules.rule import FULL
from analysis.studies import contrasts
from analysis.studies.study_files import EXCLUDED, Study, read

__all__ = ["judged", "rows"]

KIND = "registered study"


def judged(folder: Path) -> Study:
    """Read the lanes of FOLDER. Raises RecordError without a verdict: nothing is derived from held-out
    records while a study runs.
    """
    contrasts.verdict(folder)
    return read(folder)


def rows(folder: Path) -> Found:
    """Return the scores. Every (model, task, budget) becomes a task; arms that never evict appear in each
    budget.
    """
    study = contrasts.counted(judged(folder)).study
    content = study.lock["protocol"]["content"]
    several = len(content["models"]) * len(content["budgets"]) > 1
    lanes = study.lanes[study.lanes["state"] != EXCLUDED]
    left_out = len(study.lanes) - len(lanes)
    found = []
    for model, task, budget, arm, seed, problem, correct in zip(
        *(lanes[name] for name in ("model", "task", "budget", "arm", "seed", "problem", "correct")),
        strict=True,
    ):
        label = study.lock["items"][task].get("clusters", {}).get(problem)
        for at in content["budgets"] if budget == FULL else [budget]:
            place = f"{task} {model} budget {at}" if several else task
            score = math.nan if correct is None else float(correct)
            where = f"{folder}: {arm} {problem}"
            found.append(
                Row(arm, place, problem, str(seed), score, label, _asked(task, problem), None, where)
            )
    said = [f"{folder}: its own verdict is the registered one; this is another look at the same lanes"]
    said += [f"{folder}: {left_out} lanes of excluded problems are left out"] if left_out else []
    return Found(KIND, found, tuple(said), content["decision"]["subject"])


def _asked(task: str, problem: str) -> Any:
    return (KIND, f"{task} {problem}")
