"""Text about the power of a study of the planned size, and the problems needed to detect 10 points."""

from collections.abc import Mapping
from typing import Any

from analysis.stats.sample_size import problems_needed

COARSE_EFFECT = 0.2  # points; a warning is printed if larger differences may stay undetected
TARGET_EFFECT = 0.1  # points that an evaluation of eviction should detect (our choice; papers report 1 to 10)


def describe_power(checks: Mapping[str, Any], method: str) -> list[str]:
    """Return a line for each number of problems, and a warning where power is low. checks: of a lock, with
    `tests`, `corrected_alpha` and, by number of `problems`, `minimal_detectable_effect` by the share of
    problems on which two arms differ.
    """
    tests, level = checks["tests"], float(checks["corrected_alpha"])
    lines = []
    for problems, check in checks["problems"].items():
        effects = check["minimal_detectable_effect"]
        clauses = [
            f"{_format_effect(effect)} where arms disagree on {_format_percent(share)} of problems"
            for share, effect in effects.items()
        ]
        correction = f", corrected for {tests} contrasts" if tests > 1 else ""
        lines.append(
            f"detectable with 80 % power per contrast, by {problems} problems and {method} at level "
            f"{level:g}{correction}: {'; '.join(clauses)}"
        )
        if all(effect != "none" and float(effect) <= COARSE_EFFECT for effect in effects.values()):
            continue
        sizes_clause = ", ".join(
            f"{_problems_for_target(float(share), level)} where arms disagree on {_format_percent(share)}"
            for share in effects
        )
        lines.append(
            f"WARNING: {problems} problems are few: differences above {100 * COARSE_EFFECT:.0f} points can stay "
            f"undetected; {100 * TARGET_EFFECT:.0f} points need about {sizes_clause}"
        )
    return lines


def _format_effect(effect: str) -> str:
    return "no difference" if effect == "none" else f"{100 * float(effect):.1f} points"


def _format_percent(share: str) -> str:
    return f"{100 * float(share):.0f} %"


def _problems_for_target(discordance: float, level: float) -> int | None:
    """Return the problems needed to detect TARGET_EFFECT at this discordance: a difference of -1, 0 or 1
    with mean TARGET_EFFECT has the variance discordance - TARGET_EFFECT^2.
    """
    return problems_needed(TARGET_EFFECT, (discordance - TARGET_EFFECT**2) ** 0.5, level)
