"""What a study that could not tell still says: what its intervals exclude, and what it could have found."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.rules.judged_numbers import format_points
from analysis.stats.methods import resampling_problems


def describe_resolution(rows: Sequence[Mapping[str, Any]], lock: Mapping[str, Any]) -> str:
    """Return one or two sentences; an empty text if nothing was estimated. rows: the contrasts of the judgement."""
    estimated = [row for row in rows if row["difference"] is not None]
    if not estimated:
        return ""
    low = min((row["low_simultaneous"] for row in estimated), key=float)
    high = max((row["high_simultaneous"] for row in estimated), key=float)
    among = "its contrast excludes" if len(rows) == 1 else f"all of its {len(rows)} contrasts exclude"
    excluded = f"The simultaneous interval of {among}" if len(rows) == 1 else f"The simultaneous intervals of {among}"
    text = f"{excluded} a difference below {format_points(low)} or above {format_points(high)} points."
    return " ".join([text, *_detectable(lock)])


def _detectable(lock: Mapping[str, Any]) -> list[str]:
    """Return what the study could have found, from what registering computed for the lock."""
    checks = lock.get("checks", {}).get("problems", {})
    sizes = {str(len(resampling_problems(item))) for item in lock["items"].values()}
    effects = [checks[size]["minimal_detectable_effect"] for size in sizes if size in checks]
    if not effects:
        return []
    phrases = []
    for discordance in effects[0]:
        by_task = [each[discordance] for each in effects]
        largest = "none" if "none" in by_task else max(by_task, key=float)
        what = "no difference" if largest == "none" else f"{100 * float(largest):.1f} points"
        phrases.append(f"{what} where two arms differ on {100 * float(discordance):.0f} % of the problems")
    return [f"Four of five such studies find {', and '.join(phrases)}."]
