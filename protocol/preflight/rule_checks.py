"""How often the rule errs at the planned size, in simulated studies; needs no model and no torch."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from analysis.rules import RULES
from analysis.rules.self_test_cases import Vacuous
from analysis.simulation import (
    cluster_populations,
    error_rates,
    self_test,
    simulated_studies,
    type_one_error,
)
from analysis.simulation.error_estimate import LIMIT, TypeOneError
from analysis.simulation.null_populations import SCORE_STEPS
from analysis.simulation.null_settings import SYMMETRIC, Setting
from analysis.stats import power
from analysis.stats.methods import (
    ANYTIME_METHOD,
    AS_PUBLISHED,
    METHODS,
    SOUND_METHOD,
    draws_and_seed,
    resampling_problems,
)
from protocol.formats.escape import print_escaped
from protocol.formats.refusals import BadInput
from protocol.formats.vocabulary import CURRENT_JUDGING
from protocol.plan import grid
from protocol.plan.design import Design
from protocol.plan.task import task_chance
from protocol.preflight import planned_size
from protocol.preflight.planned_size import Units

QUICK_PROBLEMS = 300  # up to so many problems a simulation takes a few seconds
USUAL_SETTING = Setting(SYMMETRIC, 0.17)
# Methods that a refusal proposes: the first one that holds its level.
ALTERNATIVES = ("restricted-likelihood", "auto", "sign-flip", "t", "max-t", "cr2", "betting")


def refuse_method(
    protocol: Design, items: Mapping[str, Any], scored: Sequence[str], *, is_replication: bool = False
) -> None:
    """Raise BadInput if a task has scores, or clusters of several problems, and the method is not betting: no other
    holds its level and its intervals there, whatever the sizes (docs/decisions/68-false-verdicts.md).

    is_replication: a method that its parent registered, as some could, is not refused.
    """
    method = protocol.decision.method
    if method == ANYTIME_METHOD or (is_replication and not METHODS[method].needs_counts):
        return
    for name, item in items.items():
        if not planned_size.describe_units(item, name in scored).counts_answers:
            data_kind, way_out = (
                ("scored answers", "") if name in scored else ("clusters", ", or take one problem of each cluster")
            )
            of_draws = [each for each in ("draws", "seed") if getattr(protocol.decision, each) is not None]
            left_out = f" and leave out {' and '.join(of_draws)}" if of_draws else ""
            raise BadInput(
                f"decision.method: {method} is valid only for answers that are right or wrong and for "
                f"independent problems, but {name} has {data_kind}; write {ANYTIME_METHOD}{left_out}{way_out}"
            )


def refuse_looks(protocol: Design, items: Mapping[str, Any], scored: Sequence[str]) -> None:
    """Raise BadInput for looks that do not end with all held-out problems of each task, for clusters, which a look
    would cut, and for data that may be skewed by another method than betting: at the small level of an early look t
    errs up to four times as often as it should (benchmarks/looks.py).
    """
    looks, is_betting = protocol.decision.looks, protocol.decision.method == ANYTIME_METHOD
    for name, item in items.items() if looks else ():
        assert looks is not None
        if not is_betting and (name in scored or len(protocol.seeds) > 1):
            data_kind = "scored answers" if name in scored else "several seeds"
            raise BadInput(
                f"decision.looks: {name} has {data_kind}, for which {protocol.decision.method} has not been "
                f'tested at small levels; write method = "{ANYTIME_METHOD}" and no spending'
            )
        if "clusters" in item:
            raise BadInput(f"decision.looks: {name} has clusters of problems, which looks would split; leave it out")
        if looks[-1] != (count := len(item["confirm"])):
            raise BadInput(
                f"decision.looks: ends with {looks[-1]} problems, but {name} has {count} held-out ones; give "
                "all tasks the same number"
            )


def _is_refused(protocol: Design, method: str) -> bool:
    """Whether the registered rule does not accept a method."""
    decision = protocol.content()["decision"]
    rule = RULES[protocol.decision.rule]
    return rule.refusal(decision | {"method": method}, decision.get("at_least") or 1) is not None


def check_rule(
    protocol: Design, items: Mapping[str, Any], *, is_replication: bool = False, scored: Sequence[str] = ()
) -> dict[str, Any]:
    """Return what the rule can detect at the planned size; raise BadInput for a method or a rule that errs
    too often there.

    is_replication: the study decides as its parent did. Errors for which a new registration would be refused
    are then written and not refused. So are those of a published method that is reproduced; the sound method that
    judges beside it must hold.

    The method is tried on the data of each task: right and wrong answers, scores (scored: the names of their
    tasks), or clusters of the planned sizes, of which betting alone is accepted. The whole rule and its power are
    tried on right and wrong answers, of a task with clusters one for each effective cluster: what is left if the
    answers of a cluster are all alike.
    """
    planned_size.refuse_few_clusters(items)
    refuse_method(protocol, items, scored, is_replication=is_replication)
    refuse_looks(protocol, items, scored)
    decision = protocol.decision
    if is_published := decision.method == AS_PUBLISHED:
        sound = replace(decision, method=SOUND_METHOD, draws=None, seed=None)
        check_rule(replace(protocol, decision=sound), items, is_replication=is_replication, scored=scored)
    may_err = is_replication or is_published
    plan = _plan_study(protocol, items, judging=1 if is_replication else CURRENT_JUDGING)
    errors_by_size = check_method(protocol, items, scored, may_err=may_err)
    try:
        rule = self_test.run_self_test(plan)
    except Vacuous as vacuous:
        raise BadInput(f"decision.rule: {vacuous}") from None
    errors = check_decision(protocol, items, scored, errors_by_size, plan, may_err=may_err)
    effects = planned_size.detectable_effects(protocol, plan.items)
    return {
        "tests": effects["tests"],
        "corrected_alpha": effects["corrected_alpha"],
        "problems": {
            str(size): {
                "type_one_over_nominal": f"{error.ratio:.3f}",
                "type_one_setting": str(error.setting),
                **effects["problems"][str(size)],
            }
            for size, error in errors_by_size.items()
        },
        "rule": rule,
        "decision_errors": error_rates.format_errors(errors),
    }


def _plan_study(protocol: Design, items: Mapping[str, Any], judging: int) -> simulated_studies.StudyPlan:
    """Return the study as the rule is tried on it: of a task with clusters one problem for each effective cluster."""
    units = {
        name: {field: value for field, value in item.items() if field != "clusters"}
        | {"confirm": resampling_problems(item)}
        for name, item in items.items()
    }
    return simulated_studies.StudyPlan(
        protocol.content(),
        [list(cell) for cell in grid.cells(protocol)],
        units,
        judging=judging,
        chance={task.name: str(task_chance(task) or 0) for task in protocol.tasks},
    )


def check_method(
    protocol: Design, items: Mapping[str, Any], scored: Sequence[str], *, may_err: bool = False
) -> dict[int, TypeOneError]:
    """Return the type-I error of one contrast by effective size; raise BadInput if it is too large.

    may_err: an error that is too large is returned and not refused.
    """
    corrected = float(protocol.decision.alpha) / len(protocol.contrast_models())
    errors: dict[int, TypeOneError] = {}
    for units in dict.fromkeys(planned_size.describe_units(item, name in scored) for name, item in items.items()):
        error = _check_units(protocol, units, corrected, may_err)
        size = units.effective
        errors[size] = max(error, errors.get(size, error), key=lambda one: one.ratio)
    return errors


def check_decision(
    protocol: Design,
    items: Mapping[str, Any],
    scored: Sequence[str],
    errors_by_size: Mapping[int, TypeOneError],
    plan: simulated_studies.StudyPlan | None = None,
    *,
    may_err: bool = False,
) -> error_rates.DecisionErrors:
    """Return how often the whole rule errs; raise BadInput if it is too often. errors_by_size: of `check_method`."""
    plan = plan or _plan_study(protocol, items, CURRENT_JUDGING)
    units = {name: planned_size.describe_units(item, name in scored) for name, item in items.items()}
    _, seed = draws_and_seed(plan.content["decision"])
    rng = np.random.default_rng([seed, len(protocol.contrast_models())])
    errors = error_rates.decision_errors(plan, rng, _error_settings(protocol, units, errors_by_size))
    decision = protocol.decision
    if errors.exceeds(float(decision.alpha)) and not may_err:
        raise BadInput(
            f"decision.rule: {decision.rule} by {decision.method} "
            + _describe_errors(errors.wrong, errors.studies, float(decision.alpha), "alpha")
            + f" (CONFIRMED {_percent(errors.confirmed.share)}) where {errors.setting}; use fewer contrasts, or "
            "another method or rule"
        )
    return errors


def _check_units(protocol: Design, units: Units, corrected: float, may_err: bool) -> TypeOneError:
    """Return the type-I error of the registered method on one task's units. Raises BadInput if it is too large.

    may_err: an error that is too large is returned and not refused.
    """
    decision, problems = protocol.decision, units.effective
    draw_count, seed = draws_and_seed(protocol.content()["decision"])
    # max-t resamples the whole family at once.
    level = float(decision.alpha) if METHODS[decision.method].family else corrected
    min_p = 2.0 ** (1 - problems)  # the smallest possible p value
    if decision.method == "sign-flip" and min_p > level:
        raise BadInput(
            f"decision.method: sign-flip with {problems} problems cannot give a p below {min_p:.5f}, but a "
            f"contrast is decided at {level:.5f}; plan more problems or fewer contrasts"
        )
    if not power.has_enough_draws(decision.method, draw_count, level, problems):
        if draw_count >= (needed_draws := power.draws_needed(level)):
            raise BadInput(
                f"tasks: {problems} held-out problems or clusters are too few for {decision.method} to find "
                f"any difference at the level {level:.5f}; take more of them, or another method"
            )
        raise BadInput(
            f"decision.draws: with {draw_count} draws too few fall into a tail at the level {level:.5f}; "
            f"register at least {needed_draws}"
        )
    rng = np.random.default_rng([seed, problems])
    error = _estimate_type_one(protocol, decision.method, units, corrected, rng)
    if error.exceeds() and not may_err:
        alternative = _alternative_method(protocol, units, corrected, rng)
        raise BadInput(
            f"decision.method: {decision.method} at {units.describe(len(protocol.seeds))} "
            + _describe_errors(_wrong_share(error), error.studies, error.rate / error.ratio, "the level")
            + f" where {error.setting}; "
            + (
                f"use {alternative}, which is valid there"
                if alternative
                else "no method is valid there; plan more problems"
            )
        )
    return error


def _wrong_share(error: TypeOneError) -> error_rates.RateEstimate:
    """Return the share of studies with a wrong decision, with its limits."""
    level = error.rate / error.ratio
    return error_rates.RateEstimate(error.rate, error.ratio_low * level, error.ratio_high * level)


def _describe_errors(wrong: error_rates.RateEstimate, studies: int, level: float, level_name: str) -> str:
    """Return the sentence that compares the error with its limit."""
    source = f"{studies:,} simulated, 95 % interval {_percent(wrong.low)} to {_percent(wrong.high)}"
    return (
        f"decides {_percent(wrong.share)} of studies without a difference "
        f"({source if studies else 'counted exactly'}), which may be above the limit of "
        f"{_percent(LIMIT * level)}, that is {LIMIT} times {level_name} {_percent(level)},"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _error_settings(
    protocol: Design, units: Mapping[str, Units], errors_by_size: Mapping[int, TypeOneError]
) -> list[Setting] | None:
    """Return the settings in which the whole rule is simulated: all of them (None) if a single contrast gives no bound.

    By Bonferroni a family errs at most as often as all of its contrasts together, in any setting: the rule is
    then simulated where one contrast errs most, and in the usual setting; with scores or clusters in the latter.
    """
    if RULES[protocol.decision.rule].has_cell_levels or METHODS[protocol.decision.method].family:
        return None
    if not all(task_units.counts_answers for task_units in units.values()):
        return [USUAL_SETTING] if planned_size.margin_and_level(protocol)[0] == 0 else None
    worst = max(errors_by_size.values(), key=lambda error: error.ratio).setting
    return [worst] if worst.loss_kind else list(dict.fromkeys([worst, USUAL_SETTING]))


def _estimate_type_one(
    protocol: Design, method: str, units: Units, corrected: float, rng: np.random.Generator
) -> TypeOneError:
    """Return the type-I error of the test that the rule uses, from the table or else simulated.

    With a margin a rule confirms at alpha (divided by the arms that it compares), in all contrasts, and
    refutes at the corrected level.
    """
    seeds, problems = len(protocol.seeds), units.effective
    margin, confirm_level = planned_size.margin_and_level(protocol)
    levels = (confirm_level, corrected) if margin else (corrected, corrected)
    if units.cluster_sizes:
        steps = SCORE_STEPS if units.has_scores else seeds
        return cluster_populations.worst_error_of_clusters(
            method, units.cluster_sizes, steps, levels, rng, margin or None
        )
    if units.has_scores and not margin:
        return type_one_error.worst_error_of_scores(method, problems, corrected, rng)
    if units.has_scores:  # each problem is a cluster of its own
        return cluster_populations.worst_error_of_clusters(method, [1] * problems, SCORE_STEPS, levels, rng, margin)
    if (tabulated := planned_size.look_up_type_one(protocol, method, problems, corrected)) is not None:
        return tabulated
    if seeds > 1 and (margin or problems > QUICK_PROBLEMS):
        print_escaped(
            f"{method} at {problems} problems and {seeds} seeds is not in the table of error rates (see "
            "analysis/simulation/error_table.py); simulating it",
            sys.stderr,
        )
    if margin:
        return type_one_error.worst_margin_error(method, problems, seeds, margin, levels, rng)
    return type_one_error.worst_type_one_error(method, problems, seeds, corrected, rng)


def _alternative_method(protocol: Design, units: Units, corrected: float, rng: np.random.Generator) -> str | None:
    """Return the method to register in place of a refused one; None if no method holds its level."""
    for name in ALTERNATIVES:
        if not _is_refused(protocol, name):
            error = _estimate_type_one(protocol, name, units, corrected, rng)
            if not error.exceeds():
                return name
    return None
