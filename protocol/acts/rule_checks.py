"""What the rule can see at the planned size; needs no model and no torch."""

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from analysis.rules import RULES
from analysis.stats import power
from analysis.stats.methods import METHODS, draws
from analysis.trial import error_rates, error_table, self_test, simulated_studies, type_one
from analysis.trial.type_one import LIMIT
from protocol.evidence.refusals import BadInput
from protocol.plan import grid
from protocol.plan.design import Design

__all__ = ["checks"]

SOON = 300  # problems up to which a simulation takes a few seconds
DISCORDANCES = (0.2, 0.6)  # shares of problems on which the arms differ, for which power is printed
# Methods that a refusal proposes, the first that holds where the registered one does not.
INSTEAD = ("restricted-likelihood", "auto", "sign-flip", "t", "max-t")


def checks(protocol: Design, items: Mapping[str, Any], *, again: bool = False) -> dict[str, Any]:
    """What the rule can see at the planned size; refuses a method, and a rule, that errs too often there.

    again: of a replication, which decides as its parent did. What a new registration would be refused for is
    then found and written all the same.
    """
    decision = protocol.decision
    models = protocol.family()
    corrected = float(decision.alpha) / len(models)
    sizes = sorted({len(item["confirm"]) for item in items.values()})
    found = {str(size): _check_size(protocol, size, corrected, again) for size in sizes}
    plan = simulated_studies.Plan(protocol.content(), [list(cell) for cell in grid.cells(protocol)], items)
    try:
        rule = self_test.tried(plan)
    except self_test.Vacuous as vacuous:
        raise BadInput(f"decision.rule: {vacuous}") from None
    _, seed = draws(plan.content["decision"])
    errors = error_rates.errors(plan, np.random.default_rng([seed, len(models)]))
    if errors.exceeds(float(decision.alpha)) and not again:
        raise BadInput(
            f"decision.rule: {decision.rule} by {decision.method} decides {errors.wrong.share:.3f} of "
            f"studies without a difference (at least {errors.wrong.low:.3f}) where {errors.setting}; the "
            f"limit is {LIMIT} x alpha; use fewer contrasts, or another method or rule"
        )
    return {
        "tests": len(models),
        "corrected_alpha": f"{corrected:.6f}",
        "problems": found,
        "rule": rule,
        "decision_errors": error_rates.printed(errors),
    }


def _check_size(protocol: Design, problems: int, corrected: float, again: bool) -> dict[str, Any]:
    """Type-I error and minimal detectable effect of the registered method at one task's size."""
    decision, seeds = protocol.decision, len(protocol.seeds)
    times, seed = draws(protocol.content()["decision"])
    # max-t draws for the whole family at once.
    drawn = float(decision.alpha) if METHODS[decision.method].family else corrected
    if not power.draws_enough(decision.method, times, drawn, problems):
        raise BadInput(
            f"decision.draws: {times} draws leave too few in a tail at the level "
            f"{drawn:.5f}; register at least {power.draws_needed(drawn)}"
        )
    rng = np.random.default_rng([seed, problems])
    error = _type_one(decision.method, problems, seeds, corrected, rng)
    if error.exceeds() and not again:
        raise BadInput(
            f"decision.method: {decision.method} at {problems} problems, {seeds} seeds and level "
            f"{corrected:.5f} has {error.ratio:.3f} x the nominal type-I error (at least "
            f"{error.ratio_low:.3f}) where {error.setting}; the limit is {LIMIT}; "
            + _instead(protocol, problems, corrected, rng)
        )
    return {
        "type_one_over_nominal": f"{error.ratio:.3f}",
        "type_one_setting": str(error.setting),
        "minimal_detectable_effect": {
            f"{discordance:.1f}": _smallest(protocol, problems, corrected, discordance)
            for discordance in DISCORDANCES
        },
    }


def _type_one(
    method: str, problems: int, seeds: int, level: float, rng: np.random.Generator
) -> type_one.TypeOne:
    """From the table, and outside it simulated."""
    if found := error_table.looked_up(method, problems, seeds, level):
        return found
    if seeds > 1 and problems > SOON:
        print(
            f"{method} at {problems} problems, {seeds} seeds and level {level:.5f} is not in the table of "
            "error rates; simulating it, which can take a minute",
            file=sys.stderr,
            flush=True,
        )
    return type_one.type_one(method, problems, seeds, level, rng)


def _instead(protocol: Design, problems: int, level: float, rng: np.random.Generator) -> str:
    """The method to register in place of one that is refused."""
    decision = protocol.content()["decision"]
    for name in INSTEAD:
        if name not in METHODS or RULES[protocol.decision.rule].refusal(decision | {"method": name}, 1):
            continue
        if not _type_one(name, problems, len(protocol.seeds), level, rng).exceeds():
            return f"use {name}, which holds there"
    return "no method holds there; plan more problems"


def _smallest(protocol: Design, problems: int, corrected: float, discordance: float) -> str:
    """The smallest difference found with 80 % power when this share of the problems is discordant."""
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
