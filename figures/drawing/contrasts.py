"""Drawing and printing of one judged contrast, and the axis of differences."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation, blended_transform_factory

from analysis.rules import RULES, judged_numbers
from figures.drawing import formatting
from figures.drawing.page import FACE, INK, PALE
from figures.drawing.table_rows import RowTable, draw_point, limits

INTERVAL = "interval"  # the name of its cell, whose heading is `formatting.interval_heading`


def axis_limits(contrasts: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Return axis limits for every point and nominal interval, and for 5 pp on both sides of zero."""
    ends = [
        100 * float(contrast[end]) for contrast in contrasts for end in ("low", "high") if contrast[end] is not None
    ]
    return limits(ends)


def rule_margins(judged: Mapping[str, Any]) -> list[float]:
    """Return the margins of the rule in percentage points; empty for a rule without a margin."""
    if judged.get("margin") is None:
        return []
    margin = 100 * float(judged["margin"])
    return [-margin, margin] if RULES[judged["rule"]].has_two_sided_margin else [-margin]


def is_significant(contrast: Mapping[str, Any]) -> bool:
    """Return whether it is significant after correction, with matched memory."""
    return (contrast["better"] or contrast["worse"]) and bool(contrast["matched"])


def draw_contrast(
    axes: Any, y: float, name: str, contrast: Mapping[str, Any], *, outside: bool = False, size: float = 1
) -> None:
    """Draw a contrast.

    Thick: the nominal 95 % interval. Thin: the simultaneous interval, or for a rule with a margin the limits that it
    compares with the margin. A filled diamond is significant after correction, an open circle is not; an open diamond
    is significant without matched memory, which does not count. An arrowhead marks an interval beyond the axis. `name`
    ends the gids. outside: the rule leaves the contrast out, so it is paler and smaller.
    """
    low, high = axes.get_xlim()
    passes = contrast["better"] or contrast["worse"]
    ink, scale = (PALE, 0.7 * size) if outside else (INK, size)
    family = "margin" if contrast.get("low_margin") is not None else "simultaneous"
    for kind, width, ends in (
        ("simultaneous", 0.9, (f"low_{family}", f"high_{family}")),
        ("nominal", 2.8, ("low", "high")),
    ):
        left, right = (100 * float(contrast[end]) for end in ends)
        visible = max(left, low), min(right, high)
        line = {"color": ink, "linewidth": scale * width, "solid_capstyle": "butt", "zorder": 2}
        axes.plot(visible, (y, y), gid=f"{kind}-{name}", **line)
        for end, clipped, marker in ((visible[0], left < low, "<"), (visible[1], right > high, ">")):
            if clipped:
                style = {"color": ink, "markersize": 5, "clip_on": False, "zorder": 3}
                axes.plot(end, y, marker, gid=f"clipped-{name}", **style)
    marker, marker_size = ("D", 6.5) if passes else ("o", 6.0)
    marker_size *= 0.78 * size if outside else size
    marker_style = {"markersize": marker_size, "markeredgewidth": 1.1 * scale, "zorder": 4, "gid": f"point-{name}"}
    draw_point(
        axes, 100 * float(contrast["difference"]), y, marker, filled=is_significant(contrast), ink=ink, **marker_style
    )


def draw_marks(axes: Any, y: float, contrast: Mapping[str, Any], *, outside: bool, size: float = 1) -> None:
    """Draw a contrast with its "mark" at the end of the gids; one that was not "tested" is a pale square on its
    95 % interval.
    """
    name = contrast["mark"]
    if contrast["tested"]:
        draw_contrast(axes, y, name, contrast, outside=outside, size=size)
        return
    ends = [100 * float(contrast[end]) for end in ("low", "high")]
    line = {"color": PALE, "linewidth": 1.6, "solid_capstyle": "butt", "zorder": 2}
    axes.plot(ends, (y, y), gid=f"nominal-{name}", **line)
    style = {"markersize": 5, "markerfacecolor": FACE, "markeredgecolor": PALE, "zorder": 4}
    axes.plot(100 * float(contrast["difference"]), y, "s", gid=f"point-{name}", **style)


def cell_texts(contrast: Mapping[str, Any]) -> dict[str, str]:
    return {
        "Δ (pp)": judged_numbers.format_points(contrast["difference"]),
        INTERVAL: judged_numbers.format_decisive_interval(contrast),
        "p": judged_numbers.format_p(judged_numbers.decisive_p(contrast)),
        "n": formatting.format_size(contrast),
        "cache": formatting.cache_ratio(contrast),
    }


def label_axis(drawn: RowTable, left: str, right: str) -> None:
    """Set ticks and label of the axis of differences, and label both sides of zero."""
    axes = drawn.axes
    set_ticks(axes, 8, [1, 2, 2.5, 5, 10], min_n_ticks=4)
    axes.set_xlabel("accuracy difference, percentage points", labelpad=20)
    under = axes.transAxes + ScaledTranslation(0, -0.36, drawn.sheet.figure.dpi_scale_trans)
    below = blended_transform_factory(axes.transData, under)
    for text, side in ((f"← {left}   ", "right"), (f"   {right} →", "left")):
        axes.text(0, 0, text, transform=below, va="center", ha=side, color=INK)


def set_ticks(axes: Any, bins: int, steps: Sequence[float], **locator: int) -> None:
    """Set the ticks of the axis of differences, in percentage points."""
    axes.xaxis.set_major_locator(MaxNLocator(nbins=bins, steps=steps, **locator))
    axes.xaxis.set_major_formatter(lambda x, _: judged_numbers.format_points(str(x / 100)).removesuffix(".0"))
