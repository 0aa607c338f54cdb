"""Plot of where the needed tokens are: their share by tenth of the span and by token class, with intervals.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from analysis.anatomy import over_traces
from analysis.anatomy.reading import Anatomy
from analysis.anatomy.token_classes import CLASSES, class_of
from figures.canvas import page
from figures.canvas.anatomies import Told, readings, standing
from figures.canvas.page import INK, MARGIN
from figures.canvas.shares import Share, mean_of

__all__ = ["TENTHS", "Panel", "anatomy_labels", "placed"]

TENTHS = 10
BESIDE, ABOVE, UNDER, HIGH, APART = 0.62, 0.5, 0.62, 1.7, 0.1  # inches
WIDE, CLASS = 3.7, 0.62  # inches: of the panel of tenths, and of a class in the other panel
COLOURS = ("#0072b2", "#d55e00")  # for the registered reading and for the other
ASIDE = 0.16  # share of a tenth or a class, between readings


class Panel(NamedTuple):
    """One model and task. Shares of needed tokens by reading, the registered one first.

    traces: with labels; varying: the number of those with varying labels. tenths: of the span, first to last.
    classes: by name, those that occur; tokens: of each, in all traces.
    """

    model: str
    task: str
    traces: int
    varying: dict[str, int]
    tenths: dict[str, list[Share]]
    classes: dict[str, dict[str, Share]]
    tokens: dict[str, int]


def placed(anatomy: Anatomy) -> list[Panel]:
    """Return a panel for each model and task with a labelled trace, in registered order.

    Traces whose answer no occlusion changed are included: none of their tokens was needed. Shares are means
    over traces, as in `analysis.anatomy.exploratory.label_shares`.
    """
    found = []
    for model, task in anatomy.pairs:
        traces = [one for one in anatomy.of((model, task)) if one.windows]
        if not traces:
            continue
        names = [[class_of(piece) for piece in one.pieces[slice(*one.span)]] for one in traces]
        there = [name for name in CLASSES if any(name in own for own in names)]
        clusters = [one.cluster for one in traces]
        tenths: dict[str, list[Share]] = {}
        classes: dict[str, dict[str, Share]] = {}
        for reading in readings(anatomy):
            labels = [one.labels(reading) == 1 for one in traces]
            places = [[f"{TENTHS * at // len(one)}" for at in range(len(one))] for one in labels]
            tenths[reading] = _by(labels, places, [str(at) for at in range(TENTHS)], clusters)
            classes[reading] = dict(zip(there, _by(labels, names, there, clusters), strict=True))
        varying = {reading: sum(0 < one.labels(reading).mean() < 1 for one in traces) for reading in tenths}
        tokens = {name: sum(own.count(name) for own in names) for name in there}
        found.append(Panel(model, task, len(traces), varying, tenths, classes, tokens))
    return found


def _by(
    labels: Sequence[NDArray[np.bool_]],
    kinds: Sequence[Sequence[str]],
    names: Sequence[str],
    clusters: Sequence[str],
) -> list[Share]:
    """Return for each name the mean over traces of the share of its tokens that were needed."""
    table = np.full((len(labels), len(names)), np.nan)
    for row, (own, kind) in enumerate(zip(labels, kinds, strict=True)):
        for column, name in enumerate(names):
            if (here := np.array(kind) == name).any():
                table[row, column] = own[here].mean()
    return [mean_of(column) for column in over_traces.units(table, clusters).T]


def anatomy_labels(told: Told, panels: Sequence[Panel]) -> Figure:
    """Draw a row for each model and task: by tenths of the span at the left, by class at the right.

    The gids are "tenths-" and "classes-<model>/<task>/<reading>".
    """
    columns = max(len(next(iter(one.classes.values()))) for one in panels)
    right = MARGIN + BESIDE + WIDE + APART + BESIDE
    width = max(6.4, right + max(CLASS * columns, 1.5) + MARGIN)
    block = ABOVE + HIGH + UNDER
    paper = page.sheet(
        width,
        block * len(panels) + 0.1,
        "Where the needed tokens lie (exploratory)",
        standing(told),
        [
            "Share of tokens that were needed, mean over labelled traces, those included whose answer no "
            "occlusion changed. Lines: 95 % intervals (Wilson) of these means, traces counted and not "
            "tokens; each by itself, not corrected.",
            "The ends of a span lie in one window, the rest in several: fewer tokens are found needed there "
            "for that alone. A label is as wide as a window, so that a class has the labels of what stands "
            "beside it.",
        ],
    )
    for number, one in enumerate(panels):
        up = 0.1 + block * (len(panels) - 1 - number) + UNDER
        left = paper.axes(MARGIN + BESIDE, up, WIDE, HIGH)
        beside = paper.axes(right, up, max(CLASS * columns, 1.5), HIGH)
        _heading(paper, up, one)
        name = f"{one.model}/{one.task}"
        for order, reading in enumerate(one.tenths):
            aside = ASIDE * (order - (len(one.tenths) - 1) / 2)
            _shares(left, one.tenths[reading], aside, order, f"tenths-{name}/{reading}")
            shares = list(one.classes[reading].values())
            _shares(beside, shares, aside, order, f"classes-{name}/{reading}")
        left.set_xlim(-0.6, TENTHS - 0.4)
        left.set_xticks(range(TENTHS), [f"{tenth + 1}" for tenth in range(TENTHS)])
        left.set_xlabel("tenth of the span, from its beginning")
        left.set_ylabel("tokens needed, %")
        names = list(next(iter(one.classes.values())))
        beside.set_xlim(-0.6, columns - 0.4)
        ticks = [f"{name}\n{count:,}" for name, count in one.tokens.items()]
        beside.set_xticks(range(len(names)), ticks, size=6.8)
        beside.set_xlabel("class of the token, and how many")
        for axes in (left, beside):
            axes.set_ylim(-2, 102)
            axes.set_yticks(range(0, 101, 25))
            axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.6)
            axes.spines[["right", "top"]].set_visible(False)
    return paper.figure


def _heading(paper: page.Sheet, up: float, one: Panel) -> None:
    """Draw model and task, and below them the legend of the two colours."""
    place = paper.width, paper.height
    x, y = MARGIN + BESIDE, paper.floor + up + HIGH
    title = f"{one.model} · {one.task}"
    paper.figure.text(x / place[0], (y + 0.36) / place[1], title, weight="bold", color=INK, va="center")
    for order, (reading, varying) in enumerate(one.varying.items()):
        how: dict[str, Any] = {"color": COLOURS[order], "va": "center", "size": 7.5}
        how["weight"] = "bold" if order == 0 else "normal"
        text = f"{'● ' if order == 0 else '□ '}{reading}: labels vary in {varying} of {one.traces} traces"
        paper.figure.text(x / place[0], (y + 0.17) / place[1], text, **how)
        x += page.inches(text, 7.5, "bold") + 0.3


def _shares(axes: Any, shares: Sequence[Share], aside: float, order: int, gid: str) -> None:
    x = np.arange(len(shares)) + aside
    colour = COLOURS[order]
    lows, highs = ([100 * one[end] for one in shares] for end in (1, 2))
    axes.vlines(x, lows, highs, color=colour, linewidth=1.1 if order == 0 else 0.8)
    how = {"marker": "os"[order], "markersize": 4, "linestyle": "", "color": colour}
    how["markerfacecolor"] = colour if order == 0 else page.FACE
    axes.plot(x, [100 * one.share for one in shares], gid=gid, **how)
