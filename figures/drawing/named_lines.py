"""A panel of many lines with the name at the end of each: the subject in front, the others in muted colours."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.transforms import blended_transform_factory

from figures.drawing.curves import Curves
from figures.drawing.line_styles import DASHES, MARKERS
from figures.drawing.page import INK, MARGIN, PALE, WIDEST, Sheet, new_sheet, text_width
from figures.drawing.shares import axis_label

FULL = "full cache"
SUBJECT = "#0072b2"
# Tol's "muted" scheme, distinguishable for the colour-blind, without colours that resemble the subject
# or are too pale on white.
MUTED = ("#44aa99", "#cc6677", "#999933", "#aa4499", "#117733", "#882255")
PLOT, LEAST, HIGH = 3.9, 2.6, 2.6  # inches: maximum and minimum width of a panel; its minimum height
LEFT_ROOM, TOP_ROOM, BOTTOM_ROOM = 0.62, 0.32, 0.66  # inches: left of a panel, above it, below it
STEP, ROOM = 0.15, 0.2  # inches: minimum distance of two names, and panel height for each name
REACH, NAME = 0.3, 0.42  # inches from the axes to a marker and to a name


def scoring_families(lock: Mapping[str, Any], arms: Iterable[str]) -> dict[str, str]:
    """Return the scoring class of each arm's policy from the lock. For a lock without the parts of policies,
    and for the winner of a sweep, return the first word of the policy's name.
    """
    registered_arms, locked_policies = lock["protocol"]["content"].get("arms", {}), lock.get("policies") or {}
    policy_names = {arm: registered_arms.get(arm, {}).get("policy", arm).partition("-")[0] for arm in arms}
    return {arm: locked_policies.get(arm, {}).get("scoring", name) for arm, name in policy_names.items()}


def styles(subject: str, families: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return matplotlib's line style of each arm. Arms of a family share a colour, and differ in dashes and markers."""
    colours: dict[str, str] = {}
    drawn: dict[str, dict[str, Any]] = {}
    for arm, family in families.items():
        if arm == subject:
            line_style = {"color": SUBJECT, "linewidth": 2.4, "markersize": 5.5, "zorder": 5}
            drawn[arm] = {"linestyle": "-", "marker": "o", **line_style}
            continue
        colour = colours.setdefault(family, MUTED[len(colours) % len(MUTED)])
        n_before = sum(arm_style["color"] == colour for arm_style in drawn.values())
        line_style = {"linestyle": DASHES[n_before % len(DASHES)], "marker": MARKERS[(n_before + 1) % len(MARKERS)]}
        drawn[arm] = {"color": colour, "linewidth": 1.1, "markersize": 3.8, "zorder": 3, **line_style}
    return drawn


class PanelPage(NamedTuple):
    """A page of empty panels, one for each model and task, with their titles and the axis of percentages."""

    sheet: Sheet
    panels: list[tuple[Any, Curves]]
    size: tuple[float, float]  # of a panel, in inches


def build_panels(
    curves_list: Sequence[Curves], title: str, subtitles: Sequence[str], notes: Sequence[str], axis: str
) -> PanelPage:
    """Build the panels. Rows are models, columns are tasks. axis: the x label of the lowest panels."""
    arms = dict.fromkeys(arm for curves in curves_list for arm in curves.arms)
    rows = [list(group) for _, group in itertools.groupby(curves_list, lambda curves: curves.model)]
    names = NAME + max(text_width(name, weight="bold") for name in (*arms, FULL)) + 0.1
    columns = max(map(len, rows))
    room = (WIDEST - 2 * MARGIN) / columns - LEFT_ROOM - names
    titles = (text_width(f"{curves.model} · {curves.task}", weight="bold") for curves in curves_list)
    wide = max(LEAST, min(PLOT, room), *titles)
    tall = max(HIGH, ROOM * (len(arms) + 2))
    across, block = LEFT_ROOM + wide + names, TOP_ROOM + tall + BOTTOM_ROOM
    paper = new_sheet(2 * MARGIN + columns * across, block * len(rows) + 0.1, title, subtitles, notes)
    panels, y_label = [], axis_label(itertools.chain.from_iterable(curves.shares for curves in curves_list))
    for row, row_curves in enumerate(rows):
        for column, curves in enumerate(row_curves):
            up = 0.1 + block * (len(rows) - 1 - row) + BOTTOM_ROOM
            axes = paper.add_axes(MARGIN + LEFT_ROOM + column * across, up, wide, tall)
            axes.set_title(f"{curves.model} · {curves.task}", loc="left", size=8.5, weight="bold")
            axes.set_ylim(*_percent_bounds(curves_list))
            axes.set_xlabel(axis if row == len(rows) - 1 else "")
            axes.set_ylabel(y_label if column == 0 else "")
            panels.append((axes, curves))
    return PanelPage(paper, panels, (wide, tall))


def _percent_bounds(curves_list: Iterable[Curves]) -> tuple[float, float]:
    """Return the limits of the axis of percentages: from the tens below the worst point to 100, with a margin."""
    every = [point for curves in curves_list for points in curves.arms.values() for point in points]
    every += [curves.full for curves in curves_list if curves.full is not None]
    worst = min(point.accuracy.share for point in every)
    low = 10 * max(0, math.floor(10 * worst - 0.2))
    return low - 0.03 * (100 - low), 100 + 0.03 * (100 - low)


def spread_positions(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return positions from `low` to `high`, at least a gap apart, as near as possible to the wanted ones:
    least squares by pooling adjacent positions that are too near. wanted: ascending.
    """
    pools: list[list[float]] = []  # mean and number of pooled positions, each less the gaps below it
    for number, position in enumerate(wanted):
        pools.append([position - number * gap, 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (mean_below, n_below), (mean_above, n_above) = pools[-2:]
            pools[-2:] = [[(mean_below * n_below + mean_above * n_above) / (n_below + n_above), n_below + n_above]]
    top = max(low, high - (len(wanted) - 1) * gap)
    positions = [min(max(mean, low), top) for mean, count in pools for _ in range(int(count))]
    return [position + number * gap for number, position in enumerate(positions)]


def draw_panel(axes: Any, curves: Curves, style: Mapping[str, Mapping[str, Any]], inch: tuple[float, float]) -> None:
    """Draw the lines, the full cache as a band, and the names. The limits of the axes must be set. inch: their size.

    Artists have "line-<model>/<task>/<arm>", "name-..." and "full-<model>/<task>" as gid.
    """
    name = f"{curves.model}/{curves.task}"
    ends: list[tuple[float, float, str, Mapping[str, Any]]] = []
    if curves.full is not None:
        mean, low, high = (100 * value for value in curves.full.accuracy[:3])
        axes.axhspan(low, high, color=PALE, alpha=0.22, linewidth=0, zorder=0, gid=f"full-{name}")
        axes.axhline(mean, color=PALE, linewidth=1.2, zorder=0.5)
        ends.append((mean, 1.0, FULL, {"color": PALE}))
    for arm, points in curves.arms.items():
        x, y = [point.value for point in points], [100 * point.accuracy.share for point in points]
        axes.plot(x, y, gid=f"line-{name}/{arm}", **style[arm])
        ends.append((y[-1], _axis_share(axes, x[-1]), arm, style[arm]))
    axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.6)
    axes.spines[["right", "top"]].set_visible(False)
    _draw_names(axes, name, sorted(ends, key=lambda end: end[:2]), inch)


def _draw_names(
    axes: Any, cell_name: str, ends: Sequence[tuple[float, float, str, Mapping[str, Any]]], inch: Any
) -> None:
    """Draw the names next to the axes, each connected to the end of its line."""
    low, high = axes.get_ylim()
    wide, tall = inch
    gap = STEP * (high - low) / tall
    transform = blended_transform_factory(axes.transAxes, axes.transData)
    for (y, x, arm, style), name_y in zip(
        ends, spread_positions([end[0] for end in ends], gap, low, high), strict=True
    ):
        leader = {"transform": transform, "color": style["color"], "clip_on": False, "zorder": 1}
        axes.plot((x, 1), (y, y), linewidth=0.5, alpha=0.45, linestyle=(0, (1, 2)), **leader)
        axes.plot((1, 1 + (REACH - 0.06) / wide), (y, name_y), linewidth=0.7, alpha=0.8, **leader)
        if "marker" in style:
            marked = {"marker": style["marker"], "markersize": style["markersize"]}
            axes.plot(1 + REACH / wide, name_y, linestyle="", **marked, **leader)
        text = {"transform": transform, "va": "center", "color": PALE if arm == FULL else INK, "size": 8}
        text["weight"] = "bold" if style["color"] == SUBJECT else "normal"
        axes.text(1 + NAME / wide, name_y, arm, gid=f"name-{cell_name}/{arm}", **text)


def _axis_share(axes: Any, x: float) -> float:
    """Return a position on the x axis as a share of its length."""
    share: float = axes.transAxes.inverted().transform(axes.transData.transform((x, 0)))[0]
    return share
