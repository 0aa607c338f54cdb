"""Labels of all drawings of measured time and memory: machine, choice of rows, and formatted bytes."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from analysis.stats.paired_ratios import MIN_REPETITIONS, GeometricMean
from figures.drawing.line_styles import styles
from figures.drawing.page import PALE
from protocol.formats.vocabulary import FULL
from protocol.instruments.cost.summary import CostRow, MachineCosts

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
# name of a drawing -> its caption and its alternative text
CAPTIONS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "cost_throughput": (
            "Measured separately: tokens a second, and bytes of keys and values",
            "Lines: tokens a second of decoding and bytes of slots of every arm, by lanes at once and "
            "budget, with 95 % intervals over repetitions. kv-prereg cost prints the numbers.",
        ),
        "cost_prefill": (
            "Measured separately: the time that a policy adds to the prefill",
            (
                "Bars: prefill seconds of every arm, split into the full cache's part and the part that the "
                "policy adds. kv-prereg cost prints the numbers."
            ),
        ),
        "cost_memory": (
            "Measured separately: memory of the prefill and of decoding",
            "Marks: bytes of weights, of slots, and of the peaks of prefill and decoding, of every arm.",
        ),
        "cost_concurrency": (
            "A projection, not measured: requests that would fit on a card",
            "Lines: how many requests would fit in 0.9 of 80 GiB less the weights, by length and budget.",
        ),
        "cost_frontier": (
            "Accuracy against measured seconds, from two runs (exploratory)",
            (
                "Lines: accuracy of every arm over its budgets, against seconds that were measured separately, with "
                "answers of one length; the full cache is a band."
            ),
        ),
    }
)


class RowGroup(NamedTuple):
    """Rows of one model and prompt length."""

    model: str
    prompt_tokens: int
    rows: list[CostRow]


def choose_measurement(measurements: Sequence[MachineCosts]) -> MachineCosts:
    """Choose the measurement to draw: that of one machine, with the most repetitions, of equals the first by name."""
    return max(measurements, key=lambda measurement: measurement.done)


def heading_lines(measurement: MachineCosts) -> list[str]:
    """Return the machine, and caveats of its numbers."""
    machine = measurement.machine
    messages = [
        (
            f"Measured on {machine['host']} ({machine['device']}, {machine['threads']} of {machine['cores']} cores), "
            "separately from accuracy: no verdict depends on it."
        )
    ]
    if measurement.done < measurement.due:
        messages.append(f"INCOMPLETE: {measurement.done} of {measurement.due} repetitions.")
    if measurement.busy:
        messages.append(
            f"BUSY MACHINE: {measurement.busy} of {measurement.done} repetitions began while other processes "
            "were running (by the load average)."
        )
    return messages


def note_lines(measurement: MachineCosts, others: Sequence[MachineCosts] = (), interval: str = "") -> list[str]:
    """Return the notes needed to read the numbers. interval: the mark that shows it; empty if none is drawn."""
    cost = measurement.cost
    note = (
        f"Synthetic prompts, {cost['new_tokens']} new tokens a lane, one arm at a time, warm; "
        f"{cost['repetitions']} repetitions."
    )
    if interval and cost["repetitions"] < MIN_REPETITIONS:
        note += " These are too few for an interval."
    elif interval:
        note += (
            f" {interval}: 95 % intervals over repetitions of this session (t intervals of logarithms), each "
            "taken alone."
        )
    elsewhere = [other.machine["host"] for other in others if other.name != measurement.name]
    return [note, *([f"Also measured on other machines, not drawn: {', '.join(elsewhere)}."] if elsewhere else [])]


def group_rows(rows: Iterable[CostRow]) -> list[RowGroup]:
    rows_by_prompt: dict[tuple[str, int], list[CostRow]] = {}
    for row in rows:
        rows_by_prompt.setdefault((row.place.model, row.place.prompt_tokens), []).append(row)
    return [RowGroup(*key, prompt_rows) for key, prompt_rows in rows_by_prompt.items()]


def fewest_lane_rows(group: RowGroup) -> list[CostRow]:
    """Return the rows with the fewest lanes that completed: tables in papers have one lane."""
    least = min(row.place.lanes for row in group.rows)
    return [row for row in group.rows if row.place.lanes == least and row.seconds is not None]


def lay_out_rows(
    axes: Any, rows: Iterable[tuple[RowGroup, CostRow]], step: float, head: float, left: float, lanes: bool = False
) -> list[tuple[float, RowGroup, CostRow]]:
    """Return the centre of each row, in inches below the top of the axes. A heading of `head` inches goes before
    each group, `left` axis widths to the left; lanes: whether it says how many.
    """
    y, current_group = 0.0, None
    centres = []
    for group, row in rows:
        if group is not current_group:
            y, current_group = y + head, group
            title = f"{group.model} · {group.prompt_tokens} tokens{f' · lanes: {row.place.lanes}' if lanes else ''}"
            axes.text(-left, y - 0.15, title, weight="bold", transform=axes.get_yaxis_transform())
        y += step
        centres.append((y - step / 2, group, row))
    axes.set_yticks([centre for centre, *_ in centres], [row_label(row) for *_, row in centres])
    axes.tick_params(axis="y", length=0)
    axes.spines[["right", "top", "left"]].set_visible(False)
    return centres


def row_name(row: CostRow) -> str:
    """Return the end of the gids of a row's artists: <model>/<tokens>/<budget>/<arm>."""
    return "/".join(map(str, (row.place.model, row.place.prompt_tokens, row.place.budget, row.place.arm)))


def row_label(row: CostRow) -> str:
    return "full cache" if row.place.budget == FULL else f"{row.place.arm}, {row.place.budget}"


def line_styles(rows: Iterable[CostRow]) -> dict[str, dict[str, Any]]:
    """Return line styles by arm; the full cache is grey."""
    full_cache_arms = {row.place.arm for row in rows if row.place.budget == FULL}
    arms = dict.fromkeys(row.place.arm for row in rows if row.place.arm not in full_cache_arms)
    grey = {"color": PALE, "linestyle": "-", "marker": "x"}
    return {**dict.fromkeys(full_cache_arms, grey), **styles(list(arms))}


def error_bars(levels: Sequence[GeometricMean]) -> tuple[list[float], list[float]]:
    """Return lengths of error bars below and above the means; 0 without an interval."""
    below = [0.0 if level.low is None else level.mean - level.low for level in levels]
    above = [0.0 if level.high is None else level.high - level.mean for level in levels]
    return below, above


def format_bytes(count: float) -> str:
    """Format bytes in the largest unit that gives at least one."""
    unit = 0
    while abs(count) >= 1024 and unit < len(UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.3g} {UNITS[unit]}" if abs(count) < 1000 else f"{count:.0f} {UNITS[unit]}"
