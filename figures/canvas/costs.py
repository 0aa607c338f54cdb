"""Panels of accuracy against a cost: markers that grow with the budget, the full cache, and the axis."""

from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from figures.canvas.curves import Curves
from figures.canvas.page import INK

__all__ = ["axis", "points"]

WIDE = 4  # maximum over minimum cost above which the axis is logarithmic
GROWN = 3.5  # points: marker width of the largest budget less that of the smallest


def points(axes: Any, place: Curves, style: Mapping[str, Mapping[str, Any]], subject: str) -> None:
    """Draw the points. Artists have the gid "points-<model>/<task>/<arm>", "limits-..." for the subject and
    "whole-<model>/<task>".
    """
    name = f"{place.model}/{place.task}"
    for arm, own in place.arms.items():
        color = style[arm]["color"]
        x, y = [one.at for one in own], [100 * one.accuracy.share for one in own]
        most, last = style[arm]["markersize"] + GROWN, max(len(own) - 1, 1)
        sizes = [(most - GROWN * (1 - number / last)) ** 2 for number in range(len(own))]
        how = {
            "marker": style[arm]["marker"],
            "color": color,
            "zorder": style[arm]["zorder"],
            "linewidths": 0,
        }
        axes.scatter(x, y, s=sizes, gid=f"points-{name}/{arm}", **how)
        if arm == subject:
            ends = ([100 * one.accuracy[end] for one in own] for end in (1, 2))
            axes.vlines(x, *ends, color=color, linewidth=1, zorder=4, gid=f"limits-{name}/{arm}")
    if place.full is not None:
        at = place.full.at, 100 * place.full.accuracy.share
        axes.plot(*at, "x", color=INK, markersize=6, zorder=4, gid=f"whole-{name}")


def axis(axes: Any, place: Curves, told: Callable[[float], str]) -> None:
    """Set the x axis, wide enough for every point. format_value: formats a tick value."""
    every = [point.at for points in place.arms.values() for point in points]
    every += [] if place.full is None else [place.full.at]
    wide = min(every) > 0 and max(every) > WIDE * min(every)
    if wide:
        axes.set_xscale("log")
        axes.set_xlim(min(every) / 1.15, max(every) * 1.15)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.minorticks_off()
    else:
        room = 0.07 * (max(every) - min(every)) or 1
        axes.set_xlim(min(every) - room, max(every) + room)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: told(x)))
