"""Plot of accuracy against measured memory: a line for each arm over its budgets, the full cache as a band.

With few arms each has limits. With more, only the subject has limits, and each arm has its name at the end of
its line.
"""

import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from analysis.rules import RULES, judged_numbers
from figures.drawing import named_lines, page, shares
from figures.drawing.curves import Curves, Point, build_curves
from figures.drawing.line_styles import styles
from figures.drawing.memory_axis import draw_memory_axis
from figures.drawing.page import INK, MARGIN, PALE, WIDEST, text_width

PLOT, LEAST, HIGH = 3.9, 2.6, 2.6  # inches, of a panel: its width at most and at least
LEFT, TOP, BELOW = 0.62, 0.32, 0.66  # inches: left of a panel, above it, below it
ENTRY = 0.75  # inches of the legend, in addition to a name
FEW = 5  # arms up to which each has limits that can be distinguished
APART = 2.5  # points between the limits of arms with the same memory
# What a protocol matches -> the label of the axis, and the size of its unit in the judged number.
AXES: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "slots": ("slots held per KV head and layer, mean", 1),
        "bytes": ("KiB of keys and values held, mean", 1024),
        "total": ("KiB held, with the policy's own state, mean", 1024),
    }
)


def budget_curves(judged: Mapping[str, Any], lock: Mapping[str, Any], lanes: Any) -> list[Curves]:
    """Return the curves in registered order; empty if no arm was run at two budgets. lanes: those of
    `study_files.read`.

    Memory is in the unit that the protocol matches: slots, bytes of the cache, or these plus the policy's own
    state.
    """
    matched = _matched_memory(lock)
    curves = build_curves(judged, lanes, lambda entry, _: _arm_memory(entry, matched))
    for panel in curves:
        for points in panel.arms.values():
            points.sort(key=lambda entry: entry.value)
    return curves if any(len(points) > 1 for panel in curves for points in panel.arms.values()) else []


def budget_curve(judged: Mapping[str, Any], lock: Mapping[str, Any], panels: Sequence[Curves]) -> Figure:
    """Draw the curves. Rows of panels: models. Columns: tasks. If the rule searched for them, it marks the
    smallest lossless budget of each arm, and the margin below the full cache that counts as lossless.

    The gids of artists in a panel are "line-", "limits-", "smallest-<model>/<task>/<arm>",
    "full-<model>/<task>" and "margin-<model>/<task>".
    """
    smallest = RULES[judged["rule"]].smallest_budgets(judged)
    margin = float(judged["margin"]) if smallest else None
    subtitle = [page.study_status(judged), *_subtitle(smallest, margin)]
    title = "Accuracy against the memory that was held" + ("" if smallest else " (exploratory)")
    label, _ = AXES[_matched_memory(lock)]
    arms = list(dict.fromkeys(arm for panel in panels for arm in panel.arms))
    if len(arms) <= FEW:
        return _side_by_side(panels, arms, smallest, margin, title, subtitle, label)
    subject = judged["contrasts"][0]["subject"]
    style = named_lines.styles(subject, named_lines.scoring_families(lock, arms))
    drawn = named_lines.build_panels(panels, title, subtitle, _notes(margin, subject), label)
    for axes, panel in drawn.panels:
        name = f"{panel.model}/{panel.task}"
        draw_memory_axis(axes, panel)
        named_lines.draw_panel(axes, panel, style, drawn.size)
        _draw_margin(axes, panel, margin)
        for arm, points in panel.arms.items():
            _draw_ring(axes, f"{name}/{arm}", points, smallest.get(arm))
        if points := panel.arms.get(subject, []):
            low, high = ([100 * entry.accuracy[end] for entry in points] for end in (1, 2))
            band = {"color": style[subject]["color"], "alpha": 0.16, "linewidth": 0, "zorder": 1}
            axes.fill_between([entry.value for entry in points], low, high, gid=f"limits-{name}/{subject}", **band)
    return drawn.sheet.figure


def _side_by_side(
    panels: Sequence[Curves],
    arms: Sequence[str],
    smallest: Mapping[str, str | None],
    margin: float | None,
    title: str,
    subtitle: Sequence[str],
    label: str,
) -> Figure:
    """Draw few arms with the limits of each, shifted sideways, and a legend."""
    style = styles(arms)
    columns = max(len(list(group)) for _, group in itertools.groupby(panels, lambda panel: panel.model))
    rows = [list(group) for _, group in itertools.groupby(panels, lambda panel: panel.model)]
    names = [text_width(arm) + ENTRY for arm in (*arms, "full cache")]
    titles = (text_width(f"{panel.model} · {panel.task}", weight="bold") for panel in panels)
    plot = max(LEAST, min(PLOT, (WIDEST - 2 * MARGIN) / columns - LEFT), *titles)
    room = columns * (LEFT + plot)
    entries = len(names) if sum(names) < room else max(1, int(room / max(names)))
    legend = 0.2 * -(-len(names) // entries) + 0.1
    block = TOP + HIGH + BELOW
    paper = page.new_sheet(
        2 * MARGIN + room,
        block * len(rows) + legend,
        title,
        subtitle,
        _notes(margin, None),
    )
    handles: list[Any] = []
    accuracy = shares.axis_label(itertools.chain.from_iterable(panel.shares for panel in panels))
    for row, across in enumerate(rows):
        for column, panel in enumerate(across):
            left, up = MARGIN + LEFT + column * (LEFT + plot), block * (len(rows) - 1 - row)
            axes = paper.add_axes(left, legend + up + BELOW, plot, HIGH)
            axes.set_title(f"{panel.model} · {panel.task}", loc="left", size=8.5, weight="bold")
            handles = _draw_panel(axes, panel, style, smallest, margin)
            axes.set_xlabel(label if row == len(rows) - 1 else "")
            axes.set_ylabel(accuracy if column == 0 else "")
    handles += [axes.plot([], [], markersize=5, label=arm, **style[arm])[0] for arm in arms]
    paper.figure.legend(
        handles=handles,
        ncols=entries,
        loc="lower left",
        bbox_to_anchor=(MARGIN / paper.width, paper.floor / paper.height),
        borderaxespad=0,
        frameon=False,
    )
    return paper.figure


def _draw_panel(
    axes: Any,
    panel: Curves,
    style: Mapping[str, Mapping[str, Any]],
    smallest: Mapping[str, str | None],
    margin: float | None,
) -> list[Any]:
    """Draw a panel. Returns the handle of the full cache for the legend, if there is one."""
    name = f"{panel.model}/{panel.task}"
    handles = []
    if panel.full is not None:
        mean, low, high = (100 * value for value in panel.full.accuracy[:3])
        band = {"color": PALE, "alpha": 0.22, "linewidth": 0, "zorder": 0}
        handles = [axes.axhspan(low, high, label="full cache", gid=f"full-{name}", **band)]
        axes.axhline(mean, color=PALE, linewidth=1, zorder=0.5)
        _draw_margin(axes, panel, margin)
    for number, (arm, points) in enumerate(panel.arms.items()):
        x, y = [point.value for point in points], [100 * point.accuracy.share for point in points]
        aside = ScaledTranslation(APART * (number - (len(panel.arms) - 1) / 2) / 72, 0, axes.figure.dpi_scale_trans)
        offset = {"transform": axes.transData + aside}
        ends = [[100 * point.accuracy[end] for point in points] for end in (1, 2)]
        axes.vlines(x, *ends, color=style[arm]["color"], linewidth=0.8, gid=f"limits-{name}/{arm}", **offset)
        axes.plot(x, y, linewidth=1.3, markersize=4, gid=f"line-{name}/{arm}", **style[arm], **offset)
        _draw_ring(axes, f"{name}/{arm}", points, smallest.get(arm), **offset)
    draw_memory_axis(axes, panel)
    axes.set_ylim(-3, 103)
    axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.6)
    axes.spines[["right", "top"]].set_visible(False)
    return handles


def _draw_margin(axes: Any, panel: Curves, margin: float | None) -> None:
    """Draw the margin below the full cache that counts as lossless."""
    if margin is not None and panel.full is not None:
        below = {"color": PALE, "linewidth": 1.1, "linestyle": (0, (4, 2)), "zorder": 0.5}
        level = 100 * panel.full.accuracy.share - 100 * margin
        axes.axhline(level, gid=f"margin-{panel.model}/{panel.task}", **below)


def _draw_ring(axes: Any, name: str, points: Sequence[Point], smallest: str | None, **style: Any) -> None:
    """Draw a ring around the smallest lossless budget of an arm."""
    for point in points:
        if point.budget == smallest:
            ring = {"markeredgecolor": INK, "markerfacecolor": "none", "markeredgewidth": 1.1, "zorder": 4}
            position = point.value, 100 * point.accuracy.share
            axes.plot(*position, "o", markersize=10, gid=f"smallest-{name}", **ring, **style)


def _matched_memory(lock: Mapping[str, Any]) -> str:
    memory: str = lock["protocol"]["content"]["decision"].get("memory", "slots")
    return memory


def _arm_memory(arm: Mapping[str, Any], matched: str) -> float:
    """Return the memory of an arm, in the unit of the axis."""
    if matched == "slots":
        return float(arm["mean_slots"])
    size = float(arm["mean_bytes"])
    if matched == "total":
        size += float(arm.get("mean_state_bytes", 0))
    return size / AXES[matched][1]


def _subtitle(smallest: Mapping[str, str | None], margin: float | None) -> list[str]:
    """Return the subtitle: the smallest lossless budget of each arm."""
    if margin is None:
        return ["Limits per arm; contrasts are paired: see forest. Where two lines cross decides nothing."]
    budgets = ", ".join(f"{arm} {budget or 'at none of its budgets'}" for arm, budget in smallest.items())
    points = judged_numbers.format_points(str(margin)).lstrip("+")
    return [f"Smallest budget shown within {points} pp of the full cache: {budgets}."]


def _notes(margin: float | None, subject: str | None) -> list[str]:
    """Return the notes. subject: the only arm with limits; None if all have them."""
    counted = "95 % intervals (Wilson), problems counted and not answers; not corrected."
    ticks = "Ticks: memory held, mean of the arms, and in brackets the budget."
    notes = [
        f"Vertical lines and the band: {counted} {ticks} Arms stand a little side by side."
        if subject is None
        else f"Bands, of {subject} and of the full cache: {counted} {ticks} Arms that "
        "score by one formula share a colour; where formulas are many, colours come again."
    ]
    if margin is not None:
        notes.append(
            "Ring: the smallest budget that the registered rule finds lossless, for all models and tasks "
            "together. Dashed: the margin below the full cache. The rule compares problem by problem; these "
            "intervals do not."
        )
    return notes
