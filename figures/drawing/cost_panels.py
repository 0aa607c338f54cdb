"""Panels of accuracy against a cost: markers that grow with the budget, the full cache, and the axis."""

from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from figures.drawing.curves import Curves
from figures.drawing.page import INK

LOG_AXIS_RATIO = 4  # maximum over minimum cost above which the axis is logarithmic
MARKER_GROWTH = 3.5  # points: marker width of the largest budget less that of the smallest


def draw_points(axes: Any, curves: Curves, style: Mapping[str, Mapping[str, Any]], subject: str) -> None:
    """Draw the points. Artists have the gid "points-<model>/<task>/<arm>", "limits-..." for the subject and
    "whole-<model>/<task>".
    """
    name = f"{curves.model}/{curves.task}"
    for arm, arm_points in curves.arms.items():
        color = style[arm]["color"]
        x, y = [point.value for point in arm_points], [100 * point.accuracy.share for point in arm_points]
        largest, last = style[arm]["markersize"] + MARKER_GROWTH, max(len(arm_points) - 1, 1)
        sizes = [(largest - MARKER_GROWTH * (1 - number / last)) ** 2 for number in range(len(arm_points))]
        marker_style = {"marker": style[arm]["marker"], "color": color, "zorder": style[arm]["zorder"], "linewidths": 0}
        axes.scatter(x, y, s=sizes, gid=f"points-{name}/{arm}", **marker_style)
        if arm == subject:
            ends = ([100 * point.accuracy[end] for point in arm_points] for end in (1, 2))
            axes.vlines(x, *ends, color=color, linewidth=1, zorder=4, gid=f"limits-{name}/{arm}")
    if curves.full is not None:
        position = curves.full.value, 100 * curves.full.accuracy.share
        axes.plot(*position, "x", color=INK, markersize=6, zorder=4, gid=f"whole-{name}")


def set_cost_axis(axes: Any, curves: Curves, format_value: Callable[[float], str]) -> None:
    """Set the x axis, wide enough for every point. format_value: formats a tick value."""
    values = [point.value for points in curves.arms.values() for point in points]
    values += [] if curves.full is None else [curves.full.value]
    is_log = min(values) > 0 and max(values) > LOG_AXIS_RATIO * min(values)
    if is_log:
        axes.set_xscale("log")
        axes.set_xlim(min(values) / 1.15, max(values) * 1.15)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.minorticks_off()
    else:
        room = 0.07 * (max(values) - min(values)) or 1
        axes.set_xlim(min(values) - room, max(values) + room)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: format_value(x)))
