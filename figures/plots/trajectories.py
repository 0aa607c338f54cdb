"""The cache that every arm held, step by step: why equal memory at the end of the prefill is not enough.

Two arms that hold the same when decoding begins may hold several times as much of one another later
("Minimal-Intervention KV Retention", figure 2, which is a schema; these are measurements).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from figures.canvas import page
from figures.canvas.lines import styles
from figures.canvas.page import INK, MARGIN, PALE, inches
from figures.canvas.traces import BAND, Trace

__all__ = ["trajectories"]

POINTS = 1000  # of a line, at most
PLOT, HIGH, THIN = 3.3, 2.1, 0.5  # inches: width of a panel, height of its plot and of the lanes under it
BESIDE, ABOVE, BETWEEN, UNDER, APART = 0.62, 0.32, 0.14, 0.5, 0.2
ENTRY, SWATCH = 0.18, 0.42  # height of a line of the legend, width of its sample
COLUMNS = {"after prefill": 0.9, "mean": 0.65, "state": 0.8, "tok-eq": 0.6}


def trajectories(judged: Mapping[str, Any], found: Sequence[Trace]) -> Figure:
    """Rows of panels: model and task. Columns: budgets. Each panel has the slots held and, under them, the
    share of lanes that still decode, and a legend with numbers.

    An arm that evicts nothing is named in the legend alone, for it would dwarf the others. A line has
    "mean-<model>/<task>/<budget>/<arm>" as gid, its band "band-...", its share of lanes "lanes-..."; the
    budget is "nominal-<model>/<task>/<budget>".
    """
    places = list(dict.fromkeys(one[:2] for one in found))
    evicting = [one for one in found if one.budget != "full"]
    budgets = list(dict.fromkeys(one.budget for one in evicting))
    style = styles(list(dict.fromkeys(one.arm for one in evicting)))
    name = max(inches(one.arm) for one in found) + SWATCH
    titles = [f"{model} · {task} · budget {budget}" for model, task in places for budget in budgets]
    wide = max(inches(title, weight="bold") for title in titles)
    plot = max(PLOT, wide, name + sum(COLUMNS.values()) - BESIDE + 0.1)
    most = max(
        sum(one[:2] == place and one.budget in (budget, "full") for one in found)
        for place in places
        for budget in budgets
    )
    under = UNDER + ENTRY * (most + 1)
    block = ABOVE + HIGH + BETWEEN + THIN + under + APART
    width = 2 * MARGIN + len(budgets) * (BESIDE + plot) + (len(budgets) - 1) * APART
    paper = page.sheet(
        width,
        block * len(places),
        "Cache held, step by step (exploratory)",
        [
            page.standing(judged),
            "Memory is matched by the mean over a whole generation, not by what is held after the prefill.",
        ],
        [
            "Line: mean over the lanes that still decode, all problems and seeds. Band: "
            f"{BAND[0]} to {BAND[1]} % of them. Dashed: the registered budget (mean over lanes, where it is "
            "a share of the prompt). Below: lanes that still decode. The axis of slots need not begin at 0.",
            "Slots per KV head and layer. after prefill: with the first event. mean: over the whole "
            "generation of a lane, then over lanes. state: the most bytes that the policy itself carried; "
            "tok-eq: the tokens whose keys and values, as stored, take as many.",
        ],
    )
    for row, place in enumerate(places):
        own = [one for one in found if one[:2] == place]
        longest = max((len(one.slots.mean) for one in own if one.budget != "full"), default=1)
        for column, budget in enumerate(budgets):
            shown = [one for one in own if one.budget == budget]
            if not shown:  # no lane of the cell came to an end
                continue
            left = MARGIN + BESIDE + column * (BESIDE + plot + APART)
            floor = block * (len(places) - 1 - row) + APART + under
            above = paper.axes(left, floor + THIN + BETWEEN, plot, HIGH)
            below = paper.axes(left, floor, plot, THIN)
            above.set_title(f"{' · '.join(place)} · budget {budget}", loc="left", size=8.5, weight="bold")
            for width, one in enumerate(shown):
                _line(above, below, one, style[one.arm] | {"linewidth": max(0.9, 2.1 - 0.4 * width)})
            _panel(above, below, shown, longest, labelled=column == 0)
            _legend(
                paper, left - BESIDE, floor - UNDER, [*shown, *(o for o in own if o.budget == "full")], style
            )
    return paper.figure


def _line(above: Any, below: Any, one: Trace, style: Mapping[str, Any]) -> None:
    name = "/".join(one[:4])
    starts = _starts(len(one.slots.mean))
    line = {name: value for name, value in style.items() if name != "marker"}
    low, high = np.minimum.reduceat(one.slots.low, starts), np.maximum.reduceat(one.slots.high, starts)
    band = above.fill_between(starts, low, high, color=style["color"], alpha=0.15, linewidth=0)
    band.set_gid(f"band-{name}")
    above.plot(starts, _means(one.slots.mean, starts), gid=f"mean-{name}", **line)
    below.plot(
        starts, 100 * _means(one.slots.lanes / one.slots.lanes[0], starts), gid=f"lanes-{name}", **line
    )


def _starts(moments: int) -> NDArray[np.int64]:
    """The first moment of each point: every moment, or blocks of neighbours where there are many."""
    return np.arange(0, moments, -(-moments // POINTS))


def _means(values: NDArray[np.float64], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of each block of moments."""
    lengths = np.diff(np.append(starts, len(values)))
    means: NDArray[np.float64] = np.add.reduceat(values, starts) / lengths
    return means


def _panel(above: Any, below: Any, shown: Sequence[Trace], longest: int, *, labelled: bool) -> None:
    nominal = float(np.mean([one.nominal for one in shown]))
    above.axhline(
        nominal, color=INK, linewidth=0.9, linestyle=(0, (4, 2)), gid=f"nominal-{'/'.join(shown[0][:3])}"
    )
    for axes in (above, below):
        axes.set_xlim(0, max(longest - 1, 1))
        axes.spines[["right", "top"]].set_visible(False)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
    high = max(nominal, *(float(one.slots.high.max()) for one in shown))
    low = min(nominal, *(float(one.slots.low.min()) for one in shown))
    rest = 0.08 * high if low < high / 2 else 0.15 * (high - low) + 1
    above.set_ylim(0 if low < high / 2 else low - rest, high + rest)
    above.tick_params(labelbottom=False)
    below.set_ylim(0, 105)
    below.set_yticks([0, 100])
    below.set_xlabel("tokens decoded")
    if labelled:
        above.set_ylabel("slots held")
        below.set_ylabel("lanes, %")


def _legend(
    paper: page.Sheet, left: float, top: float, shown: Sequence[Trace], style: Mapping[str, Mapping[str, Any]]
) -> None:
    """A table under a panel: what an arm held, and the bytes that it carried beside."""
    axes = paper.axes(left, top - ENTRY * (len(shown) + 1), 1, ENTRY * (len(shown) + 1))
    axes.set(xlim=(0, 1), ylim=(len(shown) + 0.5, -0.5))
    axes.axis("off")
    names = SWATCH + max(inches(one.arm) for one in shown)
    right = dict(zip(COLUMNS, names + np.cumsum(list(COLUMNS.values())), strict=True))
    for head, x in right.items():
        axes.text(x, 0, head, va="center", ha="right", color=PALE)
    for y, one in enumerate(shown, 1):
        drawn = one.budget != "full"
        if drawn:
            line = {name: value for name, value in style[one.arm].items() if name != "marker"}
            axes.plot((0, SWATCH - 0.1), (y, y), linewidth=1.6, clip_on=False, **line)
        axes.text(SWATCH, y, one.arm, va="center", color=INK if drawn else PALE)
        tokens = one.state / one.token
        cells = (f"{one.slots.mean[0]:.1f}", f"{one.overall:.1f}", _bytes(one.state), f"{tokens:.1f}")
        for head, text in zip(COLUMNS, cells, strict=True):
            axes.text(right[head], y, text, va="center", ha="right", color=INK if drawn else PALE)


def _bytes(count: int) -> str:
    for unit, size in (("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
