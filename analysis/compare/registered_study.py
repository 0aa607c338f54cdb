"""The scores of a judged study of ours: every registered lane, by its rule for lanes without a grade."""

import math
from pathlib import Path

from analysis.compare.scored_answers import ResultFile, ScoredAnswer
from analysis.judgement import contrasts, judged_folder
from analysis.judgement.study_files import read_study
from analysis.judgement.study_table import EXCLUDED, Study
from protocol.formats.vocabulary import FULL

KIND = "registered study"


def read_judged(folder: Path) -> Study:
    """Read the lanes of FOLDER. Raises RecordError without a verdict: nothing is derived from held-out
    records while a study runs.
    """
    judged_folder.read_judged(folder)
    return read_study(folder)


def study_rows(folder: Path) -> ResultFile:
    """Return the scores. Every (model, task, budget) becomes a task; arms that never evict appear in each
    budget. Neighbours, at which comparators alone run, are left out.
    """
    study = contrasts.apply_missing_rule(read_judged(folder)).study
    content = study.lock["protocol"]["content"]
    unit = ", by agreement with the full cache on its text" if "outcome" in content else ""
    has_several = len(content["models"]) * len(content["budgets"]) > 1
    registered = study.lanes[study.lanes["budget"].isin([*content["budgets"], FULL])]
    lanes = registered[registered["state"] != EXCLUDED]
    left_out = len(registered) - len(lanes)
    answers = []
    for model, task, budget, arm, seed, problem, correct in zip(
        *(lanes[name] for name in ("model", "task", "budget", "arm", "seed", "problem", "correct")), strict=True
    ):
        label = study.lock["items"][task].get("clusters", {}).get(problem)
        for listed_budget in content["budgets"] if budget == FULL else [budget]:
            task_name = f"{task} {model} budget {listed_budget}" if has_several else task
            score = math.nan if correct is None else float(correct)
            where = f"{folder}: {arm} {problem}"
            question = ((KIND, f"{task} {problem}{unit}"),)
            answers.append(ScoredAnswer(task_name, problem, score, question, where, arm, str(seed), label))
    notes = [
        (f"{folder}: the study's registered verdict stands; this is a second, exploratory analysis of the same lanes")
    ]
    notes += [f"{folder}: scores are not right or wrong answers: arms are compared{unit}"] if unit else []
    notes += [f"{folder}: {left_out} lanes of excluded problems are left out"] if left_out else []
    return ResultFile(KIND, answers, tuple(notes), content["decision"]["subject"])
