"""A panel of many lines with the name at the end of each: the subject in front, the others in muted colours.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.transforms import blended_transform_factory

from figures.canvas.curves import Curves
from figures.canvas.lines import DASHES, MARKERS
from figures.canvas.page import INK, MARGIN, PALE, WIDEST, Sheet, inches, sheet
from figures.canvas.shares import label

__all__ = ["FULL", "PLOT", "Laid", "apart", "laid", "panel", "scored", "styles"]

FULL = "full cache"
SUBJECT = "#0072b2"
# Tol's "muted" scheme, distinguishable for the colour-blind, without colours that resemble the subject
# or are too pale on white.
MUTED = ("#44aa99", "#cc6677", "#999933", "#aa4499", "#117733", "#882255")
PLOT, LEAST, HIGH = 3.9, 2.6, 2.6  # inches: maximum and minimum width of a panel; its minimum height
BESIDE, ABOVE, UNDER = 0.62, 0.32, 0.66  # inches: left of a panel, above it, below it
STEP, ROOM = 0.15, 0.2  # inches: minimum distance of two names, and panel height for each name
REACH, NAME = 0.3, 0.42  # inches from the axes to a marker and to a name


def scored(lock: Mapping[str, Any], arms: Iterable[str]) -> dict[str, str]:
    """Return the scoring class of each arm's policy from the lock. For a lock without the parts of policies,
    and for the winner of a sweep, return the first word of the policy's name.
    """
    ran, held = lock["protocol"]["content"].get("arms", {}), lock.get("policies") or {}
    named = {arm: ran.get(arm, {}).get("policy", arm).partition("-")[0] for arm in arms}
    return {arm: held.get(arm, {}).get("scoring", name) for arm, name in named.items()}


def styles(subject: str, families: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return matplotlib's line style of each arm. Arms of one family share a colour, and differ in dashes and
    markers.
    """
    colours: dict[str, str] = {}
    drawn: dict[str, dict[str, Any]] = {}
    for arm, family in families.items():
        if arm == subject:
            how = {"color": SUBJECT, "linewidth": 2.4, "markersize": 5.5, "zorder": 5}
            drawn[arm] = {"linestyle": "-", "marker": "o", **how}
            continue
        colour = colours.setdefault(family, MUTED[len(colours) % len(MUTED)])
        before = sum(one["color"] == colour for one in drawn.values())
        how = {"linestyle": DASHES[before % len(DASHES)], "marker": MARKERS[(before + 1) % len(MARKERS)]}
        drawn[arm] = {"color": colour, "linewidth": 1.1, "markersize": 3.8, "zorder": 3, **how}
    return drawn


class Laid(NamedTuple):
    """A page of empty panels, one for each model and task, with their titles and the axis of percentages."""

    sheet: Sheet
    panels: list[tuple[Any, Curves]]
    size: tuple[float, float]  # of a panel, in inches


def laid(places: Sequence[Curves], title: str, said: Sequence[str], notes: Sequence[str], axis: str) -> Laid:
    """Build the panels. Rows are models, columns are tasks. axis: the x label of the lowest panels."""
    arms = dict.fromkeys(arm for place in places for arm in place.arms)
    rows = [list(group) for _, group in itertools.groupby(places, lambda place: place.model)]
    names = NAME + max(inches(name, weight="bold") for name in (*arms, FULL)) + 0.1
    columns = max(map(len, rows))
    room = (WIDEST - 2 * MARGIN) / columns - BESIDE - names
    titles = (inches(f"{place.model} · {place.task}", weight="bold") for place in places)
    wide = max(LEAST, min(PLOT, room), *titles)
    tall = max(HIGH, ROOM * (len(arms) + 2))
    across, block = BESIDE + wide + names, ABOVE + tall + UNDER
    paper = sheet(2 * MARGIN + columns * across, block * len(rows) + 0.1, title, said, notes)
    panels, said_y = [], label(itertools.chain.from_iterable(place.shares for place in places))
    for row, own in enumerate(rows):
        for column, place in enumerate(own):
            up = 0.1 + block * (len(rows) - 1 - row) + UNDER
            axes = paper.axes(MARGIN + BESIDE + column * across, up, wide, tall)
            axes.set_title(f"{place.model} · {place.task}", loc="left", size=8.5, weight="bold")
            axes.set_ylim(*_bounds(places))
            axes.set_xlabel(axis if row == len(rows) - 1 else "")
            axes.set_ylabel(said_y if column == 0 else "")
            panels.append((axes, place))
    return Laid(paper, panels, (wide, tall))


def _bounds(places: Iterable[Curves]) -> tuple[float, float]:
    """Return the limits of the axis of percentages: from the tens below the worst point to 100, with a
    margin.
    """
    every = [point for place in places for points in place.arms.values() for point in points]
    every += [place.full for place in places if place.full is not None]
    worst = min(point.accuracy.share for point in every)
    low = 10 * max(0, math.floor(10 * worst - 0.2))
    return low - 0.03 * (100 - low), 100 + 0.03 * (100 - low)


def apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return positions from `low` to `high`, at least a gap apart, as near as possible to the wanted ones:
    least squares by pooling adjacent positions that are too near. wanted: ascending.
    """
    pools: list[list[float]] = []  # mean and number of pooled positions, each less the gaps below it
    for number, place in enumerate(wanted):
        pools.append([place - number * gap, 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (one, few), (other, more) = pools[-2:]
            pools[-2:] = [[(one * few + other * more) / (few + more), few + more]]
    top = max(low, high - (len(wanted) - 1) * gap)
    found = [min(max(mean, low), top) for mean, count in pools for _ in range(int(count))]
    return [place + number * gap for number, place in enumerate(found)]


def panel(
    axes: Any, place: Curves, style: Mapping[str, Mapping[str, Any]], inch: tuple[float, float]
) -> None:
    """Draw the lines, the full cache as a band, and the names. The limits of the axes must be set. inch:
    their size.

    Artists have "line-<model>/<task>/<arm>", "name-..." and "full-<model>/<task>" as gid.
    """
    name = f"{place.model}/{place.task}"
    ends: list[tuple[float, float, str, Mapping[str, Any]]] = []
    if place.full is not None:
        mean, low, high = (100 * value for value in place.full.accuracy[:3])
        axes.axhspan(low, high, color=PALE, alpha=0.22, linewidth=0, zorder=0, gid=f"full-{name}")
        axes.axhline(mean, color=PALE, linewidth=1.2, zorder=0.5)
        ends.append((mean, 1.0, FULL, {"color": PALE}))
    for arm, points in place.arms.items():
        x, y = [one.at for one in points], [100 * one.accuracy.share for one in points]
        axes.plot(x, y, gid=f"line-{name}/{arm}", **style[arm])
        ends.append((y[-1], _across(axes, x[-1]), arm, style[arm]))
    axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.6)
    axes.spines[["right", "top"]].set_visible(False)
    _names(axes, name, sorted(ends, key=lambda end: end[:2]), inch)


def _names(
    axes: Any, place: str, ends: Sequence[tuple[float, float, str, Mapping[str, Any]]], inch: Any
) -> None:
    """Draw the names next to the axes, each connected to the end of its line."""
    low, high = axes.get_ylim()
    wide, tall = inch
    gap = STEP * (high - low) / tall
    beside = blended_transform_factory(axes.transAxes, axes.transData)
    for (y, x, arm, style), at in zip(ends, apart([end[0] for end in ends], gap, low, high), strict=True):
        leader = {"transform": beside, "color": style["color"], "clip_on": False, "zorder": 1}
        axes.plot((x, 1), (y, y), linewidth=0.5, alpha=0.45, linestyle=(0, (1, 2)), **leader)
        axes.plot((1, 1 + (REACH - 0.06) / wide), (y, at), linewidth=0.7, alpha=0.8, **leader)
        if "marker" in style:
            marked = {"marker": style["marker"], "markersize": style["markersize"]}
            axes.plot(1 + REACH / wide, at, linestyle="", **marked, **leader)
        text = {"transform": beside, "va": "center", "color": PALE if arm == FULL else INK, "size": 8}
        text["weight"] = "bold" if style["color"] == SUBJECT else "normal"
        axes.text(1 + NAME / wide, at, arm, gid=f"name-{place}/{arm}", **text)


def _across(axes: Any, x: float) -> float:
    """Return a position on the x axis as a share of its length."""
    share: float = axes.transAxes.inverted().transform(axes.transData.transform((x, 0)))[0]
    return share
