"""Accuracy against the memory that was measured: a line an arm over its budgets, the full cache as a band."""

import itertools
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from figures.canvas import numbers, page
from figures.canvas.lines import styles
from figures.canvas.page import INK, MARGIN, PALE, inches
from figures.canvas.shares import Share, share

__all__ = ["Curves", "Held", "budget_curve", "curves"]

PLOT, HIGH = 3.9, 2.6  # inches, of a panel
BESIDE, ABOVE, UNDER = 0.62, 0.32, 0.66  # left of a panel, over it, under it
ENTRY = 0.75  # inches of the legend, beside a name
APART = 2.5  # points between the limits of arms that held the same memory
WIDE = 4  # times the least memory; where the most is beyond it, the axis is logarithmic
# What a protocol matches -> what its axis says, and what one unit of it is of the judged number.
AXES: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "slots": ("slots held per KV head and layer, mean", 1),
        "bytes": ("KiB of keys and values held, mean", 1024),
        "total": ("KiB held, with the policy's own state, mean", 1024),
    }
)


class Held(NamedTuple):
    """One arm at one budget: the memory that it held, in the unit of the axis, and its accuracy."""

    budget: str
    memory: float
    accuracy: Share


class Curves(NamedTuple):
    """Of one model and task. arms: by name, ascending in memory. full: of the arm that evicts nothing."""

    model: str
    task: str
    arms: dict[str, list[Held]]
    full: Share | None


def curves(judged: Mapping[str, Any], lock: Mapping[str, Any], lanes: Any) -> list[Curves]:
    """In registered order; empty where no arm was run at two budgets. lanes: those of `study_files.read`.

    Memory is what the protocol matches: slots, bytes of the cache, or these and the policy's own state.
    """
    by_arm = {
        key: share(group, group["correct"] == 1, group["correct"].notna())
        for key, group in lanes.groupby(["model", "task", "budget", "arm"])
    }
    matched = _matched(lock)
    found: dict[tuple[str, str], Curves] = {}
    for one in judged["arms"]:
        model, task, budget, arm = (one[name] for name in ("model", "task", "budget", "arm"))
        mine = found.setdefault((model, task), Curves(model, task, {}, None))
        own = by_arm[model, task, budget, arm]
        if budget == "full":
            found[model, task] = mine._replace(full=None if math.isnan(own.share) else own)
        elif not math.isnan(own.share):
            mine.arms.setdefault(arm, []).append(Held(budget, _memory(one, matched), own))
    for place in found.values():
        for held in place.arms.values():
            held.sort(key=lambda each: each.memory)
    several = any(len(held) > 1 for place in found.values() for held in place.arms.values())
    return [place for place in found.values() if place.arms] if several else []


def budget_curve(judged: Mapping[str, Any], lock: Mapping[str, Any], places: Sequence[Curves]) -> Figure:
    """Rows of panels: models. Columns: tasks. Marked, where the rule sought it: the smallest lossless budget
    of each arm, and how far below the full cache counts as lossless.

    Artists of a panel have "line-", "limits-", "smallest-<model>/<task>/<arm>", "full-<model>/<task>" and
    "margin-<model>/<task>" as gid.
    """
    smallest = {one["arm"]: one["smallest"] for one in judged.get("smallest_lossless", [])}
    margin = float(judged["margin"]) if smallest else None
    arms = list(dict.fromkeys(arm for place in places for arm in place.arms))
    style = styles(arms)
    columns = max(len(list(group)) for _, group in itertools.groupby(places, lambda place: place.model))
    rows = [list(group) for _, group in itertools.groupby(places, lambda place: place.model)]
    names = [inches(arm) + ENTRY for arm in (*arms, "full cache")]
    plot = max(PLOT, *(inches(f"{place.model} · {place.task}", weight="bold") for place in places))
    room = columns * (BESIDE + plot)
    entries = len(names) if sum(names) < room else max(1, int(room / max(names)))
    legend = 0.2 * -(-len(names) // entries) + 0.1
    block = ABOVE + HIGH + UNDER
    paper = page.sheet(
        2 * MARGIN + room,
        block * len(rows) + legend,
        "Accuracy against the memory that was held" + ("" if smallest else " (exploratory)"),
        [page.standing(judged), *_found(smallest, margin)],
        _notes(margin),
    )
    label, _ = AXES[_matched(lock)]
    handles = []
    for row, across in enumerate(rows):
        for column, place in enumerate(across):
            left, up = MARGIN + BESIDE + column * (BESIDE + plot), block * (len(rows) - 1 - row)
            axes = paper.axes(left, legend + up + UNDER, plot, HIGH)
            axes.set_title(f"{place.model} · {place.task}", loc="left", size=8.5, weight="bold")
            handles = _panel(axes, place, style, smallest, margin)
            axes.set_xlabel(label if row == len(rows) - 1 else "")
            axes.set_ylabel("correct answers, %" if column == 0 else "")
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
    """Returns the handle of the full cache for the legend, if there is one."""
    name = f"{place.model}/{place.task}"
    handles = []
    if place.full is not None:
        mean, low, high = (100 * value for value in place.full[:3])
        band = {"color": PALE, "alpha": 0.22, "linewidth": 0, "zorder": 0}
        handles = [axes.axhspan(low, high, label="full cache", gid=f"full-{name}", **band)]
        axes.axhline(mean, color=PALE, linewidth=1, zorder=0.5)
        if margin is not None:
            below = {"color": PALE, "linewidth": 1.1, "linestyle": (0, (4, 2)), "zorder": 0.5}
            axes.axhline(mean - 100 * margin, gid=f"margin-{name}", **below)
    for number, (arm, held) in enumerate(place.arms.items()):
        x, y = [one.memory for one in held], [100 * one.accuracy.share for one in held]
        aside = ScaledTranslation(
            APART * (number - (len(place.arms) - 1) / 2) / 72, 0, axes.figure.dpi_scale_trans
        )
        own = {"transform": axes.transData + aside}
        ends = [[100 * one.accuracy[end] for one in held] for end in (1, 2)]
        axes.vlines(x, *ends, color=style[arm]["color"], linewidth=0.8, gid=f"limits-{name}/{arm}", **own)
        axes.plot(x, y, linewidth=1.3, markersize=4, gid=f"line-{name}/{arm}", **style[arm], **own)
        if found := [one for one in held if one.budget == smallest.get(arm)]:
            ring = {"markeredgecolor": INK, "markerfacecolor": "none", "markeredgewidth": 1.1, "zorder": 4}
            axes.plot(
                found[0].memory,
                100 * found[0].accuracy.share,
                "o",
                markersize=10,
                gid=f"smallest-{name}/{arm}",
                **ring,
                **own,
            )
    _memory_axis(axes, place)
    axes.set_ylim(-3, 103)
    axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.6)
    axes.spines[["right", "top"]].set_visible(False)
    return handles


def _memory_axis(axes: Any, place: Curves) -> None:
    """A tick for each budget, at what its arms held on average; those that would run into another are left
    out, beginning with the smallest.
    """
    by_budget: dict[str, list[float]] = {}
    for one in itertools.chain(*place.arms.values()):
        by_budget.setdefault(one.budget, []).append(one.memory)
    every = [memory for memories in by_budget.values() for memory in memories]
    least, most = min(every), max(every)
    wide = least > 0 and most > WIDE * least
    scale = math.log if wide else float
    room = 0.08 * (scale(most) - scale(least)) or 1
    axes.set_xscale("log" if wide else "linear")
    axes.minorticks_off()
    ends = (scale(least) - room, scale(most) + room)
    axes.set_xlim(*(map(math.exp, ends) if wide else ends))
    inch = PLOT / (ends[1] - ends[0])
    ticks: list[tuple[float, str]] = []
    for budget, memories in sorted(by_budget.items(), key=lambda each: -max(each[1])):
        mean = sum(memories) / len(memories)
        text = f"{mean:.0f}\n({budget})"
        width = max(map(inches, text.split("\n"))) + 0.06
        if not ticks or (scale(ticks[-1][0]) - scale(mean)) * inch > width:
            ticks.append((mean, text))
    axes.set_xticks([at for at, _ in ticks], [text for _, text in ticks])


def _matched(lock: Mapping[str, Any]) -> str:
    found: str = lock["protocol"]["content"]["decision"].get("memory", "slots")
    return found


def _memory(one: Mapping[str, Any], matched: str) -> float:
    """What an arm held of what is matched, in the unit of the axis."""
    if matched == "slots":
        return float(one["mean_slots"])
    held = float(one["mean_bytes"])
    if matched == "total":
        held += float(one.get("mean_state_bytes", 0))
    return held / AXES[matched][1]


def _found(smallest: Mapping[str, str | None], margin: float | None) -> list[str]:
    """What the rule found of each arm, in words."""
    if margin is None:
        return ["Limits per arm; contrasts are paired: see forest. Where two lines cross decides nothing."]
    found = ", ".join(f"{arm} {budget or 'at none of its budgets'}" for arm, budget in smallest.items())
    points = numbers.points(str(margin)).lstrip("+")
    return [f"Smallest budget shown within {points} pp of the full cache: {found}."]


def _notes(margin: float | None) -> list[str]:
    notes = [
        "Vertical lines and the band: 95 % intervals (Wilson), problems counted and not answers; not "
        "corrected. Ticks: memory held, mean of the arms, and in brackets the budget. Arms stand a little "
        "side by side.",
    ]
    if margin is not None:
        notes.append(
            "Ring: the smallest budget that the registered rule finds lossless, for all models and tasks "
            "together. Dashed: the margin below the full cache. The rule compares problem by problem; these "
            "intervals do not."
        )
    return notes
