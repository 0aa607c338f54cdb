"""The judgement of a study by its committed rule, from its lock and records only."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis import rules
from analysis.judgement import (
    contrasts,
    floor,
    gate,
    opened_lanes,
    population,
    previously_opened,
    qualifiers,
    statements,
    uneven_missingness,
)
from analysis.judgement.family import FamilyComparison, compare_family
from analysis.judgement.judging_rules import is_judged_as_shipped, read_judging
from analysis.judgement.study_table import EXCLUDED, LANE_COLUMNS, TIMEOUT, Study, is_ungraded, slots_read
from analysis.rules import sentences, verdict_line
from analysis.rules.rule import arm_pairs
from analysis.rules.verdict_line import REUSED, SCREENED, format_single_model, smallest_contrast
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from analysis.stats.methods import AS_PUBLISHED, MIN_CONFIRMATORY, SOUND_METHOD
from protocol.formats.json_text import format_decimal
from protocol.formats.vocabulary import FULL

DEVIATED = "DEVIATED"  # the verdict of a study that was amended after its claim, or did not keep to its looks


def judge_study(study: Study, selection: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the judgement of a study. selection: from `selection_summary`, for a study with a sweep.

    The verdict is INCONCLUSIVE if a registered lane was never run, if a lane failed or was not graded and
    `decision.missing` is "inconclusive", if a contrast has fewer than two problems, or fewer than two with
    all lanes measured, or if the full cache fails its gate. If `decision.missing` is "wrong", failed and
    ungraded lanes are not correct, and a verdict must also result in both extremes of what they would have been
    (`missing_bounds`), so that no arm wins or loses by its failures; of shipped studies CONFIRMED must result when
    those of comparators are correct. An excluded problem is in no contrast of its model, and its lanes are
    not missing. The numbers are computed whatever the verdict.

    If a contrast has fewer than 200 problems, or clusters in a task with clusters, the verdict is SCREENED,
    whatever the rule says. Of the other studies, one whose lock names held-out problems that were opened before
    is RE-USED where the rule decides.

    A contrast below the floor of `analysis.judgement.floor` decides nothing.

    A study with registered looks is judged at the one where it had to stop: see `analysis.judgement.looks`.
    """
    if opened_lanes.FIELD in study.lock:
        from analysis.judgement import looks

        return looks.judge_looks(study, lambda opened: _judge_once(opened, selection))
    return _judge_once(study, selection)


def _judge_once(study: Study, selection: Mapping[str, Any] | None) -> dict[str, Any]:
    content = study.lock["protocol"]["content"]
    decision = content["decision"]
    alpha = float(decision["alpha"])
    graded, decisive = contrasts.apply_missing_rule(study)
    gate_result = gate.judge_gate(study)
    required_floor = None if is_judged_as_shipped(study.lock) else floor.read_floor(study.lock, gate_result)
    families = _compare_families(study, graded, required_floor)
    level, rule_contrasts, rows = families[0]
    estimated = [contrast for contrast in rule_contrasts if contrast is not None]
    rule = rules.RULES[decision["rule"]]
    passes_gate = gate_result is None or gate_result["passed"]
    is_void = not (decisive.empty and len(estimated) == len(rule_contrasts) and passes_gate)
    rule_verdict = INCONCLUSIVE if is_void else rule.decide(estimated, decision, read_judging(study.lock))
    rests_on_failures = not is_void and _rests_on_failures(study, families, rule_verdict)
    if rests_on_failures:
        is_void, rule_verdict = True, INCONCLUSIVE
    is_small = smallest_contrast(rows)[0] < MIN_CONFIRMATORY
    verdict = _replace_verdict(rule_verdict, study.lock, is_small)
    judgement = {
        "name": study.lock["name"],
        "title": content["title"],
        "verdict": verdict,
        "label": _label(rows, is_small, gate_result, rule_verdict),
        "rule": decision["rule"],
        "at_least": decision.get("at_least"),
        "branch": None,  # a field of every judgement; a rule with branches reports its own
        "method": decision["method"],
        "family": len(rows),
        "alpha": format_decimal(alpha),
        "corrected_alpha": format_decimal(level),
        "contrasts": rows,
        "gate": gate_result,
        "arms": _arm_rows(graded, has_state="memory" in decision),
        "missing": _missing_counts(study, decision["missing"]) | ({"owed": True} if rests_on_failures else {}),
    }
    if not is_void:
        judgement |= rule.report(estimated, decision, read_judging(study.lock))
    if margin := decision.get("margin"):
        judgement["margin"] = format_decimal(margin)
    if verdict != rule_verdict:
        judgement["rule_says"] = rule_verdict
    if "beside" in decision:
        judgement["beside"] = _contrasts_beside_rule(graded, len(rows), alpha, required_floor)
    if selection is not None:
        judgement["selected"] = selection
    if "exclude" in content:
        judgement["excluded"] = _excluded(study)
    if required_floor is not None:
        judgement |= _qualified_fields(study, judgement, rule_verdict)
    return judgement | {
        "proves": statements.proves(judgement),
        "does_not_prove": statements.does_not_prove(judgement, study.lock, _never_evicting(study)),
    }


def _compare_families(study: Study, graded: Study, required_floor: floor.Floor | None) -> list[FamilyComparison]:
    """Return the family that is printed and decides, and then every other one in which its verdict has to result:
    as counted, and in both extremes of what lanes without a grade would have been.
    """
    decision = study.lock["protocol"]["content"]["decision"]
    alpha, sides = float(decision["alpha"]), arm_pairs(decision)
    families = [compare_family(graded, sides, alpha, required_floor=required_floor)]
    if required_floor is not None and decision["missing"] == "wrong" and not study.missing.empty:
        from analysis.judgement import missing_bounds

        extremes = missing_bounds.extreme_studies(study)
        families += [compare_family(extreme, sides, alpha, required_floor=required_floor) for extreme in extremes]
        families.insert(0, missing_bounds.widen_family(families, alpha))
    return families


def _rests_on_failures(study: Study, families: Sequence[FamilyComparison], rule_verdict: str) -> bool:
    """Return whether the verdict depends on what lanes without a grade would have been: of studies that are judged as
    shipped, whether CONFIRMED does if those of comparators were correct.
    """
    decision, judging = study.lock["protocol"]["content"]["decision"], read_judging(study.lock)
    if judging == 1:
        if rule_verdict != CONFIRMED or study.missing.empty:
            return False
        from analysis.judgement import missing_bounds

        credited = missing_bounds.extreme_studies(study)[1]
        families = [compare_family(credited, arm_pairs(decision), float(decision["alpha"]))]
        if None in families[0].contrasts:
            return True
    decide = rules.RULES[decision["rule"]].decide
    return any(
        decide([contrast for contrast in family.contrasts if contrast is not None], decision, judging) != rule_verdict
        for family in families
    )


def _qualified_fields(study: Study, judgement: Mapping[str, Any], rule_verdict: str) -> dict[str, Any]:
    """Return the fields that studies judged as shipped lack: the p that decides, what refutes, what could have been
    found, the sound method, population and qualifiers.
    """
    decision = study.lock["protocol"]["content"]["decision"]
    scored = {"scored": outcome["kind"]} if (outcome := study.lock["protocol"]["content"].get("outcome")) else {}
    fields: dict[str, Any] = {
        "contrasts": [row | scored | _decisive_p(row, decision) for row in judgement["contrasts"]]
    }
    if rule_verdict == REFUTED:
        fields["refuted_by"] = len(rules.RULES[decision["rule"]].refuting_rows(fields["contrasts"], decision))
    if rule_verdict == INCONCLUSIVE and (text := population.describe_resolution(fields["contrasts"], study.lock)):
        fields["resolution"] = text
    if decision["method"] == AS_PUBLISHED:
        fields["sound"] = _judge_soundly(study)
    fields["population"] = population.describe_population(study.lock)
    if read_judging(study.lock) > 2:
        fields["sample"] = population.describe_sample(fields["contrasts"])
    listed = qualifiers.list_qualifiers({**judgement, **fields}, study.lock)
    return fields | {"qualifiers": [qualifier._asdict() for qualifier in listed]}


def _decisive_p(row: Mapping[str, Any], decision: Mapping[str, Any]) -> dict[str, str]:
    """Return the p of a contrast that the rule compares with alpha, where that is not the one adjusted for the
    family: of a contrast alone, or of a margin.
    """
    rule = rules.RULES[decision["rule"]]
    if row["difference"] is None:
        return {}
    if rule.has_cell_levels:
        return {"p_decisive": row["p"]}
    if "margin" not in decision:
        return {}
    sides = ("p_worse", "p_better") if rule.has_two_sided_margin else ("p_worse",)
    return {"p_decisive": max((row[side] for side in sides), key=float)}


def _judge_soundly(study: Study) -> dict[str, Any]:
    """Return the method that judges beside a published one, its word on the same records, and its p by contrast."""
    protocol = study.lock["protocol"]
    decision = protocol["content"]["decision"] | {"method": SOUND_METHOD}
    content = {**protocol["content"], "decision": decision}
    judged = judge_study(study._replace(lock={**study.lock, "protocol": {**protocol, "content": content}}))
    return {
        "method": SOUND_METHOD,
        "verdict": verdict_line.rule_verdict(judged),
        "p": [row["p"] for row in judged["contrasts"]],
    }


def _never_evicting(study: Study) -> set[tuple[str, ...]]:
    """Return (model, task, budget, arm) of the arms with a budget that evicted nothing in all measured lanes."""
    measured = study.lanes[study.lanes["evicted"].notna() & (study.lanes["budget"] != FULL)]
    if measured["evicted"].all():  # the usual case
        return set()
    most = measured.groupby(LANE_COLUMNS[:4])["evicted"].max()
    return set(most.index[most == 0])


def _label(rows: list[dict[str, Any]], is_small: bool, gate_result: Mapping[str, Any] | None, rule_verdict: str) -> str:
    if is_small:
        return "screening-grade"
    if gate_result is not None and not gate_result["passed"]:
        return "uninformative"
    if rule_verdict == INCONCLUSIVE and sentences.uninformative_rows(rows):
        return "uninformative"
    return f"confirmatory-grade {format_single_model({'contrasts': rows})}".rstrip()


def _replace_verdict(rule_verdict: str, lock: Mapping[str, Any], is_small: bool) -> str:
    """Return the word of a study: the rule's, unless the study can decide nothing. An amendment after a claim
    or a look that was not registered comes before too few problems, and these before problems that were opened before.
    """
    if lock.get(opened_lanes.DEVIATION) or (
        (amends := lock.get("amends")) is not None and amends["after_claim"] is True
    ):
        return DEVIATED
    if is_small:
        return SCREENED
    return REUSED if rule_verdict != INCONCLUSIVE and previously_opened.describe_reuse(lock) else rule_verdict


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


def selection_summary(digest: str, selection: Mapping[str, Any]) -> dict[str, Any]:
    """Return the selected candidate of the sweep, and the digest of its selection."""
    chosen = selection["selected"]
    arm_fields = {name: chosen[name] for name in ("policy", "set") if name in chosen}
    return {"arm": chosen["winner"], **arm_fields, "selection": digest}


def _contrasts_beside_rule(
    study: Study, first: int, alpha: float, required_floor: floor.Floor | None
) -> dict[str, Any]:
    """Return contrasts outside the decision rule ("Minimal-Intervention KV Retention", appendix B): the
    subject against the arms in `beside`, corrected for their number, and each comparator against them,
    uncorrected. A comparator that never evicts has no lanes at a budget and is not compared with them.
    """
    decision = study.lock["protocol"]["content"]["decision"]
    other_arms = decision["beside"]
    sides = [(decision["subject"], arm) for arm in other_arms]
    heads = compare_family(study, sides, alpha, first=first, required_floor=required_floor)
    evicting = {arm for _, _, budget, arm, _ in study.lock["grid"] if budget != FULL}
    sides = list(itertools.product((arm for arm in decision["against"] if arm in evicting), other_arms))
    first += len(heads.rows)
    auxiliary: list[dict[str, Any]] = []
    if sides:
        auxiliary = compare_family(
            study, sides, alpha, first=first, corrected=False, required_floor=required_floor
        ).rows
    return {
        "family": len(heads.rows),
        "alpha": format_decimal(alpha),
        "corrected_alpha": format_decimal(heads.level),
        "contrasts": heads.rows,
        "auxiliary": auxiliary,
    }


def _arm_rows(study: Study, *, has_state: bool) -> list[dict[str, Any]]:
    """Return one row per arm and cell, in grid order, with means over the measured lanes.

    state: add the bytes that the policy carries besides slots. If a second grader graded any text, rows have
    the number of lanes on which the two disagree and, for scores, their mean distance over lanes. The
    accuracy of scored answers is their mean score. If any lane read some of its slots alone, rows have what was read.
    """
    rows, has_reads = [], bool(study.lanes["reads"].notna().any())
    has_second_grade, has_score_distance = (bool(study.lanes[name].notna().any()) for name in ("disagrees", "apart"))
    for key, arm_lanes in study.by_arm().items():
        lanes = arm_lanes[arm_lanes["state"] != EXCLUDED]
        problems, accuracy = _mean_accuracy(lanes)
        rows.append(
            {
                **dict(zip(("model", "task", "budget", "arm"), key, strict=True)),
                "n": problems,
                "accuracy": format_decimal(accuracy),
                "mean_slots": format_decimal(lanes["mean_slots"].mean()),
                "peak_slots": format_decimal(lanes["peak_slots"].max()),
                "mean_bytes": format_decimal(lanes["mean_bytes"].mean()),
                "mean_tokens": format_decimal(lanes["tokens"].mean()),
                **({"mean_reads": format_decimal(slots_read(lanes).mean())} if has_reads else {}),
                "no_answer": int((lanes["grade"] == "no answer").sum()),
                "truncated": int((lanes["stop"] == "length").sum()),
                "failed": int(is_ungraded(lanes).sum()),
                **({"mean_state_bytes": format_decimal(lanes["state_bytes"].mean())} if has_state else {}),
                **({"disagreements": int(lanes["disagrees"].sum())} if has_second_grade else {}),
                **({"scores_apart": format_decimal(lanes["apart"].mean())} if has_score_distance else {}),
                **({"timeouts": int((lanes["grade"] == TIMEOUT).sum())} if has_second_grade else {}),
            }
        )
    return rows


def _mean_accuracy(lanes: pd.DataFrame) -> tuple[int, float]:
    """Return the number of problems, and the mean of their mean grades without NaN (ungraded lanes that do
    not count as wrong).
    """
    positions, problems = pd.factorize(lanes["problem"])
    correct = lanes["correct"].to_numpy(dtype=np.float64)
    is_graded = ~np.isnan(correct)
    lane_counts = np.bincount(positions[is_graded], minlength=len(problems))
    sums = np.bincount(positions[is_graded], correct[is_graded], minlength=len(problems))
    return len(problems), float(
        (sums[lane_counts > 0] / lane_counts[lane_counts > 0]).mean()
    ) if lane_counts.any() else np.nan


def _missing_counts(study: Study, rule: str) -> dict[str, Any]:
    """Count the lanes without a grade, in total and by cell and reason."""
    missing = study.missing
    ended = missing["grade"].where(missing["state"] == "ok", missing["state"])
    columns = [*LANE_COLUMNS[:-1], "ended"]
    counts = missing.assign(ended=ended).groupby(columns, sort=False).size()
    cells = [dict(zip(columns, key, strict=True)) | {"lanes": int(count)} for key, count in counts.items()]
    return {"rule": rule, "registered": len(study.lanes), "lanes": len(missing), "cells": cells} | {
        "uneven": uneven_missingness.uneven_rows(study)
    }
