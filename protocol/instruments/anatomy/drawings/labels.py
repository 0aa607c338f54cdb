"""Plot of where the needed tokens are: their share by tenth of the span and by token class, with intervals."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from figures.drawing import page
from figures.drawing.page import INK, MARGIN
from figures.drawing.shares import Share, mean_share
from protocol.instruments.anatomy.analysis import trace_statistics
from protocol.instruments.anatomy.analysis.agreement import select_varying
from protocol.instruments.anatomy.analysis.exploratory import TENTHS, needed_shares, tenths_of_span
from protocol.instruments.anatomy.analysis.token_classes import CLASSES, classes_in_span
from protocol.instruments.anatomy.analysis.traces import Anatomy
from protocol.instruments.anatomy.drawings.trace_report import AnatomyReport, ordered_readings, status_lines

LEFT, TOP, BELOW, HIGH, APART = 0.62, 0.5, 0.62, 1.7, 0.1  # inches
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


def label_panels(anatomy: Anatomy) -> list[Panel]:
    """Return a panel for each model and task with a labelled trace, in registered order.

    Traces whose answer no occlusion changed are included: none of their tokens was needed. Shares are means
    over traces, as in `protocol.instruments.anatomy.analysis.exploratory.label_shares`.
    """
    panels = []
    for model, task in anatomy.pairs:
        traces = [item for item in anatomy.traces_of((model, task)) if item.windows]
        if not traces:
            continue
        token_names = Counter(name for item in traces for name in classes_in_span(item))
        present = [name for name in CLASSES if name in token_names]
        clusters = [item.cluster for item in traces]
        tenths: dict[str, list[Share]] = {}
        classes: dict[str, dict[str, Share]] = {}
        for reading in ordered_readings(anatomy):
            by_tenth = needed_shares(traces, reading, tenths_of_span, range(TENTHS))
            by_class = needed_shares(traces, reading, classes_in_span, present)
            tenths[reading] = _mean_shares(by_tenth, clusters)
            classes[reading] = dict(zip(present, _mean_shares(by_class, clusters), strict=True))
        varying = {reading: len(select_varying(traces, reading)) for reading in tenths}
        tokens = {name: token_names[name] for name in present}
        panels.append(Panel(model, task, len(traces), varying, tenths, classes, tokens))
    return panels


def _mean_shares(table: NDArray[np.float64], clusters: Sequence[str]) -> list[Share]:
    return [mean_share(column) for column in trace_statistics.aggregate_units(table, clusters).T]


def anatomy_labels(study: AnatomyReport, panels: Sequence[Panel]) -> Figure:
    """Draw a row for each model and task: by tenths of the span at the left, by class at the right.

    The gids are "tenths-" and "classes-<model>/<task>/<reading>".
    """
    columns = max(len(next(iter(panel.classes.values()))) for panel in panels)
    right = MARGIN + LEFT + WIDE + APART + LEFT
    width = max(6.4, right + max(CLASS * columns, 1.5) + MARGIN)
    block = TOP + HIGH + BELOW
    paper = page.new_sheet(
        width,
        block * len(panels) + 0.1,
        "Where the needed tokens lie (exploratory)",
        status_lines(study),
        [
            (
                "Share of tokens that were needed, mean over labelled traces, including traces in which no "
                "occlusion changed the answer. Lines: 95 % intervals (Wilson) of these means over traces, "
                "not corrected."
            ),
            (
                "Tokens at the ends of a span lie in only one window, the others in several, so fewer tokens are "
                "labelled needed at the ends. A label covers a whole window, so a class of tokens shares the labels "
                "of its neighbours."
            ),
        ],
    )
    for number, panel in enumerate(panels):
        up = 0.1 + block * (len(panels) - 1 - number) + BELOW
        left = paper.add_axes(MARGIN + LEFT, up, WIDE, HIGH)
        right_axes = paper.add_axes(right, up, max(CLASS * columns, 1.5), HIGH)
        _draw_heading(paper, up, panel)
        name = f"{panel.model}/{panel.task}"
        for order, reading in enumerate(panel.tenths):
            aside = ASIDE * (order - (len(panel.tenths) - 1) / 2)
            _draw_shares(left, panel.tenths[reading], aside, order, f"tenths-{name}/{reading}")
            shares = list(panel.classes[reading].values())
            _draw_shares(right_axes, shares, aside, order, f"classes-{name}/{reading}")
        left.set_xlim(-0.6, TENTHS - 0.4)
        left.set_xticks(range(TENTHS), [f"{tenth + 1}" for tenth in range(TENTHS)])
        left.set_xlabel("tenth of the span, from its beginning")
        left.set_ylabel("tokens needed, %")
        names = list(next(iter(panel.classes.values())))
        right_axes.set_xlim(-0.6, columns - 0.4)
        ticks = [f"{name}\n{count:,}" for name, count in panel.tokens.items()]
        right_axes.set_xticks(range(len(names)), ticks, size=6.8)
        right_axes.set_xlabel("class of the token, and number of tokens")
        for axes in (left, right_axes):
            axes.set_ylim(-2, 102)
            axes.set_yticks(range(0, 101, 25))
            axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.6)
            axes.spines[["right", "top"]].set_visible(False)
    return paper.figure


def _draw_heading(paper: page.Sheet, up: float, panel: Panel) -> None:
    """Draw model and task, and below them the legend of the two colours."""
    size = paper.width, paper.height
    x, y = MARGIN + LEFT, paper.floor + up + HIGH
    title = f"{panel.model} · {panel.task}"
    paper.figure.text(x / size[0], (y + 0.36) / size[1], title, weight="bold", color=INK, va="center")
    for order, (reading, varying) in enumerate(panel.varying.items()):
        style: dict[str, Any] = {"color": COLOURS[order], "va": "center", "size": 7.5}
        style["weight"] = "bold" if order == 0 else "normal"
        text = f"{'● ' if order == 0 else '□ '}{reading}: labels vary in {varying} of {panel.traces} traces"
        paper.figure.text(x / size[0], (y + 0.17) / size[1], text, **style)
        x += page.text_width(text, 7.5, "bold") + 0.3


def _draw_shares(axes: Any, shares: Sequence[Share], aside: float, order: int, gid: str) -> None:
    x = np.arange(len(shares)) + aside
    colour = COLOURS[order]
    lows, highs = ([100 * share[end] for share in shares] for end in (1, 2))
    axes.vlines(x, lows, highs, color=colour, linewidth=1.1 if order == 0 else 0.8)
    style = {"marker": "os"[order], "markersize": 4, "linestyle": "", "color": colour}
    style["markerfacecolor"] = colour if order == 0 else page.FACE
    axes.plot(x, [100 * share.share for share in shares], gid=gid, **style)
