"""Text about the power of a study of the planned size, and the problems needed to detect 10 points."""

from collections.abc import Mapping
from typing import Any

from analysis.stats.sample_size import needed

__all__ = ["words"]

COARSE = 0.2  # points; a warning is printed if larger differences may stay undetected
AIM = 0.1  # points that an evaluation of eviction should detect (our choice; papers report 1 to 10)


def words(checks: Mapping[str, Any], method: str) -> list[str]:
    """Return a line for each number of problems, and a warning where power is low. checks: of a lock, with
    `tests`, `corrected_alpha` and, by number of `problems`, `minimal_detectable_effect` by the share of
    problems on which two arms differ.
    """
    tests, level = checks["tests"], float(checks["corrected_alpha"])
    of = "the one contrast" if tests == 1 else f"one of {tests} contrasts"
    lines = []
    for problems, check in checks["problems"].items():
        effects = check["minimal_detectable_effect"]
        told = ", ".join(
            f"{_smaller(effect)} where arms differ on {_percent(share)}" for share, effect in effects.items()
        )
        lines.append(
            f"with {problems} problems and {method} you can detect, in {of} (level {level:g}) and 4 of 5 "
            f"studies, {told} of the problems"
        )
        if all(effect != "none" and float(effect) <= COARSE for effect in effects.values()):
            continue
        more = ", ".join(f"{_problems(float(share), level)} where on {_percent(share)}" for share in effects)
        lines.append(
            f"WARNING: {problems} problems are few: differences above {100 * COARSE:.0f} points can stay "
            f"unseen; {100 * AIM:.0f} points would be seen with about {more}"
        )
    return lines


def _smaller(effect: str) -> str:
    return "nothing" if effect == "none" else f"nothing smaller than {100 * float(effect):.1f} points"


def _percent(share: str) -> str:
    return f"{100 * float(share):.0f} %"


def _problems(discordance: float, level: float) -> int | None:
    """Return the problems needed to detect TARGET_EFFECT at this discordance: a difference of -1, 0 or 1
    with mean TARGET_EFFECT has the variance discordance - TARGET_EFFECT^2.
    """
    return needed(AIM, (discordance - AIM**2) ** 0.5, level)
