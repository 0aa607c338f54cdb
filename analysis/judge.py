"""Apply the committed rule of a study to its sealed records.

    python -m analysis.judge registrations/quickstart

Prints the judgement as canonical JSON: no floats, decimals as strings with six digits. It depends on
lock.json and records/*.jsonl alone, and is the same byte for byte wherever it is computed. Exit status: 0
judged, whatever the verdict; 2 the folder cannot be read.
"""

import argparse
import itertools
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis import decisions, isocache, multiplicity, statements
from analysis.interval import Interval
from analysis.records import LANE, RecordError, Study, read
from analysis.tests_of_difference import METHODS

__all__ = ["CONFIRMATORY", "judge"]

CONFIRMATORY = 200  # problems; fewer are screening ("Minimal-Intervention KV Retention", section 6)
LEVEL = 0.95  # coverage of the nominal interval


class Pairing(NamedTuple):
    """Two arms on the problems that both finished with every seed. Axes [problem, seed]."""

    model: str
    task: str
    budget: str
    subject: str
    against: str
    own: NDArray[np.float64]  # 1.0 correct, else 0.0
    other: NDArray[np.float64]
    own_slots: NDArray[np.float64]
    other_slots: NDArray[np.float64]


class Estimate(NamedTuple):
    """What the methods say about one pairing."""

    nominal: Interval  # of the registered method, at 95 %
    simultaneous: Interval  # of the registered method, at the Bonferroni level
    p: dict[str, float]  # by method; the registered one decides
    cache: isocache.Matched


def judge(folder: Path) -> dict[str, Any]:
    """The judgement of FOLDER. Raises RecordError for records that cannot be judged at all.

    A missing lane (never run, failed, excluded, or not graded) makes the verdict INCONCLUSIVE wherever it
    lies, as `decision.missing` registers; what the complete problems show is still computed. So does a
    pairing of fewer than two problems.
    """
    study = read(Path(folder))
    decision = study.lock["protocol"]["content"]["decision"]
    if decision["missing"] != "inconclusive":
        raise RecordError(f"decision.missing: {decision['missing']!r} is unknown; it is inconclusive")
    pairings = _pairings(study)
    alpha = float(decision["alpha"])
    corrected = multiplicity.corrected(alpha, len(pairings))
    estimates = [_estimate(one, index, decision, corrected) for index, one in enumerate(pairings)]
    p = [1.0 if one is None else one.p[decision["method"]] for one in estimates]
    holm = multiplicity.adjust(p).holm
    contrasts = [
        _printed(pairing, estimate, adjusted, corrected)
        for pairing, estimate, adjusted in zip(pairings, estimates, holm, strict=True)
    ]
    estimated = [
        decisions.Contrast(
            pairing.model, one.simultaneous.mean, one.simultaneous.high, one.simultaneous.p, one.cache.matched
        )
        for pairing, one in zip(pairings, estimates, strict=True)
        if one is not None
    ]
    complete = study.missing.empty and len(estimated) == len(pairings)
    rule = decisions.RULES[decision["rule"]]
    small = any(one["n"] < CONFIRMATORY for one in contrasts)
    judged = {
        "name": study.lock["name"],
        "title": study.lock["protocol"]["content"]["title"],
        "verdict": rule(estimated, decision) if complete else decisions.INCONCLUSIVE,
        "label": "screening-grade" if small else "confirmatory-grade",
        "rule": decision["rule"],
        "at_least": decision.get("at_least"),
        "branch": _branches(estimated, decision) if complete and decision["rule"] == "branch" else None,
        "method": decision["method"],
        "family": len(contrasts),
        "alpha": _decimal(alpha),
        "corrected_alpha": _decimal(corrected),
        "contrasts": contrasts,
        "arms": _arms(study),
        "missing": _missing(study),
    }
    return judged | {
        "proves": statements.proves(judged),
        "does_not_prove": statements.does_not_prove(judged, study.lock),
    }


def _pairings(study: Study) -> list[Pairing]:
    """The registered family, by models, tasks, budgets, comparators: a pairing's place seeds its draws."""
    content = study.lock["protocol"]["content"]
    decision = content["decision"]
    arms = dict(list(study.lanes.groupby(["model", "task", "budget", "arm"], sort=False)))

    def pairing(model: str, task: str, budget: str, against: str) -> Pairing:
        own, other = (arms.get((model, task, budget, arm)) for arm in (decision["subject"], against))
        if own is None or other is None:
            raise RecordError(f"lock: grid: {model} {task} {budget} lacks {decision['subject']} or {against}")
        problems = study.lock["items"][task]["confirm"]
        correct = [_by_problem(arm, "correct", problems) for arm in (own, other)]
        slots = [_by_problem(arm, "mean_slots", problems) for arm in (own, other)]
        both = ~np.isnan(correct).any(axis=(0, 2))
        measured = [values[both] for values in correct + slots]
        return Pairing(model, task, budget, decision["subject"], against, *measured)

    tasks = [task["name"] for task in content["tasks"]]
    family = itertools.product(content["models"], tasks, content["budgets"], decision["against"])
    return [pairing(*place) for place in family]


def _by_problem(arm: pd.DataFrame, column: str, problems: list[str]) -> NDArray[np.float64]:
    """[problem, seed], problems in the given order."""
    table: NDArray[np.float64] = (
        arm.pivot(index="problem", columns="seed", values=column).loc[problems].to_numpy()
    )
    return table


def _estimate(pairing: Pairing, index: int, decision: Mapping[str, Any], corrected: float) -> Estimate | None:
    """None for fewer than two problems. Every method draws one stream, that of (decision.seed, index)."""
    if len(pairing.own) < 2:
        return None
    difference = pairing.own - pairing.other

    def by(method: str, level: float) -> Interval:
        rng = np.random.default_rng([decision["seed"], index])
        return METHODS[method](difference, level=level, draws=decision["draws"], rng=rng)

    tolerance = float(decision["cache_tolerance"])
    nominal = {method: by(method, LEVEL) for method in METHODS}
    return Estimate(
        nominal=nominal[decision["method"]],
        simultaneous=by(decision["method"], 1 - corrected),
        p={method: interval.p for method, interval in nominal.items()},
        cache=isocache.matched(pairing.own_slots, pairing.other_slots, tolerance=tolerance),
    )


def _printed(pairing: Pairing, estimate: Estimate | None, holm: float, corrected: float) -> dict[str, Any]:
    row: dict[str, Any] = {
        "model": pairing.model,
        "task": pairing.task,
        "budget": pairing.budget,
        "subject": pairing.subject,
        "against": pairing.against,
        "n": len(pairing.own),
        "seeds": pairing.own.shape[1],
        "gains": int((pairing.own > pairing.other).sum()),
        "losses": int((pairing.own < pairing.other).sum()),
    }
    if estimate is None:
        return row | dict.fromkeys(ESTIMATED) | {"better": False, "worse": False, "matched": False}
    nominal, simultaneous, p, cache = estimate
    values = [
        *nominal[:3],
        simultaneous.low,
        simultaneous.high,
        nominal.p,
        p["bootstrap"],
        p["t"],
        p["sign-flip"],
        holm,
        cache.ratio,
        cache.worst,
    ]
    seen = decisions.Contrast(pairing.model, nominal.mean, simultaneous.high, nominal.p, cache.matched)
    return (
        row
        | dict(zip(ESTIMATED, map(_decimal, values), strict=True))
        | {"better": decisions.better(seen, corrected), "worse": decisions.worse(seen, corrected)}
        | {"matched": cache.matched}
    )


ESTIMATED = (
    "difference",
    "low",
    "high",
    "low_simultaneous",
    "high_simultaneous",
    "p",
    "p_bootstrap",
    "p_t",
    "p_sign_flip",
    "p_holm",
    "cache_ratio",
    "cache_worst",
)


def _branches(contrasts: list[decisions.Contrast], decision: Mapping[str, Any]) -> dict[str, str]:
    cells = decisions.cells(contrasts, decision["primary_model"], decision["transfer_model"])
    alpha = float(decision["alpha"])
    return {
        "registered": decisions.branch(cells, alpha=alpha),
        "symmetric": decisions.branch(cells, symmetric=True, alpha=alpha),
    }


def _arms(study: Study) -> list[dict[str, Any]]:
    """One row an arm of a cell, in the order of the grid; means over the lanes that were measured."""
    rows = []
    for key, lanes in study.lanes.groupby(["model", "task", "budget", "arm"], sort=False):
        # NaN, a lane without a grade, is left out.
        accuracy = lanes.groupby("problem")["correct"].mean().mean()
        rows.append(
            {
                **dict(zip(("model", "task", "budget", "arm"), key, strict=True)),
                "n": int(lanes["problem"].nunique()),
                "accuracy": _decimal(accuracy),
                "mean_slots": _decimal(lanes["mean_slots"].mean()),
                "peak_slots": _decimal(lanes["peak_slots"].max()),
                "mean_bytes": _decimal(lanes["mean_bytes"].mean()),
                "mean_tokens": _decimal(lanes["tokens"].mean()),
                "no_answer": int((lanes["grade"] == "no answer").sum()),
                "truncated": int((lanes["stop"] == "length").sum()),
                "failed": int(lanes["correct"].isna().sum()),
            }
        )
    return rows


def _missing(study: Study) -> dict[str, Any]:
    """How many lanes have no grade, and how many of them each cell has, by what became of them."""
    missing = study.missing
    ended = missing["grade"].where(missing["state"] == "ok", missing["state"])
    columns = [*LANE[:-1], "ended"]
    counts = missing.assign(ended=ended).groupby(columns, sort=False).size()
    cells = [dict(zip(columns, key, strict=True)) | {"lanes": int(count)} for key, count in counts.items()]
    return {"rule": "inconclusive", "registered": len(study.lanes), "lanes": len(missing), "cells": cells}


def _decimal(value: float) -> str | None:
    """Six digits, never -0; None for a mean of nothing."""
    if math.isnan(value):
        return None
    text = f"{value:.6f}"
    return text.removeprefix("-") if float(text) == 0 else text


def dumps(judged: Mapping[str, Any]) -> str:
    """Canonical JSON: sorted keys, no spaces."""
    return json.dumps(judged, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m analysis.judge",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="a registration, e.g. registrations/quickstart")
    args = parser.parse_args(argv)
    try:
        judged = judge(args.folder)
    except ValueError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    sys.stdout.buffer.write(dumps(judged).encode() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
