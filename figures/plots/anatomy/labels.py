"""Where the needed tokens lie: their share by place in the span and by class of token, with intervals."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.anatomy.reading import Anatomy, Trace
from analysis.anatomy.token_classes import CLASSES, class_of
from figures.canvas import page
from figures.canvas.anatomies import Told, readings, standing
from figures.canvas.page import INK, MARGIN
from figures.canvas.shares import Share, share

__all__ = ["TENTHS", "Panel", "anatomy_labels", "placed"]

TENTHS = 10
BESIDE, ABOVE, UNDER, HIGH, APART = 0.62, 0.5, 0.62, 1.7, 0.1  # inches
WIDE, CLASS = 3.7, 0.62  # of the panel of places, and of a class in the other
COLOURS = ("#0072b2", "#d55e00")  # of the registered reading and of the other
ASIDE = 0.16  # of a tenth or a class, between readings


class Panel(NamedTuple):
    """One model and task. Shares are of tokens, needed ones among them, by reading, the registered one first.

    tenths: of the span, first to last. classes: by name, those that occur; traces: of each reading.
    """

    model: str
    task: str
    traces: int
    varying: dict[str, int]
    tenths: dict[str, list[Share]]
    classes: dict[str, dict[str, Share]]


def placed(anatomy: Anatomy) -> list[Panel]:
    """A panel for each model and task with a labelled trace, in registered order. Traces whose answer no
    occlusion changed are in: none of their tokens was needed.
    """
    found = []
    for model, task in anatomy.pairs:
        traces = [one for one in anatomy.of((model, task)) if one.windows]
        if traces:
            tokens = pd.concat([_tokens(one) for one in traces], ignore_index=True)
            names = readings(anatomy)
            varying = {name: sum(0 < one.labels(name).mean() < 1 for one in traces) for name in names}
            tenths = {name: _by(tokens, "tenth", range(TENTHS), name) for name in names}
            there = [name for name in CLASSES if (tokens["class"] == name).any()]
            classes = {
                name: dict(zip(there, _by(tokens, "class", there, name), strict=True)) for name in names
            }
            found.append(Panel(model, task, len(traces), varying, tenths, classes))
    return found


def _tokens(one: Trace) -> Any:
    """A row a token of the span."""
    start, stop = one.span
    place = np.arange(stop - start)
    return pd.DataFrame(
        {
            "problem": one.cluster,
            "tenth": TENTHS * place // (stop - start),
            "class": [class_of(piece) for piece in one.pieces[start:stop]],
            **{reading: one.labels(reading) == 1 for reading in one.windows},
        }
    )


def _by(tokens: Any, column: str, values: Any, reading: str) -> list[Share]:
    return [share(tokens, tokens[reading], tokens[column] == value) for value in values]


def anatomy_labels(told: Told, panels: Sequence[Panel]) -> Figure:
    """A row a model and task: at the left by tenths of the span, at the right by class.

    Artists have "tenths-" and "classes-<model>/<task>/<reading>" as gid.
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
            "Share of tokens that were needed, over all labelled traces, those included whose answer no "
            "occlusion changed. Lines: 95 % intervals (Wilson) that count traces and not tokens; each by "
            "itself, not corrected.",
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
        tokens = [one.of for one in next(iter(one.classes.values())).values()]
        beside.set_xlim(-0.6, columns - 0.4)
        ticks = [f"{name}\n{count:,}" for name, count in zip(names, tokens, strict=True)]
        beside.set_xticks(range(len(names)), ticks, size=6.8)
        beside.set_xlabel("class of the token, and how many")
        for axes in (left, beside):
            axes.set_ylim(-2, 102)
            axes.set_yticks(range(0, 101, 25))
            axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.6)
            axes.spines[["right", "top"]].set_visible(False)
    return paper.figure


def _heading(paper: page.Sheet, up: float, one: Panel) -> None:
    """Model and task, and below what the two colours are."""
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
