"""Apply the committed rule of a sweep to the records of its probe, which are all on development problems.

    kv-prereg selection registrations/alpha-chain

The rule of "Minimal-Intervention KV Retention via Set-Conditioned Diversity", section 4.2, phase 1. Prints
the selection as canonical JSON: no floats, decimals as strings with six digits. It depends only on lock.json and
probe/*.jsonl. Exit status: 0 selected; 2 the folder cannot be read or a lane is missing.
"""

import itertools
import sys
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.judgement.contrasts import MILLION, problem_clusters
from analysis.judgement.study_files import read_probe
from analysis.judgement.study_table import EXCLUDED, Study
from analysis.judgement.untrusted_files import RecordError
from analysis.stats import bootstrap, resampled_units
from analysis.stats.methods import draws_and_seed
from protocol.formats.json_text import dumps, format_decimal
from protocol.formats.reading_command import run_command
from protocol.formats.vocabulary import RERUN_SUFFIX

DRAWS = 10_000  # draws for the exploratory intervals


class Choice(NamedTuple):
    """winner, best: indices of candidates; they differ if a tie went to an earlier candidate."""

    winner: int
    best: int
    means: tuple[Fraction, ...]  # of each candidate, over cells, in accuracy points


class SelectionCell(NamedTuple):
    """One candidate minus the baseline in one (model, task, budget)."""

    model: str
    task: str
    budget: str
    candidate: str
    problems: int
    difference: Fraction
    low: float  # exploratory 95 % bootstrap interval over problems or clusters, not used by the rule
    high: float


def choose(differences: Sequence[Sequence[Fraction]], tolerance: Fraction) -> Choice:
    """Return the candidate with the largest mean difference; of those within `tolerance` of it, the earliest.

    differences: [candidate][cell], paired differences of accuracy, candidate minus baseline; every cell has equal
    weight. Fractions make ties exact. Raises ValueError unless all candidates have the same cells, at least one.
    """
    if not differences or len({len(cell_differences) for cell_differences in differences}) != 1 or not differences[0]:
        raise ValueError("differences: the candidates have different cells; pass the same cells as [candidate][cell]")
    means = tuple(sum(cell_differences, Fraction(0)) / len(cell_differences) for cell_differences in differences)
    largest = max(means)
    tied = [position for position, mean in enumerate(means) if largest - mean <= tolerance]
    return Choice(tied[0], means.index(largest), means)


def select(folder: Path) -> dict[str, Any]:
    """Return the selection of FOLDER. Raises RecordError if any lane of the probe has no grade: a mean over
    the finished lanes is not what was registered, and records are not rewritten.
    """
    return select_from_study(Path(folder), read_probe(Path(folder)))


def select_from_study(folder: Path, study: Study) -> dict[str, Any]:
    """Return the selection of a probe; raises as `select` does. folder: for messages."""
    if not study.missing.empty:
        first = study.missing.iloc[0]
        what = first["grade"] if first["state"] == "ok" else first["state"]
        raise RecordError(
            f"{folder}: {len(study.missing)} of {len(study.lanes)} probed lanes have no grade, first "
            f"{first['model']} {first['budget']} {first['arm']} {first['problem']} ({what}), so that "
            "nothing is selected; register a new folder whose question names this study as its parent"
        )
    content = study.lock["protocol"]["content"]
    sweep = content["sweep"]
    cells = _compare_cells(study, sweep, draws_and_seed(content["decision"])[1])
    differences = [[cell.difference for cell in cells if cell.candidate == name] for name in sweep["candidates"]]
    choice = choose(differences, Fraction(sweep["tolerance"]))
    winner = sweep["candidates"][choice.winner]
    winner_arm = content["arms"][winner]
    means = zip(sweep["candidates"], choice.means, strict=True)
    return {
        "winner": winner,
        **{name: winner_arm[name] for name in ("policy", "set") if name in winner_arm},
        "best": sweep["candidates"][choice.best],
        "baseline": sweep["baseline"],
        "tolerance": sweep["tolerance"],
        "means": {name: format_decimal(mean) for name, mean in means},
        "cells": [_format_cell(cell) for cell in cells],
        "again": _rerun_differences(study.lanes[study.lanes["state"] != EXCLUDED], sweep["baseline"]),
    }


def _compare_cells(study: Study, sweep: Mapping[str, Any], seed: int) -> list[SelectionCell]:
    """Return the cells by models, tasks, budgets, candidates; a cell's index seeds its draws."""
    content = study.lock["protocol"]["content"]
    arms = study.by_arm()
    tasks = [task["name"] for task in content["tasks"]]
    places = itertools.product(content["models"], tasks, content["budgets"], sweep["candidates"])
    cells = []
    for index, (model, task, budget, candidate) in enumerate(places):
        candidate_table, baseline_table = (
            arms[model, task, budget, arm].pivot(index="problem", columns="seed", values="correct")
            for arm in (candidate, sweep["baseline"])
        )
        seed_differences = candidate_table.to_numpy() - baseline_table.loc[candidate_table.index].to_numpy()
        is_included = ~np.isnan(seed_differences).any(axis=1)  # no lane is missing, so NaN marks an excluded problem
        paired = seed_differences[is_included]
        clusters = problem_clusters(study.lock, task, list(candidate_table.index[is_included]))
        if not len(paired):
            raise RecordError(f"probe: every problem of {task} on {model} is excluded, so that nothing is selected")
        low, high, difference = (-1.0, 1.0, Fraction(round(float(paired.sum()) * MILLION), paired.size * MILLION))
        if resampled_units.count_units(clusters, len(paired)) > 1:
            units, rng = resampled_units.resampling_units(paired, clusters), np.random.default_rng([seed, index])
            low, high = units.rescale(bootstrap.paired(units.values, reps=DRAWS, rng=rng))[1:3]
        cells.append(SelectionCell(model, task, budget, candidate, len(paired), difference, low, high))
    return cells


def _rerun_differences(lanes: pd.DataFrame, baseline: str) -> dict[str, int]:
    """Count how often the baseline and its rerun disagree: the variation without any change of policy."""
    key = ["model", "task", "budget", "seed", "problem"]
    first, second = (
        lanes[lanes["arm"] == arm].set_index(key)[["grade", "correct"]] for arm in (baseline, baseline + RERUN_SUFFIX)
    )
    differ = (first != second.loc[first.index]).any(axis=1)
    return {"lanes": len(first), "differ": int(differ.sum())}


def _format_cell(cell: SelectionCell) -> dict[str, Any]:
    numbers = {name: format_decimal(getattr(cell, name)) for name in ("difference", "low", "high")}
    return cell._asdict() | numbers


def main(argv: list[str] | None = None) -> int:
    folder = {"folder": "folder of a registration with a sweep, e.g. registrations/alpha-chain"}
    return run_command("selection", __doc__, folder, select, argv, show=dumps)


if __name__ == "__main__":
    sys.exit(main())
