"""What the rule can see at the planned size; needs no model and no torch."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from analysis.stats import power
from analysis.stats.methods import METHODS, draws
from analysis.trial import error_rates, self_test, simulated_studies
from protocol.evidence.refusals import BadInput
from protocol.plan import grid
from protocol.plan.design import Design

__all__ = ["checks"]

DISCORDANCES = (0.2, 0.6)  # shares of problems on which the arms differ, for which power is printed
TYPE_ONE_LIMIT = 1.2  # times the nominal level; above it a method is refused


def checks(protocol: Design, items: Mapping[str, Any]) -> dict[str, Any]:
    """What the rule can see at the planned size; refuses a method whose type-I error is too high there."""
    decision = protocol.decision
    models = protocol.family()
    corrected = float(decision.alpha) / len(models)
    sizes = sorted({len(item["confirm"]) for item in items.values()})
    found = {str(size): _check_size(protocol, size, corrected) for size in sizes}
    plan = simulated_studies.Plan(protocol.content(), [list(cell) for cell in grid.cells(protocol)], items)
    try:
        rule = self_test.tried(plan)
    except self_test.Vacuous as vacuous:
        raise BadInput(f"decision.rule: {vacuous}") from None
    _, seed = draws(plan.content["decision"])
    errors = error_rates.errors(plan, np.random.default_rng([seed, len(models)]))
    return {
        "tests": len(models),
        "corrected_alpha": f"{corrected:.6f}",
        "problems": found,
        "rule": rule,
        "decision_errors": error_rates.printed(errors),
    }


def _check_size(protocol: Design, problems: int, corrected: float) -> dict[str, Any]:
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
    error = power.type_one(decision.method, problems, seeds, corrected, rng, times)
    if error.exceeds(TYPE_ONE_LIMIT):
        raise BadInput(
            f"decision.method: {decision.method} at {problems} problems and level {corrected:.5f} has "
            f"{error.ratio:.3f} x the nominal type-I error, by simulation {error.ratio_low:.3f} to "
            f"{error.ratio_high:.3f} (95 %); even the lower end is above the limit of {TYPE_ONE_LIMIT}; "
            "use sign-flip or t"
        )
    return {
        "type_one_over_nominal": f"{error.ratio:.3f}",
        "minimal_detectable_effect": {
            f"{discordance:.1f}": _smallest(protocol, problems, corrected, discordance)
            for discordance in DISCORDANCES
        },
    }


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
