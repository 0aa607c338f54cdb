"""What the problems of a study are a sample of, and what so many could show: what its verdict speaks about."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.rules.judged_numbers import format_points
from analysis.stats.methods import format_clusters, resampling_problems


def describe_population(lock: Mapping[str, Any]) -> str:
    """Return a clause that names the population: of each task how many problems were held out, of what.

    The author of a file of problems says what they are a sample of, and a built-in task says it itself. Where nobody
    does, the verdict is about these problems alone. lock: the content of the lock.
    """
    authors = {table["name"]: table.get("population") for table in lock["protocol"]["content"]["tasks"]}
    return "; ".join(
        _describe_task(name, item, authors.get(name) or item.get("population")) for name, item in lock["items"].items()
    )


def describe_sample(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return how many problems a contrast has, and in how many clusters they are; of several sizes the one with the
    fewest units, as `verdict_line.smallest_contrast`. rows: the contrasts of a judgement.
    """
    sizes = {(row["n"], row.get("clusters"), row.get("effective_clusters")) for row in rows}
    problems, clusters, effective = min(sizes, key=lambda size: next(filter(None, size[::-1]), 0))
    text = f"n {'=' if len(sizes) == 1 else chr(0x2265)} {problems} problems"
    if clusters is not None:
        text += f" in {format_clusters(clusters, effective or clusters)}"
    return text


def _describe_task(name: str, item: Mapping[str, Any], population: str | None) -> str:
    """Return the clause of one task. population: what its problems are a sample of, if that is declared."""
    problems, clusters = item["confirm"], item.get("clusters", {})
    count = f"{len(problems)} problems"
    if clusters:
        count = f"{count} in {len({clusters.get(problem, problem) for problem in problems})} clusters"
    if population is None:
        return f"these {count} of {name}"
    return f"{name}: {count}, {population}"


def describe_resolution(rows: Sequence[Mapping[str, Any]], lock: Mapping[str, Any]) -> str:
    """Return one or two sentences: what the intervals of a study that could not tell exclude, and what it could have
    found; an empty text if nothing was estimated. rows: the contrasts of the judgement.
    """
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
