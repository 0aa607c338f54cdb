"""Plot of accuracy against measured memory: a line for each arm over its budgets, the full cache as a band.

Each arm has its name at the end of its line. With few arms each has limits, with more only the subject.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from analysis.rules import RULES, judged_numbers
from figures.drawing import named_lines, page
from figures.drawing.curves import Curves, Point, build_curves
from figures.drawing.memory_axis import draw_memory_axis
from figures.drawing.page import INK, PALE
from protocol.formats.vocabulary import READS

FEW = 5  # arms up to which each has limits that can be distinguished
APART = 2.5  # points between the limits of arms with the same memory
# What a protocol matches -> the label of the axis, and the size of its unit in the judged number.
AXES: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "slots": ("mean slots used per KV head and layer", 1),
        "bytes": ("mean KiB of keys and values", 1024),
        "total": ("mean KiB, including the policy's own state", 1024),
        READS: ("mean slots per KV head and layer that a new token reads", 1),
    }
)


def budget_curves(judged: Mapping[str, Any], lock: Mapping[str, Any], lanes: Any) -> list[Curves]:
    """Return the curves in registered order; empty if no arm was run at two budgets. lanes: those of
    `study_files.read`.

    Memory is in the unit that the protocol matches: slots held or read, bytes of the cache, or these plus the policy's
    own state.
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
    title = "Accuracy against measured memory" + ("" if smallest else " (exploratory)")
    label, _ = AXES[_matched_memory(lock)]
    arms = list(dict.fromkeys(arm for panel in panels for arm in panel.arms))
    subject = judged["contrasts"][0]["subject"]
    limited = arms if len(arms) <= FEW else [subject]
    style = named_lines.styles(subject, named_lines.scoring_families(lock, arms))
    notes = _notes(margin, subject, has_all_limits=limited == arms)
    drawn = named_lines.build_panels(panels, title, subtitle, notes, label)
    for axes, panel in drawn.panels:
        draw_memory_axis(axes, panel)
        named_lines.draw_panel(axes, panel, style, drawn.size)
        _draw_margin(axes, panel, margin)
        for number, arm in enumerate(limited):
            _draw_limits(axes, panel, arm, style[arm]["color"], APART * (number - (len(limited) - 1) / 2))
        for arm, points in panel.arms.items():
            _draw_ring(axes, f"{panel.model}/{panel.task}/{arm}", points, smallest.get(arm))
    return drawn.sheet.figure


def _draw_limits(axes: Any, panel: Curves, arm: str, color: str, aside: float) -> None:
    """Draw the limits of an arm as vertical lines, `aside` of its points, in points of the page."""
    if points := panel.arms.get(arm, []):
        ends = [[100 * point.accuracy[end] for point in points] for end in (1, 2)]
        shifted = axes.transData + ScaledTranslation(aside / 72, 0, axes.figure.dpi_scale_trans)
        x, gid = [point.value for point in points], f"limits-{panel.model}/{panel.task}/{arm}"
        axes.vlines(x, *ends, color=color, linewidth=0.8, zorder=2, gid=gid, transform=shifted)


def _draw_margin(axes: Any, panel: Curves, margin: float | None) -> None:
    """Draw the margin below the full cache that counts as lossless."""
    if margin is not None and panel.full is not None:
        below = {"color": PALE, "linewidth": 1.1, "linestyle": (0, (4, 2)), "zorder": 0.5}
        level = 100 * panel.full.accuracy.share - 100 * margin
        axes.axhline(level, gid=f"margin-{panel.model}/{panel.task}", **below)


def _draw_ring(axes: Any, name: str, points: Sequence[Point], smallest: str | None) -> None:
    """Draw a ring around the smallest lossless budget of an arm."""
    for point in points:
        if point.budget == smallest:
            ring = {"markeredgecolor": INK, "markerfacecolor": "none", "markeredgewidth": 1.1, "zorder": 4}
            position = point.value, 100 * point.accuracy.share
            axes.plot(*position, "o", markersize=10, gid=f"smallest-{name}", **ring)


def _matched_memory(lock: Mapping[str, Any]) -> str:
    memory: str = lock["protocol"]["content"]["decision"].get("memory", "slots")
    return memory


def _arm_memory(arm: Mapping[str, Any], matched: str) -> float:
    """Return the memory of an arm, in the unit of the axis."""
    if matched == "slots":
        return float(arm["mean_slots"])
    if matched == READS:
        return float(arm["mean_reads"])
    size = float(arm["mean_bytes"])
    if matched == "total":
        size += float(arm.get("mean_state_bytes", 0))
    return size / AXES[matched][1]


def _subtitle(smallest: Mapping[str, str | None], margin: float | None) -> list[str]:
    """Return the subtitle: the smallest lossless budget of each arm."""
    if margin is None:
        return [
            ("Limits are per arm; for paired contrasts see the forest plot. A crossing of two lines decides nothing.")
        ]
    budgets = ", ".join(f"{arm} {budget or 'at none of its budgets'}" for arm, budget in smallest.items())
    points = judged_numbers.format_points(str(margin)).lstrip("+")
    return [f"Smallest budget shown to be within {points} pp of the full cache: {budgets}."]


def _notes(margin: float | None, subject: str, *, has_all_limits: bool) -> list[str]:
    """Return the notes. has_all_limits: whether each arm has limits, or the subject alone."""
    whose = "side by side" if has_all_limits else f"of {subject} alone"
    notes = [
        (
            f"Vertical lines, {whose}, and the band: 95 % intervals (Wilson) over problems, not answers; not "
            "corrected. Ticks: measured memory, mean of the arms, with the budget in brackets. Arms that score "
            "by the same formula share a colour; if there are many formulas, colours repeat."
        )
    ]
    if margin is not None:
        notes.append(
            "Ring: the smallest budget that the registered rule finds lossless, over all models and tasks "
            "together. Dashed: the margin below the full cache. The rule compares problem by problem; "
            "these intervals do not."
        )
    return notes
