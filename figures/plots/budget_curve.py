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

from figures.canvas import named_lines, numbers, page, shares
from figures.canvas.curves import Curves, Point, curved
from figures.canvas.lines import styles
from figures.canvas.memory_axis import memory_axis
from figures.canvas.page import INK, MARGIN, PALE, WIDEST, inches

__all__ = ["budget_curve", "curves"]

PLOT, LEAST, HIGH = 3.9, 2.6, 2.6  # inches, of a panel: its width at most and at least
BESIDE, ABOVE, UNDER = 0.62, 0.32, 0.66  # inches: left of a panel, above it, below it
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


def curves(judged: Mapping[str, Any], lock: Mapping[str, Any], lanes: Any) -> list[Curves]:
    """Return the curves in registered order; empty if no arm was run at two budgets. lanes: those of
    `study_files.read`.

    Memory is in the unit that the protocol matches: slots, bytes of the cache, or these plus the policy's own
    state.
    """
    matched = _matched(lock)
    found = curved(judged, lanes, lambda one, _: _memory(one, matched))
    for place in found:
        for points in place.arms.values():
            points.sort(key=lambda one: one.at)
    return found if any(len(points) > 1 for place in found for points in place.arms.values()) else []


def budget_curve(judged: Mapping[str, Any], lock: Mapping[str, Any], places: Sequence[Curves]) -> Figure:
    """Draw the curves. Rows of panels: models. Columns: tasks. If the rule searched for them, it marks the
    smallest lossless budget of each arm, and the margin below the full cache that counts as lossless.

    The gids of artists in a panel are "line-", "limits-", "smallest-<model>/<task>/<arm>",
    "full-<model>/<task>" and "margin-<model>/<task>".
    """
    smallest = {one["arm"]: one["smallest"] for one in judged.get("smallest_lossless", [])}
    margin = float(judged["margin"]) if smallest else None
    said = [page.standing(judged), *_found(smallest, margin)]
    title = "Accuracy against the memory that was held" + ("" if smallest else " (exploratory)")
    label, _ = AXES[_matched(lock)]
    arms = list(dict.fromkeys(arm for place in places for arm in place.arms))
    if len(arms) <= FEW:
        return _side_by_side(places, arms, smallest, margin, title, said, label)
    subject = judged["contrasts"][0]["subject"]
    style = named_lines.styles(subject, named_lines.scored(lock, arms))
    drawn = named_lines.laid(places, title, said, _notes(margin, subject), label)
    for axes, place in drawn.panels:
        name = f"{place.model}/{place.task}"
        memory_axis(axes, place)
        named_lines.panel(axes, place, style, drawn.size)
        _margin(axes, place, margin)
        for arm, points in place.arms.items():
            _ring(axes, f"{name}/{arm}", points, smallest.get(arm))
        if points := place.arms.get(subject, []):
            low, high = ([100 * one.accuracy[end] for one in points] for end in (1, 2))
            band = {"color": style[subject]["color"], "alpha": 0.16, "linewidth": 0, "zorder": 1}
            axes.fill_between([one.at for one in points], low, high, gid=f"limits-{name}/{subject}", **band)
    return drawn.sheet.figure


def _side_by_side(
    places: Sequence[Curves],
    arms: Sequence[str],
    smallest: Mapping[str, str | None],
    margin: float | None,
    title: str,
    said: Sequence[str],
    label: str,
) -> Figure:
    """Draw few arms with the limits of each, shifted sideways, and a legend."""
    style = styles(arms)
    columns = max(len(list(group)) for _, group in itertools.groupby(places, lambda place: place.model))
    rows = [list(group) for _, group in itertools.groupby(places, lambda place: place.model)]
    names = [inches(arm) + ENTRY for arm in (*arms, "full cache")]
    titles = (inches(f"{place.model} · {place.task}", weight="bold") for place in places)
    plot = max(LEAST, min(PLOT, (WIDEST - 2 * MARGIN) / columns - BESIDE), *titles)
    room = columns * (BESIDE + plot)
    entries = len(names) if sum(names) < room else max(1, int(room / max(names)))
    legend = 0.2 * -(-len(names) // entries) + 0.1
    block = ABOVE + HIGH + UNDER
    paper = page.sheet(
        2 * MARGIN + room,
        block * len(rows) + legend,
        title,
        said,
        _notes(margin, None),
    )
    handles: list[Any] = []
    accuracy = shares.label(itertools.chain.from_iterable(place.shares for place in places))
    for row, across in enumerate(rows):
        for column, place in enumerate(across):
            left, up = MARGIN + BESIDE + column * (BESIDE + plot), block * (len(rows) - 1 - row)
            axes = paper.axes(left, legend + up + UNDER, plot, HIGH)
            axes.set_title(f"{place.model} · {place.task}", loc="left", size=8.5, weight="bold")
            handles = _panel(axes, place, style, smallest, margin)
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


def _panel(
    axes: Any,
    place: Curves,
    style: Mapping[str, Mapping[str, Any]],
    smallest: Mapping[str, str | None],
    margin: float | None,
) -> list[Any]:
    """Draw a panel. Returns the handle of the full cache for the legend, if there is one."""
    name = f"{place.model}/{place.task}"
    handles = []
    if place.full is not None:
        mean, low, high = (100 * value for value in place.full.accuracy[:3])
        band = {"color": PALE, "alpha": 0.22, "linewidth": 0, "zorder": 0}
        handles = [axes.axhspan(low, high, label="full cache", gid=f"full-{name}", **band)]
        axes.axhline(mean, color=PALE, linewidth=1, zorder=0.5)
        _margin(axes, place, margin)
    for number, (arm, held) in enumerate(place.arms.items()):
        x, y = [one.at for one in held], [100 * one.accuracy.share for one in held]
        aside = ScaledTranslation(
            APART * (number - (len(place.arms) - 1) / 2) / 72, 0, axes.figure.dpi_scale_trans
        )
        own = {"transform": axes.transData + aside}
        ends = [[100 * one.accuracy[end] for one in held] for end in (1, 2)]
        axes.vlines(x, *ends, color=style[arm]["color"], linewidth=0.8, gid=f"limits-{name}/{arm}", **own)
        axes.plot(x, y, linewidth=1.3, markersize=4, gid=f"line-{name}/{arm}", **style[arm], **own)
        _ring(axes, f"{name}/{arm}", held, smallest.get(arm), **own)
    memory_axis(axes, place)
    axes.set_ylim(-3, 103)
    axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.6)
    axes.spines[["right", "top"]].set_visible(False)
    return handles


def _margin(axes: Any, place: Curves, margin: float | None) -> None:
    """Draw the margin below the full cache that counts as lossless."""
    if margin is not None and place.full is not None:
        below = {"color": PALE, "linewidth": 1.1, "linestyle": (0, (4, 2)), "zorder": 0.5}
        at = 100 * place.full.accuracy.share - 100 * margin
        axes.axhline(at, gid=f"margin-{place.model}/{place.task}", **below)


def _ring(axes: Any, name: str, points: Sequence[Point], smallest: str | None, **how: Any) -> None:
    """Draw a ring around the smallest lossless budget of an arm."""
    for one in points:
        if one.budget == smallest:
            ring = {"markeredgecolor": INK, "markerfacecolor": "none", "markeredgewidth": 1.1, "zorder": 4}
            place = one.at, 100 * one.accuracy.share
            axes.plot(*place, "o", markersize=10, gid=f"smallest-{name}", **ring, **how)


def _matched(lock: Mapping[str, Any]) -> str:
    found: str = lock["protocol"]["content"]["decision"].get("memory", "slots")
    return found


def _memory(one: Mapping[str, Any], matched: str) -> float:
    """Return the memory of an arm, in the unit of the axis."""
    if matched == "slots":
        return float(one["mean_slots"])
    held = float(one["mean_bytes"])
    if matched == "total":
        held += float(one.get("mean_state_bytes", 0))
    return held / AXES[matched][1]


def _found(smallest: Mapping[str, str | None], margin: float | None) -> list[str]:
    """Return the subtitle: the smallest lossless budget of each arm."""
    if margin is None:
        return ["Limits per arm; contrasts are paired: see forest. Where two lines cross decides nothing."]
    found = ", ".join(f"{arm} {budget or 'at none of its budgets'}" for arm, budget in smallest.items())
    points = numbers.points(str(margin)).lstrip("+")
    return [f"Smallest budget shown within {points} pp of the full cache: {found}."]


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
