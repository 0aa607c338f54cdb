"""What the rule can detect at the planned size; needs no model and no torch."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.rules import RULES
from analysis.stats import power
from analysis.stats.methods import LEAST, METHODS, WITHOUT_COUNTS, draws, resampled
from analysis.trial import error_rates, error_table, self_test, simulated_studies, type_one
from analysis.trial.populations import SYMMETRIC, Setting
from analysis.trial.type_one import LIMIT, TypeOne
from protocol.evidence.bytes.shown import put
from protocol.evidence.refusals import BadInput
from protocol.plan import grid
from protocol.plan.design import Design

__all__ = ["checks", "detectable", "looked_up", "refuse_counts"]

SOON = 300  # up to so many problems a simulation takes a few seconds
OWN_LEVELS = ("branch",)  # rules that test a contrast at another level than the corrected one
USUAL = Setting(SYMMETRIC, 0.17)
DISCORDANCES = (0.2, 0.6)  # shares of problems on which the arms differ, for which power is printed
# Methods that a refusal proposes: the first one that holds its level.
INSTEAD = ("restricted-likelihood", "auto", "sign-flip", "t", "max-t")


def refuse_counts(protocol: Design, items: Mapping[str, Any], scored: Sequence[str]) -> None:
    """Raise BadInput if a task has scores or clusters and the method counts right and wrong answers."""
    decision = protocol.decision
    if not METHODS[decision.method].counts:
        return
    for name, item in items.items():
        if name in scored or "clusters" in item:
            what = "scored answers" if name in scored else "clusters"
            takes = [method for method in WITHOUT_COUNTS if not _refused(protocol, method)]
            raise BadInput(
                f"decision.method: {decision.method} counts right and wrong answers, each problem for "
                f"itself, and {name} has {what}; write {' or '.join(takes)}"
            )


def _refuse_few(items: Mapping[str, Any]) -> None:
    """Raise BadInput for so few or so uneven clusters that no method's interval holds its level."""
    for name, item in items.items():
        if "clusters" in item and (weigh := len(resampled(item))) < LEAST:
            raise BadInput(
                f"tasks.{name}: cluster: the held-out problems weigh as {weigh} clusters of one size, and of "
                f"fewer than {LEAST} no interval holds; name smaller or more even clusters, or more of them"
            )


def _refused(protocol: Design, method: str) -> bool:
    """Whether the registered rule does not accept a method."""
    decision = protocol.content()["decision"]
    rule = RULES[protocol.decision.rule]
    return rule.refusal(decision | {"method": method}, decision.get("at_least") or 1) is not None


def checks(
    protocol: Design, items: Mapping[str, Any], *, again: bool = False, scored: Sequence[str] = ()
) -> dict[str, Any]:
    """Return what the rule can detect at the planned size; raise BadInput for a method or a rule that errs
    too often there.

    is_replication: the study decides as its parent did. Errors for which a new registration would be refused
    are then written and not refused.

    Everything is simulated with answers that are right or wrong, one a problem. A task with clusters is
    simulated with one answer per effective cluster: what is left if the answers of a cluster are all alike.
    Fewer than `LEAST` are refused. With scores (scored: the names of their tasks) or clusters, an error that
    every applicable method has is written and not refused.
    """
    _refuse_few(items)
    counts = not scored and not any("clusters" in item for item in items.values())
    items = {
        name: {field: value for field, value in item.items() if field != "clusters"}
        | {"confirm": resampled(item)}
        for name, item in items.items()
    }
    decision = protocol.decision
    models = protocol.family()
    corrected = float(decision.alpha) / len(models)
    alone = {size: _check_size(protocol, size, corrected, again, counts) for size in _sizes(items)}
    plan = simulated_studies.Plan(protocol.content(), [list(cell) for cell in grid.cells(protocol)], items)
    try:
        rule = self_test.tried(plan)
    except self_test.Vacuous as vacuous:
        raise BadInput(f"decision.rule: {vacuous}") from None
    _, seed = draws(plan.content["decision"])
    errors = error_rates.errors(plan, np.random.default_rng([seed, len(models)]), _settings(protocol, alone))
    if errors.exceeds(float(decision.alpha)) and counts and not again:
        raise BadInput(
            f"decision.rule: {decision.rule} by {decision.method} "
            + _errs(errors.wrong, errors.studies, float(decision.alpha), "alpha")
            + f" where {errors.setting}; use fewer contrasts, or another method or rule"
        )
    seen = detectable(protocol, items)
    return {
        "tests": seen["tests"],
        "corrected_alpha": seen["corrected_alpha"],
        "problems": {
            str(size): {
                "type_one_over_nominal": f"{error.ratio:.3f}",
                "type_one_setting": str(error.setting),
                **seen["problems"][str(size)],
            }
            for size, error in alone.items()
        },
        "rule": rule,
        "decision_errors": error_rates.printed(errors),
    }


def detectable(protocol: Design, items: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of `check_rule` that says which differences can be detected. Takes seconds; only too
    few clusters are refused.
    """
    _refuse_few(items)
    tests = len(protocol.family())
    corrected = float(protocol.decision.alpha) / tests
    return {
        "tests": tests,
        "corrected_alpha": f"{corrected:.6f}",
        "problems": {
            str(size): {
                "minimal_detectable_effect": {
                    f"{discordance:.1f}": _smallest(protocol, size, corrected, discordance)
                    for discordance in DISCORDANCES
                }
            }
            for size in _sizes(items)
        },
    }


def _sizes(items: Mapping[str, Any]) -> list[int]:
    return sorted({len(resampled(item)) for item in items.values()})


def _check_size(protocol: Design, problems: int, corrected: float, again: bool, counts: bool) -> TypeOne:
    """Return the type-I error of the registered method at one task's size. Raises BadInput if it is too
    large.

    counts_answers: whether answers are right or wrong, each problem for itself.
    """
    decision, seeds = protocol.decision, len(protocol.seeds)
    times, seed = draws(protocol.content()["decision"])
    # max-t resamples the whole family at once.
    drawn = float(decision.alpha) if METHODS[decision.method].family else corrected
    least = 2.0 ** (1 - problems)  # the smallest possible p value
    if decision.method == "sign-flip" and least > drawn:
        raise BadInput(
            f"decision.method: sign-flip of {problems} problems or clusters has no p below {least:.5f}, and "
            f"a contrast is decided at {drawn:.5f}; plan more of them or fewer contrasts"
        )
    if not power.draws_enough(decision.method, times, drawn, problems):
        if times >= (needed := power.draws_needed(drawn)):
            raise BadInput(
                f"tasks: {problems} held-out problems or clusters are too few for {decision.method} to find "
                f"anything at the level {drawn:.5f}; take more of them, or another method"
            )
        raise BadInput(
            f"decision.draws: {times} draws leave too few in a tail at the level "
            f"{drawn:.5f}; register at least {needed}"
        )
    rng = np.random.default_rng([seed, problems])
    error = _type_one(protocol, decision.method, problems, corrected, rng)
    instead = _instead(protocol, problems, corrected, rng, counts) if error.exceeds() and not again else None
    if instead or (error.exceeds() and counts and not again):
        raise BadInput(
            f"decision.method: {decision.method} at {problems} problems and {seeds} seed{'s'[: seeds > 1]} "
            + _errs(_interval(error), error.studies, error.rate / error.ratio, "the level")
            + f" where {error.setting}; "
            + (
                f"use {instead}, which holds there"
                if instead
                else "no method holds there; plan more problems"
            )
        )
    return error


def _interval(error: TypeOne) -> error_rates.Share:
    """Return the share of studies with a wrong decision, with its limits."""
    level = error.rate / error.ratio
    return error_rates.Share(error.rate, error.ratio_low * level, error.ratio_high * level)


def _errs(wrong: error_rates.Share, studies: int, level: float, called: str) -> str:
    """Return the sentence that compares the error with its limit: the whole interval is above it."""
    by = f"{studies:,} simulated, 95 % interval {_percent(wrong.low)} to {_percent(wrong.high)}"
    return (
        f"decides {_percent(wrong.share)} of studies without a difference "
        f"({by if studies else 'counted exactly'}), and all of that lies above the limit of "
        f"{_percent(LIMIT * level)}, {LIMIT} times {called} {_percent(level)},"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _settings(protocol: Design, alone: Mapping[int, TypeOne]) -> list[Setting] | None:
    """Return the settings in which the whole rule is simulated: all of them (None) if a single contrast gives
    no bound.

    By Bonferroni a family errs at most as often as all of its contrasts together, in any setting: the rule is
    then simulated where one contrast errs most, and in the usual setting.
    """
    if protocol.decision.rule in OWN_LEVELS or METHODS[protocol.decision.method].family:
        return None
    worst = max(alone.values(), key=lambda one: one.ratio).setting
    return [worst] if worst.by else list(dict.fromkeys([worst, USUAL]))


def _type_one(
    protocol: Design, method: str, problems: int, corrected: float, rng: np.random.Generator
) -> TypeOne:
    """Return the type-I error of the test that the rule uses, from the table or else simulated.

    With a margin a rule confirms at alpha (divided by the arms that it compares), in all contrasts, and
    refutes at the corrected level.
    """
    if (known := looked_up(protocol, method, problems, corrected)) is not None:
        return known
    seeds, (margin, confirms) = len(protocol.seeds), _margin(protocol)
    if seeds > 1 and (margin or problems > SOON):
        put(
            f"{method} at {problems} problems and {seeds} seeds is not in the table of error rates (see "
            "analysis/trial/error_table.py); simulating it, which can take a minute",
            sys.stderr,
        )
    if margin:
        return type_one.at_margin(method, problems, seeds, margin, (confirms, corrected), rng)
    return type_one.type_one(method, problems, seeds, corrected, rng)


def looked_up(protocol: Design, method: str, problems: int, corrected: float) -> TypeOne | None:
    """Return the type-I error from the table alone; None if the table lacks a part of it."""
    seeds, (margin, confirms) = len(protocol.seeds), _margin(protocol)
    asked: list[tuple[str, float, float | None]] = [(error_table.TWO_SIDED, corrected, None)]
    if margin:
        asked = list(zip(error_table.ABOUT_MARGIN, (confirms, corrected), (margin, margin), strict=True))
    found = [error_table.looked_up(test, method, problems, seeds, level, at) for test, level, at in asked]
    known = [one for one in found if one is not None]
    return max(known, key=lambda one: one.ratio_low) if len(known) == len(found) else None


def _margin(protocol: Design) -> tuple[float, float]:
    """Return the registered margin, 0 without one, and the level at which a rule confirms within it."""
    decision = protocol.content()["decision"]
    return float(decision.get("margin") or 0), float(decision["alpha"]) / (
        1 + len(decision.get("others", ()))
    )


def _instead(
    protocol: Design, problems: int, corrected: float, rng: np.random.Generator, counts: bool
) -> str | None:
    """Return the method to register in place of a refused one; None if no method holds its level."""
    for name in INSTEAD:
        if _refused(protocol, name) or (METHODS[name].counts and not counts):
            continue
        if not _type_one(protocol, name, problems, corrected, rng).exceeds():
            return name
    return None


def _smallest(protocol: Design, problems: int, corrected: float, discordance: float) -> str:
    """Return the smallest difference found with 80 % power when this share of the problems is discordant."""
    decision = protocol.decision
    times, seed = draws(protocol.content()["decision"])
    effect = power.minimal_detectable_effect(
        problems,
        corrected,
        method=decision.method,
        discordance=discordance,
        draws=times,
        rng=np.random.default_rng([seed, problems]),
    )
    return "none" if effect is None else f"{effect:.3f}"
