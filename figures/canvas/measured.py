"""Labels of all drawings of measured time and memory: machine, choice of rows, and formatted bytes."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from analysis.explored.cost import Measured, Row
from analysis.rules.rule import FULL
from analysis.stats.paired_ratios import FEWEST, Level
from figures.canvas.lines import styles
from figures.canvas.page import PALE

__all__ = [
    "Group",
    "alone",
    "amount",
    "chosen",
    "errors",
    "groups",
    "heading",
    "line_styles",
    "named",
    "notes",
]

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class Group(NamedTuple):
    """Rows of one model and prompt length."""

    model: str
    prompt_tokens: int
    rows: list[Row]


def chosen(found: Sequence[Measured]) -> Measured:
    """Choose the measurement that is drawn: machines are never mixed. It is the one with the most
    repetitions, among equals the first by name.
    """
    return max(found, key=lambda one: one.done)


def heading(one: Measured) -> list[str]:
    """Return the machine, and caveats of its numbers."""
    machine = one.machine
    said = [
        f"Measured on {machine['host']} ({machine['device']}, {machine['threads']} of {machine['cores']} "
        "cores), apart from every accuracy: no verdict depends on it."
    ]
    if one.done < one.due:
        said.append(f"INCOMPLETE: {one.done} of {one.due} repetitions.")
    if one.busy:
        said.append(
            f"BUSY MACHINE: {one.busy} of {one.done} repetitions began while something else ran, by the load "
            "average."
        )
    return said


def notes(one: Measured, others: Sequence[Measured] = (), interval: str = "") -> list[str]:
    """Return the notes needed to read the numbers. interval: the mark that shows it; empty if none is drawn.
    """
    cost = one.cost
    said = (
        f"Made-up prompts, {cost['new_tokens']} new tokens a lane, one arm at a time, warm; "
        f"{cost['repetitions']} repetitions."
    )
    if interval and cost["repetitions"] < FEWEST:
        said += " So few give no interval."
    elif interval:
        said += (
            f" {interval}: 95 % intervals over repetitions of this session (t, of logarithms), one by one."
        )
    elsewhere = [other.machine["host"] for other in others if other.name != one.name]
    return [said, *([f"Measured elsewhere too, not drawn: {', '.join(elsewhere)}."] if elsewhere else [])]


def groups(rows: Iterable[Row]) -> list[Group]:
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row.place.model, row.place.prompt_tokens), []).append(row)
    return [Group(*key, own) for key, own in found.items()]


def alone(group: Group) -> list[Row]:
    """Return the rows with the fewest lanes that completed: tables in papers have one lane."""
    least = min(row.place.lanes for row in group.rows)
    return [row for row in group.rows if row.place.lanes == least and row.seconds is not None]


def named(row: Row) -> str:
    return "full cache" if row.place.budget == FULL else f"{row.place.arm}, {row.place.budget}"


def line_styles(rows: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """Return line styles by arm; the full cache is grey."""
    whole = {row.place.arm for row in rows if row.place.budget == FULL}
    arms = dict.fromkeys(row.place.arm for row in rows if row.place.arm not in whole)
    grey = {"color": PALE, "linestyle": "-", "marker": "x"}
    return {**dict.fromkeys(whole, grey), **styles(list(arms))}


def errors(levels: Sequence[Level]) -> tuple[list[float], list[float]]:
    """Return lengths of error bars below and above the means; 0 without an interval."""
    below = [0.0 if one.low is None else one.mean - one.low for one in levels]
    above = [0.0 if one.high is None else one.high - one.mean for one in levels]
    return below, above


def amount(count: float) -> str:
    """Format bytes in the largest unit that gives at least one."""
    unit = 0
    while abs(count) >= 1024 and unit < len(UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.3g} {UNITS[unit]}" if abs(count) < 1000 else f"{count:.0f} {UNITS[unit]}"
