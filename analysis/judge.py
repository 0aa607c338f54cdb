"""Apply the committed rule of a study to its sealed records.

    python -m analysis.judge registrations/quickstart

Prints the judgement as canonical JSON: no floats, decimals as strings with six digits. It depends on
lock.json and records/*.jsonl alone (with a sweep on selection.json too), and is the same byte for byte
wherever it is computed. Exit status: 0 judged, whatever the verdict; 2 the folder cannot be read.
"""

import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.output.printed import command, decimal
from analysis.rules import decisions, statements
from analysis.stats import equivalence, isocache, max_t, multiplicity
from analysis.stats.interval import Interval
from analysis.stats.paired_tests import METHODS
from analysis.studies import contrasts
from analysis.studies.study_files import EXCLUDED, LANE, TIMEOUT, Study, document, read, ungraded

__all__ = ["CONFIRMATORY", "DEVIATED", "judge", "judged"]

CONFIRMATORY = 200  # problems; fewer are screening ("Minimal-Intervention KV Retention", section 6)
DEVIATED = "DEVIATED"  # whatever the rule says of a study that was amended after its claim
LEVEL = 0.95  # coverage of the nominal interval
MAX_T = "max-t"  # the method of whole families


class Estimate(NamedTuple):
    """What the methods say about one pairing."""

    nominal: Interval  # of the registered method, at 95 %
    simultaneous: Interval  # of the registered method, at the Bonferroni level or by max-t
    p: dict[str, float]  # by method
    cache: isocache.Matched
    margins: equivalence.Margins | None  # with a registered margin, at the Bonferroni level


class Found(NamedTuple):
    pairing: contrasts.Pairing
    estimate: Estimate | None  # None for fewer than two problems that were measured
    adjusted: float  # p for the whole family; 1 without an estimate

    def seen(self) -> decisions.Contrast | None:
        if self.estimate is None:
            return None
        nominal, simultaneous, _, cache, margins = self.estimate
        return decisions.Contrast(
            self.pairing.model,
            nominal.mean,
            simultaneous.high,
            nominal.p,
            self.adjusted,
            cache.matched,
            margins,
        )


class Compared(NamedTuple):
    level: float  # of one contrast
    found: list[Found]
    rows: list[dict[str, Any]]  # as the judgement prints them

    def estimated(self) -> list[decisions.Contrast]:
        return [seen for one in self.found if (seen := one.seen()) is not None]


def judge(folder: Path) -> dict[str, Any]:
    """The judgement of FOLDER. Raises RecordError for records that cannot be judged at all."""
    study = read(Path(folder))
    return judged(study, _selected(Path(folder)) if "sweep" in study.lock["protocol"]["content"] else None)


def judged(study: Study, selected: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The judgement of a study that was read. selected: what a sweep chose, with a sweep.

    A registered lane that was never run makes the verdict INCONCLUSIVE wherever it lies. So does one that
    failed or was not graded where `decision.missing` is "inconclusive"; where it is "wrong", such a lane is
    not correct. So does a contrast of fewer than two problems, or of fewer than two whose every lane measured
    its cache. An excluded problem is in no contrast of its model, and no lane of it is missing. What the
    problems at hand show is computed whatever the verdict.
    """
    content = study.lock["protocol"]["content"]
    decision = content["decision"]
    alpha = float(decision["alpha"])
    family = [(decision["subject"], other) for other in decision["against"]]
    counted, decisive = contrasts.counted(study)
    compared = _compared(counted, family, alpha)
    complete = decisive.empty and all(one.estimate is not None for one in compared.found)
    estimated = compared.estimated()
    says = decisions.RULES[decision["rule"]](estimated, decision) if complete else decisions.INCONCLUSIVE
    deviated = _deviated(study.lock)
    small = any(one["n"] < CONFIRMATORY for one in compared.rows)
    judgement = {
        "name": study.lock["name"],
        "title": content["title"],
        "verdict": DEVIATED if deviated else says,
        "label": "screening-grade" if small else "confirmatory-grade",
        "rule": decision["rule"],
        "at_least": decision.get("at_least"),
        "branch": _branches(estimated, decision) if complete and decision["rule"] == "branch" else None,
        "method": decision["method"],
        "family": len(compared.rows),
        "alpha": decimal(alpha),
        "corrected_alpha": decimal(compared.level),
        "contrasts": compared.rows,
        "arms": _arms(counted, state=_slots_are_memory(decision)),
        "missing": _missing(study, decision["missing"]),
    }
    if decision["rule"] in decisions.LOSSLESS:
        judgement["margin"] = decimal(decision["margin"])
    if deviated:
        judgement["rule_says"] = says
    if "beside" in decision:
        judgement["beside"] = _beside(counted, len(compared.rows), alpha)
    if selected is not None:
        judgement["selected"] = selected
    if "exclude" in content:
        judgement["excluded"] = _excluded(study)
    return judgement | {
        "proves": statements.proves(judgement),
        "does_not_prove": statements.does_not_prove(judgement, study.lock),
    }


def _deviated(lock: Mapping[str, Any]) -> bool:
    amends = lock.get("amends")
    return amends is not None and amends["after_claim"] is True


def _excluded(study: Study) -> list[dict[str, Any]]:
    """How many problems of each task the registered exclusion took out, by model."""
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


def _selected(folder: Path) -> dict[str, Any]:
    """Which candidate of the sweep was confirmed as the subject, and the digest of what chose it."""
    digest, content = document(folder / "selection.json")
    return {
        "arm": content["selected"]["winner"],
        "policy": content["selected"]["policy"],
        "selection": digest,
    }


def _beside(study: Study, first: int, alpha: float) -> dict[str, Any]:
    """Contrasts outside the decision rule ("Minimal-Intervention KV Retention", appendix B): the subject
    against the arms beside, corrected over their own number, and each comparator against them, uncorrected.
    """
    decision = study.lock["protocol"]["content"]["decision"]
    beside = decision["beside"]
    heads = _compared(study, [(decision["subject"], arm) for arm in beside], alpha, first=first)
    sides = list(itertools.product(decision["against"], beside))
    auxiliary = _compared(study, sides, alpha, first=first + len(heads.rows), corrected=False)
    return {
        "family": len(heads.rows),
        "alpha": decimal(alpha),
        "corrected_alpha": decimal(heads.level),
        "contrasts": heads.rows,
        "auxiliary": auxiliary.rows,
    }


def _compared(
    study: Study, sides: Sequence[tuple[str, str]], alpha: float, *, first: int = 0, corrected: bool = True
) -> Compared:
    """Every (subject, comparator) in every model, task and budget.

    first: place of the first pairing among all of the study; its place seeds its draws, and those of max-t.
    """
    decision = study.lock["protocol"]["content"]["decision"]
    pairings = contrasts.pairings(study, sides)
    level = multiplicity.corrected(alpha, len(pairings) if corrected else 1)
    estimates = [_estimate(one, first + index, decision, level) for index, one in enumerate(pairings)]
    p = [1.0 if one is None else one.nominal.p for one in estimates]
    family = multiplicity.adjust(p)
    adjusted, holm = (family.bonferroni, family.holm) if corrected else (p, p)
    found = [Found(*each) for each in zip(pairings, estimates, adjusted, strict=True)]
    if decision["method"] == MAX_T and corrected:
        found = _together(found, np.random.default_rng([decision["seed"], first]), decision["draws"], alpha)
    rows = [_printed(*each, alpha) for each in zip(found, holm, strict=True)]
    if decision["method"] == MAX_T:
        rows = [row | {"p_adjusted": decimal(one.adjusted)} for row, one in zip(rows, found, strict=True)]
    if _slots_are_memory(decision):
        for index, (row, one) in enumerate(zip(rows, found, strict=True)):
            row["isocache"] = _isocache(study, one.pairing, one.estimate, first + index)
    return Compared(level, found, rows)


def _together(found: Sequence[Found], rng: np.random.Generator, draws: int, alpha: float) -> list[Found]:
    """The same with the simultaneous intervals and the p of max-t.

    Contrasts of a task that lost no problem, or the same ones, are flipped together. Any others are taken
    for independent, which errs on the safe side: together they would exceed a bound no more often (Sidak
    1967).
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, one in enumerate(found):
        if one.estimate is not None:
            groups.setdefault((one.pairing.task, *one.pairing.problems), []).append(index)
    if not groups:
        return list(found)
    differences = [
        [found[at].pairing.own - found[at].pairing.other for at in group] for group in groups.values()
    ]
    intervals = max_t.max_t(differences, level=1 - alpha, draws=draws, rng=rng)
    places = itertools.chain(*groups.values())
    of = dict(zip(places, itertools.chain(*intervals), strict=True))
    return [
        one
        if one.estimate is None
        else one._replace(estimate=one.estimate._replace(simultaneous=of[at]), adjusted=of[at].p)
        for at, one in enumerate(found)
    ]


def _isocache(
    study: Study, pairing: contrasts.Pairing, estimate: Estimate | None, index: int
) -> dict[str, Any]:
    """Memory problem by problem and, for arms that do not match, the difference at the subject's memory.

    It draws the stream of its contrast, and decides nothing.
    """
    content = study.lock["protocol"]["content"]
    decision, budgets = content["decision"], content["budgets"]
    if estimate is None:
        return {"ratio": None, "within": None, "interpolated": None, "why": "too few"}
    each = isocache.per_problem(*pairing.slots(), tolerance=float(decision["cache_tolerance"]))
    row = {"ratio": decimal(each.ratio), "within": decimal(each.within), "interpolated": None}
    if estimate.cache.matched:
        return row | {"why": "matched"}
    problems = study.lock["items"][pairing.task]["confirm"]
    own, *references = contrasts.references(pairing, study.by_arm(), budgets, problems)
    if len(own.correct) < 2:
        return row | {"why": "too few"}
    found = isocache.interpolated(own.correct, own.slots, references)
    if found is None:
        return row | {"why": "outside"}
    interval = _by_method(found.difference[:, None], index, decision, _alone(decision), LEVEL)
    values = dict(zip(("difference", "low", "high", "p"), map(decimal, interval), strict=True))
    between = [budgets[found.below], budgets[found.above]]
    return row | {
        "interpolated": values | {"weight": decimal(found.weight), "between": between},
        "why": "interpolated",
    }


def _slots_are_memory(decision: Mapping[str, Any]) -> bool:
    return decision.get("memory") == "slots"


def _estimate(
    pairing: contrasts.Pairing, index: int, decision: Mapping[str, Any], corrected: float
) -> Estimate | None:
    """None for fewer than two problems whose every lane was measured. Every method draws one stream, that of
    (decision.seed, index). Of max-t, which is a method for families, a contrast alone has Student's t.
    """
    slots = pairing.slots()
    if len(slots[0]) < 2:
        return None
    difference = pairing.own - pairing.other
    tolerance = float(decision["cache_tolerance"])
    nominal = {method: _by_method(difference, index, decision, method, LEVEL) for method in METHODS}
    method, margins = _alone(decision), None
    if decision["rule"] in decisions.LOSSLESS:
        margins = equivalence.margins(difference, float(decision["margin"]), alpha=corrected, method=method)
    return Estimate(
        nominal=nominal[method],
        simultaneous=_by_method(difference, index, decision, method, 1 - corrected),
        p={method: interval.p for method, interval in nominal.items()},
        cache=isocache.matched(*slots, tolerance=tolerance),
        margins=margins,
    )


def _alone(decision: Mapping[str, Any]) -> str:
    """The method of a contrast without its family."""
    return "t" if decision["method"] == MAX_T else str(decision["method"])


def _by_method(
    difference: NDArray[np.float64], index: int, decision: Mapping[str, Any], method: str, level: float
) -> Interval:
    rng = np.random.default_rng([decision["seed"], index])
    return METHODS[method](difference, level=level, draws=decision["draws"], rng=rng)


def _printed(found: Found, holm: float, alpha: float) -> dict[str, Any]:
    pairing, estimate, seen = found.pairing, found.estimate, found.seen()
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
    if estimate is None or seen is None:
        return row | dict.fromkeys(ESTIMATED) | {"better": False, "worse": False, "matched": False}
    nominal, simultaneous, p, cache, margins = estimate
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
    about = {} if margins is None else dict(zip(ABOUT_MARGIN, map(decimal, margins[1:]), strict=True))
    return (
        row
        | dict(zip(ESTIMATED, map(decimal, values), strict=True))
        | about
        | {"better": decisions.better(seen, alpha), "worse": decisions.worse(seen, alpha)}
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
ABOUT_MARGIN = ("low_margin", "high_margin", "p_worse", "p_better")  # limits with coverage 1 - 2 alpha / m


def _branches(contrasts: list[decisions.Contrast], decision: Mapping[str, Any]) -> dict[str, str]:
    cells = decisions.cells(contrasts, decision["primary_model"], decision["transfer_model"])
    alpha = float(decision["alpha"])
    return {
        "registered": decisions.branch(cells, alpha=alpha),
        "symmetric": decisions.branch(cells, symmetric=True, alpha=alpha),
    }


def _arms(study: Study, *, state: bool) -> list[dict[str, Any]]:
    """One row an arm of a cell, in the order of the grid; means over the lanes that were measured.

    state: with the bytes that the policy carried beside the slots. Where a second grader read any text, with
    the number of lanes on which the two disagree.
    """
    rows = []
    second = bool(study.lanes["disagrees"].notna().any())
    for key, every in study.by_arm().items():
        lanes = every[every["state"] != EXCLUDED]
        # NaN, a lane without a grade that does not count as wrong, is left out.
        accuracy = lanes.groupby("problem")["correct"].mean().mean()
        rows.append(
            {
                **dict(zip(("model", "task", "budget", "arm"), key, strict=True)),
                "n": int(lanes["problem"].nunique()),
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
                **({"timeouts": int((lanes["grade"] == TIMEOUT).sum())} if second else {}),
            }
        )
    return rows


def _missing(study: Study, rule: str) -> dict[str, Any]:
    """How many lanes have no grade, and how many of them each cell has, by what became of them."""
    missing = study.missing
    ended = missing["grade"].where(missing["state"] == "ok", missing["state"])
    columns = [*LANE[:-1], "ended"]
    counts = missing.assign(ended=ended).groupby(columns, sort=False).size()
    cells = [dict(zip(columns, key, strict=True)) | {"lanes": int(count)} for key, count in counts.items()]
    return {"rule": rule, "registered": len(study.lanes), "lanes": len(missing), "cells": cells}


def main(argv: list[str] | None = None) -> int:
    return command("judge", __doc__, "a registration, e.g. registrations/quickstart", judge, argv)


if __name__ == "__main__":
    sys.exit(main())
