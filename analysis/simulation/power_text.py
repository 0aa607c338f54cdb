"""Text about the power of a study of the planned size, and the problems needed to detect 10 points."""

import math
from collections.abc import Mapping
from typing import Any

from scipy import stats

from analysis.rules.judged_numbers import format_whole_percent
from analysis.stats.sample_size import POWER, problems_needed

COARSE_EFFECT = 0.2  # points; a warning is printed if larger differences may stay undetected
TARGET_EFFECT = 0.1  # points that an evaluation of eviction should detect (our choice; papers report 1 to 10)
BETTING_SURPLUS = 0.6  # by which a grid of stakes needs more than the best stake, in standard errors


def describe_power(checks: Mapping[str, Any], method: str, samples: Mapping[str, str]) -> list[str]:
    """Return a line for each number of problems, and a warning where power is low. checks: of a lock, with
    `tests`, `corrected_alpha` and, by number of `problems`, `minimal_detectable_effect` by the share of
    problems on which two arms differ. samples: as `stats.methods.describe_sizes`.
    """
    level = float(checks["corrected_alpha"])
    lines = []
    for problems, check in checks["problems"].items():
        effects = check["minimal_detectable_effect"]
        clauses = [
            f"{_format_effect(effect)} where arms disagree on {format_whole_percent(share)} of problems"
            for share, effect in effects.items()
        ]
        lines.append(_begin_line(checks, samples[problems], method) + "; ".join(clauses))
        if all(effect != "none" and float(effect) <= COARSE_EFFECT for effect in effects.values()):
            continue
        sizes_clause = ", ".join(
            f"{_problems_for_target(float(share), level)} where arms disagree on {format_whole_percent(share)}"
            for share in effects
        )
        lines.append(
            f"WARNING: {samples[problems]} are few: differences above {100 * COARSE_EFFECT:.0f} points can "
            f"stay undetected; to detect {100 * TARGET_EFFECT:.0f} points, plan about {sizes_clause}"
        )
    return lines


def describe_power_of_agreement(checks: Mapping[str, Any], method: str, samples: Mapping[str, str]) -> list[str]:
    """Return a line for each number of problems, in standard deviations of the problems' differences, which nobody
    knows before the study; by normal approximation. checks, samples: as in `describe_power`.
    """
    quantiles = level_quantile(method, float(checks["corrected_alpha"]) / 2) + float(stats.norm.ppf(POWER))
    return [
        f"{_begin_line(checks, samples[problems], method)}a mean difference in agreement of "
        f"{quantiles / math.sqrt(int(problems)):.2f} standard deviations of the problems' differences"
        for problems in checks["problems"]
    ]


def level_quantile(method: str, level: float) -> float:
    """Return the standard errors by which a mean has to exceed zero to be significant at the one-sided level."""
    if method == "betting":
        return math.sqrt(-2 * math.log(level)) + BETTING_SURPLUS
    return float(stats.norm.isf(level))


def _begin_line(checks: Mapping[str, Any], sample: str, method: str) -> str:
    correction = f", corrected for {checks['tests']} contrasts" if checks["tests"] > 1 else ""
    return (
        f"detectable with 80 % power per contrast, by {sample} and {method} at level "
        f"{float(checks['corrected_alpha']):g}{correction}: "
    )


def _format_effect(effect: str) -> str:
    return "no difference" if effect == "none" else f"{100 * float(effect):.1f} points"


def _problems_for_target(discordance: float, level: float) -> int | None:
    """Return the problems needed to detect TARGET_EFFECT at this discordance: a difference of -1, 0 or 1
    with mean TARGET_EFFECT has the variance discordance - TARGET_EFFECT^2.
    """
    return problems_needed(TARGET_EFFECT, (discordance - TARGET_EFFECT**2) ** 0.5, level)
