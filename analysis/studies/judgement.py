"""The judgement of a study by its committed rule, from its lock and records only."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis import rules
from analysis.output.headline import SCREENED, alone, fewest
from analysis.output.printed import decimal
from analysis.rules.rule import FULL, sides
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE
from analysis.studies import contrasts, gate, statements, unevenness
from analysis.studies.family import compared
from analysis.studies.study_files import EXCLUDED, LANE, TIMEOUT, Study, document, read, ungraded

__all__ = ["CONFIRMATORY", "DEVIATED", "judge", "judged", "selected"]

CONFIRMATORY = 200  # problems; fewer are a screening ("Minimal-Intervention KV Retention", section 6)
DEVIATED = "DEVIATED"  # the verdict of a study that was amended after its claim


def judge(folder: Path) -> dict[str, Any]:
    """Return the judgement of FOLDER. Raises RecordError for records that cannot be judged."""
    study = read(Path(folder))
    swept = "sweep" in study.lock["protocol"]["content"]
    return judged(study, selected(*document(Path(folder) / "selection.json")) if swept else None)


def judged(study: Study, chosen: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the judgement of a study. selection: from `selection_summary`, for a study with a sweep.

    The verdict is INCONCLUSIVE if a registered lane was never run, if a lane failed or was not graded and
    `decision.missing` is "inconclusive", if a contrast has fewer than two problems, or fewer than two with
    all lanes measured, or if the full cache fails its gate. If `decision.missing` is "wrong", failed and
    ungraded lanes are not correct, and CONFIRMED must also result when those of comparators are correct, so
    that no arm loses by its failures. An excluded problem is in no contrast of its model, and its lanes are
    not missing. The numbers are computed whatever the verdict.

    If a contrast has fewer than 200 problems, or clusters in a task with clusters, the verdict is SCREENED,
    whatever the rule says.
    """
    content = study.lock["protocol"]["content"]
    decision = content["decision"]
    alpha = float(decision["alpha"])
    counted, decisive = contrasts.counted(study)
    level, seen, rows = compared(counted, sides(decision), alpha)
    estimated = [contrast for contrast in seen if contrast is not None]
    complete = decisive.empty and len(estimated) == len(seen)
    rule = rules.RULES[decision["rule"]]
    able = gate.passed(study)
    void = not complete or (able is not None and not able["passed"])
    says = INCONCLUSIVE if void else rule.verdict(estimated, decision)
    owed = says == CONFIRMED and not study.missing.empty and not _stands(study, alpha)
    if owed:
        void, says = True, INCONCLUSIVE
    deviated = _deviated(study.lock)
    small = fewest(rows)[0] < CONFIRMATORY
    judgement = {
        "name": study.lock["name"],
        "title": content["title"],
        "verdict": DEVIATED if deviated else SCREENED if small else says,
        "label": _label(rows, small, able),
        "rule": decision["rule"],
        "at_least": decision.get("at_least"),
        "branch": None,  # a field of every judgement; a rule with branches reports its own
        "method": decision["method"],
        "family": len(rows),
        "alpha": decimal(alpha),
        "corrected_alpha": decimal(level),
        "contrasts": rows,
        "gate": able,
        "arms": _arms(counted, state="memory" in decision),
        "missing": _missing(study, decision["missing"]) | ({"owed": True} if owed else {}),
    }
    if not void:
        judgement |= rule.report(estimated, decision)
    if margin := decision.get("margin"):
        judgement["margin"] = decimal(margin)
    if deviated or small:
        judgement["rule_says"] = says
    if "beside" in decision:
        judgement["beside"] = _beside(counted, len(rows), alpha)
    if chosen is not None:
        judgement["selected"] = chosen
    if "exclude" in content:
        judgement["excluded"] = _excluded(study)
    return judgement | {
        "proves": statements.proves(judgement),
        "does_not_prove": statements.does_not_prove(judgement, study.lock, _idle(study)),
    }


def _idle(study: Study) -> set[tuple[str, ...]]:
    """Return (model, task, budget, arm) of the arms with a budget that evicted nothing in all measured lanes.
    """
    measured = study.lanes[study.lanes["evicted"].notna() & (study.lanes["budget"] != FULL)]
    if measured["evicted"].all():  # the usual case
        return set()
    most = measured.groupby(LANE[:4])["evicted"].max()
    return set(most.index[most == 0])


def _label(rows: list[dict[str, Any]], small: bool, able: Mapping[str, Any] | None) -> str:
    if small:
        return "screening-grade"
    if able is not None and not able["passed"]:
        return "uninformative"
    return f"confirmatory-grade {alone({'contrasts': rows})}".rstrip()


def _stands(study: Study, alpha: float) -> bool:
    """Return whether the rule still confirms if ungraded lanes of comparators are correct."""
    decision = study.lock["protocol"]["content"]["decision"]
    seen = compared(contrasts.charitable(study), sides(decision), alpha).contrasts
    estimated = [contrast for contrast in seen if contrast is not None]
    rule = rules.RULES[decision["rule"]]
    return len(estimated) == len(seen) and rule.verdict(estimated, decision) == CONFIRMED


def _deviated(lock: Mapping[str, Any]) -> bool:
    amends = lock.get("amends")
    return amends is not None and amends["after_claim"] is True


def _excluded(study: Study) -> list[dict[str, Any]]:
    """Return how many problems of each task the registered exclusion removed, by model."""
    lanes = study.lanes
    out = lanes[lanes["state"] == EXCLUDED].groupby(["model", "task"])["problem"].nunique()
    content = study.lock["protocol"]["content"]
    return [
        {
            "model": model,
            "task": task["name"],
            "problems": int(out.get((model, task["name"]), 0)),
            "of": len(study.lock["items"][task["name"]]["confirm"]),
        }
        for model, task in itertools.product(content["models"], content["tasks"])
    ]


def selected(digest: str, selection: Mapping[str, Any]) -> dict[str, Any]:
    """Return the selected candidate of the sweep, and the digest of its selection."""
    chosen = selection["selected"]
    own = {name: chosen[name] for name in ("policy", "set") if name in chosen}
    return {"arm": chosen["winner"], **own, "selection": digest}


def _beside(study: Study, first: int, alpha: float) -> dict[str, Any]:
    """Return contrasts outside the decision rule ("Minimal-Intervention KV Retention", appendix B): the
    subject against the arms in `beside`, corrected for their number, and each comparator against them,
    uncorrected.
    """
    decision = study.lock["protocol"]["content"]["decision"]
    beside = decision["beside"]
    heads = compared(study, [(decision["subject"], arm) for arm in beside], alpha, first=first)
    sides = list(itertools.product(decision["against"], beside))
    auxiliary = compared(study, sides, alpha, first=first + len(heads.rows), corrected=False)
    return {
        "family": len(heads.rows),
        "alpha": decimal(alpha),
        "corrected_alpha": decimal(heads.level),
        "contrasts": heads.rows,
        "auxiliary": auxiliary.rows,
    }


def _arms(study: Study, *, state: bool) -> list[dict[str, Any]]:
    """Return one row per arm and cell, in grid order, with means over the measured lanes.

    state: add the bytes that the policy carries besides slots. If a second grader graded any text, rows have
    the number of lanes on which the two disagree and, for scores, their mean distance over lanes. The
    accuracy of scored answers is their mean score.
    """
    rows = []
    second, apart = (bool(study.lanes[name].notna().any()) for name in ("disagrees", "apart"))
    for key, every in study.by_arm().items():
        lanes = every[every["state"] != EXCLUDED]
        problems, accuracy = _solved(lanes)
        rows.append(
            {
                **dict(zip(("model", "task", "budget", "arm"), key, strict=True)),
                "n": problems,
                "accuracy": decimal(accuracy),
                "mean_slots": decimal(lanes["mean_slots"].mean()),
                "peak_slots": decimal(lanes["peak_slots"].max()),
                "mean_bytes": decimal(lanes["mean_bytes"].mean()),
                "mean_tokens": decimal(lanes["tokens"].mean()),
                "no_answer": int((lanes["grade"] == "no answer").sum()),
                "truncated": int((lanes["stop"] == "length").sum()),
                "failed": int(ungraded(lanes).sum()),
                **({"mean_state_bytes": decimal(lanes["state_bytes"].mean())} if state else {}),
                **({"disagreements": int(lanes["disagrees"].sum())} if second else {}),
                **({"scores_apart": decimal(lanes["apart"].mean())} if apart else {}),
                **({"timeouts": int((lanes["grade"] == TIMEOUT).sum())} if second else {}),
            }
        )
    return rows


def _solved(lanes: pd.DataFrame) -> tuple[int, float]:
    """Return the number of problems, and the mean of their mean grades without NaN (ungraded lanes that do
    not count as wrong).
    """
    place, problems = pd.factorize(lanes["problem"])
    correct = lanes["correct"].to_numpy(dtype=np.float64)
    graded = ~np.isnan(correct)
    of = np.bincount(place[graded], minlength=len(problems))
    sums = np.bincount(place[graded], correct[graded], minlength=len(problems))
    return len(problems), float((sums[of > 0] / of[of > 0]).mean()) if of.any() else np.nan


def _missing(study: Study, rule: str) -> dict[str, Any]:
    """Count the lanes without a grade, in total and by cell and reason."""
    missing = study.missing
    ended = missing["grade"].where(missing["state"] == "ok", missing["state"])
    columns = [*LANE[:-1], "ended"]
    counts = missing.assign(ended=ended).groupby(columns, sort=False).size()
    cells = [dict(zip(columns, key, strict=True)) | {"lanes": int(count)} for key, count in counts.items()]
    return {"rule": rule, "registered": len(study.lanes), "lanes": len(missing), "cells": cells} | {
        "uneven": unevenness.uneven(study)
    }
