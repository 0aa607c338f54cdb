"""How often a study of the planned size says CONFIRMED where that is true, by the share of problems that differ.

A rule with a margin is asked where nothing differs, any other where the subject is better by TARGET points in every
contrast, or by all that differs. This is printed and not locked: it decides nothing, and the truth that it supposes is
nobody's registration.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from scipy import optimize, stats

from analysis.rules.rule import arm_pairs
from analysis.rules.verdicts import CONFIRMED
from analysis.simulation import power_text
from analysis.simulation.error_rates import simulate_verdicts
from analysis.simulation.simulated_studies import StudyPlan, planned_contrasts
from analysis.stats.methods import describe_sizes, resampling_problems
from protocol.formats.vocabulary import CURRENT_JUDGING

DISCORDANCES = (0.05, 0.1, 0.2)  # shares of problems on which the arms differ
TARGET = 0.1  # points by which the subject is better, of a rule without a margin
POWER = 0.8
STUDIES = 200


def confirm_chance(plan: StudyPlan, discordance: float, rng: np.random.Generator, studies: int = STUDIES) -> float:
    """Return the share of studies with CONFIRMED. All seeds of a problem agree; contrasts are independent, which a
    rule that asks for all of them confirms less often than correlated ones.
    """
    effect = _effect(plan.content["decision"], discordance)
    seeds, gains = len(plan.content["seeds"]), []
    for contrast in planned_contrasts(plan):
        uniform = rng.random((studies, contrast.problems))
        won, differ = uniform < (discordance + effect) / 2, uniform < discordance
        gains.append(seeds * np.where(won, 1, np.where(differ, -1, 0)))
    return simulate_verdicts(plan, gains, rng).count(CONFIRMED) / studies


def problems_needed(plan: StudyPlan, discordance: float) -> int:
    """Return about how many problems of each task make `confirm_chance` 80 %, by normal approximation."""
    decision, contrasts = plan.content["decision"], planned_contrasts(plan)
    alpha, family, effect = float(decision["alpha"]), len(contrasts), _effect(decision, discordance)
    if margin := float(decision.get("margin") or 0):
        arms = len({subject for subject, _ in arm_pairs(decision)})
        needed = family
        if decision["rule"] == "smallest_lossless":  # the largest budget of the subject
            needed = len(plan.content["models"]) * len(plan.content["tasks"])
        chance = POWER ** (1 / needed)
        if decision["rule"] == "equivalent":
            chance = (1 + chance) / 2
        return _size(decision["method"], alpha / arms, chance, discordance, margin)
    if decision["rule"] == "branch":
        family = sum(contrast.model == decision["primary_model"] for contrast in contrasts)
    at_least = decision.get("at_least", 1)
    chance = float(optimize.brentq(lambda each: stats.binom.sf(at_least - 1, family, each) - POWER, 1e-9, 1 - 1e-9))
    return _size(decision["method"], alpha / 2 / family, chance, discordance - effect**2, effect)


def describe_power(
    content: Mapping[str, Any],
    checks: Mapping[str, Any],
    items: Mapping[str, Mapping[str, Any]],
    discordances: Iterable[float] = (),
) -> list[str]:
    """Describe what a study can detect: differences a contrast, then `describe_confirmation`, which says what
    `content` and `discordances` are. Of agreement with the full cache, which is no share of right answers, the
    difference alone.

    checks, items: of a lock, or those that it would have.
    """
    method, samples = content["decision"]["method"], describe_sizes(items)
    if "outcome" in content:
        return power_text.describe_power_of_agreement(checks, method, samples)
    sizes = {task: len(resampling_problems(item)) for task, item in items.items()}
    return power_text.describe_power(checks, method, samples) + describe_confirmation(content, sizes, discordances)


def describe_confirmation(
    content: Mapping[str, Any],
    sizes: Mapping[str, int],
    discordances: Iterable[float] = (),
) -> list[str]:
    """Describe the chance of CONFIRMED in one sentence for each discordance, and the problems that 80 % need.

    content: of the protocol. sizes: problems (or effective clusters) by task. discordances: measured ones, besides
    the usual.
    """
    items = {task: {"confirm": [str(number) for number in range(size)]} for task, size in sizes.items()}
    plan = StudyPlan(content, [], items, CURRENT_JUDGING)
    lines = []
    for discordance in sorted({*DISCORDANCES, *discordances}):
        rng = np.random.default_rng([content["decision"].get("seed", 0), round(1e4 * discordance)])
        effect = _effect(content["decision"], discordance)
        truth = "nothing differs on average" if not effect else f"the subject is better by {100 * effect:g} points"
        measured = " (as measured here)" if discordance not in DISCORDANCES else ""
        lines.append(
            f"P(CONFIRMED) if {truth} and arms disagree on {100 * discordance:.3g} % of "
            f"problems{measured}: {100 * confirm_chance(plan, discordance, rng):.0f} %; 80 % needs about "
            f"{problems_needed(plan, discordance):,} independent problems per task"
        )
    return lines


def discordance_of_lanes(lanes: Iterable[Mapping[str, Any]], decision: Mapping[str, Any]) -> float | None:
    """Return the share of lanes on which the arms of a contrast differ, over all contrasts, without saying which arm
    is ahead; None if no lane of a contrast is graded. lanes: records of development problems.
    """
    solved: dict[tuple[Any, ...], dict[str, float]] = {}
    for lane in lanes:
        if lane["grade"] in ("correct", "wrong"):
            key = tuple(lane[name] for name in ("model", "task", "budget", "seed", "problem"))
            solved.setdefault(key, {})[lane["arm"]] = lane["grade"] == "correct"
    pairs = [
        arms[subject] != arms[other]
        for arms in solved.values()
        for subject, other in arm_pairs(decision)
        if subject in arms and other in arms
    ]
    return sum(pairs) / len(pairs) if pairs else None


def _effect(decision: Mapping[str, Any], discordance: float) -> float:
    return 0.0 if decision.get("margin") else min(TARGET, discordance)


def _size(method: str, level: float, chance: float, variance: float, distance: float) -> int:
    reach = power_text.level_quantile(method, level)
    return int(np.ceil(max(variance, 0.0) * (reach + float(stats.norm.ppf(chance))) ** 2 / distance**2))
