"""The forest plot of a large family on one page: pairs of arms and budgets in rows and columns."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import blended_transform_factory

from figures.canvas import numbers, page
from figures.canvas.contrasts import counts, mark, span, untested
from figures.canvas.page import BAND, INK, MARGIN, PALE, WIDEST, inches
from figures.plots.forest_parts import MINUS, Part, dashed, heading, marks, title

__all__ = ["drawn", "wanted"]

LONG = 24  # contrasts of a part, beyond which one line for each does not fit on a page
ROW = 0.2  # inches
NAME, HEAD, TICKS, APART, AXIS = 0.3, 0.34, 0.26, 0.14, 0.3  # inches: above and below a block of a part
WIDE, LEAST, GAP = 2.6, 0.6, 0.3  # inches: of a plot at most and at least, and between columns
SMALL = 0.8  # relative to the markers of `forest`
POINTS, INTERVAL = "Δ", "95 % interval"
CELLS = {POINTS: 0.5, INTERVAL: 1.3}  # inches


class Block(NamedTuple):
    """The contrasts of one model and task of a part, by row and column."""

    part: Part
    place: str
    rows: list[str]
    columns: list[str]
    cells: Mapping[tuple[str, str], Mapping[str, Any]]


class Layout(NamedTuple):
    """Inches of the labels and of a plot, and the columns of numbers next to a plot."""

    label: float
    plot: float
    printed: tuple[str, ...]

    @property
    def column(self) -> float:
        return self.plot + sum(CELLS[name] for name in self.printed) + GAP


def wanted(shown: Sequence[Part]) -> bool:
    """Return whether there are enough contrasts for panels, and the columns fit on a page."""
    return max(len(part.contrasts) for part in shown) > LONG and _layout(_blocks(shown)).plot >= LEAST


def drawn(judged: Mapping[str, Any], shown: Sequence[Part]) -> Figure:
    """Draw a block for each model and task of a part; its columns are pairs or budgets, whichever are fewer.

    The difference and, if there is room, its interval are printed next to each mark; p, n and memory are left
    to the tables. The gids are those of the forest.
    """
    contrasts = [one for part in shown for one in part.contrasts]
    blocks = _blocks(shown)
    layout = _layout(blocks)
    width = max(2 * MARGIN + layout.label + layout.column * max(len(one.columns) for one in blocks), 7.0)
    body = AXIS + NAME * sum(bool(part.name) for part in shown)
    body += sum(HEAD + ROW * len(block.rows) + TICKS + APART for block in blocks)
    notes = [*marks(judged, shown), *_notes(contrasts)]
    sheet = page.sheet(width, body, title(judged), heading(judged), notes)
    limits, top, named = span(contrasts), body, ""
    for block in blocks:
        ink, weight = (PALE, "normal") if block.part.outside else (INK, "bold")
        if block.part.name != named:
            named = block.part.name
            up = (sheet.floor + top - 0.2) / sheet.height
            sheet.figure.text(MARGIN / width, up, named, size=9.5, color=ink, weight=weight)
            top -= NAME
        top -= HEAD + ROW * len(block.rows)
        for number, column in enumerate(block.columns):
            left = MARGIN + layout.label + number * layout.column
            axes = sheet.axes(left, top, layout.plot, ROW * len(block.rows))
            axes.set_xlim(*limits)
            _axes(axes, layout.plot, block, judged)
            if number == 0:
                _names(axes, block, width)
            _column(axes, layout, block, column)
        top -= TICKS + APART
    said = "accuracy difference, percentage points: right of 0 the first arm is better, left of it the second"
    sheet.figure.text(MARGIN / width, (sheet.floor + 0.12) / sheet.height, said, color=INK)
    return sheet.figure


def _blocks(shown: Sequence[Part]) -> list[Block]:
    found = []
    for part in shown:
        arms = list(dict.fromkeys(map(_pair, part.contrasts)))
        budgets = list(dict.fromkeys(map(_budget, part.contrasts)))
        across = _budget if len(budgets) <= len(arms) else _pair
        down = _pair if across is _budget else _budget
        places = dict.fromkeys((one["model"], one["task"]) for one in part.contrasts)
        for place in places:
            own = [one for one in part.contrasts if (one["model"], one["task"]) == place]
            cells = {(down(one), across(one)): one for one in own}
            rows, columns = (list(dict.fromkeys(map(side, own))) for side in (down, across))
            found.append(Block(part, " · ".join(place), rows, columns, cells))
    return found


def _pair(one: Mapping[str, Any]) -> str:
    return f"{one['subject']} {MINUS} {one['against']}" + ("" if one["tested"] else " (auxiliary)")


def _budget(one: Mapping[str, Any]) -> str:
    return f"budget {one['budget']}"


def _layout(blocks: Sequence[Block]) -> Layout:
    """Return the layout, with intervals if plots stay wide enough next to them."""
    label = max(1.2, *(inches(name) for block in blocks for name in block.rows))
    label = max(label, *(inches(block.place, weight="bold") for block in blocks)) + 0.2
    columns = max(len(block.columns) for block in blocks)
    heads = max(inches(name) for block in blocks for name in block.columns)
    room = (WIDEST - 2 * MARGIN - label) / columns - GAP
    for printed in ((POINTS, INTERVAL), (POINTS,)):
        plot = min(WIDE, room - sum(CELLS[name] for name in printed))
        if plot >= max(2 * LEAST, heads):
            break
    return Layout(label, plot, printed)


def _names(axes: Any, block: Block, width: float) -> None:
    """Draw the names of the rows next to the first column, a band behind every second row, and the model and
    task.
    """
    across = blended_transform_factory(axes.figure.dpi_scale_trans, axes.transData)
    ink, weight = (PALE, "normal") if block.part.outside else (INK, "bold")
    band = {"transform": across, "color": BAND, "linewidth": 0, "zorder": -2, "clip_on": False}
    for y, name in enumerate(block.rows):
        axes.text(MARGIN, y, name, transform=across, va="center", color=ink)
        if y % 2 == 0:
            axes.fill_betweenx((y - 0.5, y + 0.5), MARGIN - 0.1, width - MARGIN + 0.1, **band)
    axes.text(MARGIN, -0.62, block.place, transform=across, va="bottom", color=ink, weight=weight)


def _axes(axes: Any, plot: float, block: Block, judged: Mapping[str, Any]) -> None:
    ends = len(block.rows) - 0.5, -0.5
    axes.set_ylim(*ends)
    axes.set_yticks([])
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.patch.set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=max(2, int(plot / 0.42)), steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(lambda x, _: numbers.points(str(x / 100)).removesuffix(".0"))
    axes.plot((0, 0), ends, color=PALE if block.part.outside else INK, linewidth=0.9, zorder=1, gid="zero")
    if not block.part.outside:
        dashed(axes, ends, judged)


def _column(axes: Any, layout: Layout, block: Block, column: str) -> None:
    outside = block.part.outside
    beside = blended_transform_factory(axes.transAxes, axes.transData)
    edges = itertools.accumulate(CELLS[name] for name in layout.printed)
    right = {name: 1 + edge / layout.plot for name, edge in zip(layout.printed, edges, strict=True)}
    last = right[layout.printed[-1]]
    style = {"transform": beside, "color": PALE, "va": "bottom"}
    axes.text(0, -0.62, column, **style)
    for name, at in right.items():
        axes.text(at, -0.62, name, ha="right", **style)
    for y, row in enumerate(block.rows):
        one = block.cells.get((row, column))
        if one is None:
            continue
        how = {"transform": beside, "va": "center", "ha": "right", "color": PALE if outside else INK}
        if one["difference"] is None:
            axes.text(last, y, "none", **how)
            continue
        if one["tested"]:
            mark(axes, y, one["mark"], one, outside=outside, size=SMALL)
        else:
            untested(axes, y, one["mark"], one)
        texts = {POINTS: numbers.points(one["difference"])}
        texts[INTERVAL] = numbers.interval(one["low"], one["high"])
        weight = "bold" if counts(one) and not outside else "normal"
        for name, at in right.items():
            axes.text(at, y, texts[name], weight=weight, **how)
        if not one["matched"]:
            axes.text(last + 0.03 / layout.plot, y, "†", **how | {"ha": "left"})


def _notes(contrasts: Sequence[Mapping[str, Any]]) -> list[str]:
    sizes = sorted({one["n"] for one in contrasts})
    problems = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else f"{sizes[0]}"
    said = f"Δ: difference in percentage points, of {problems} problems."
    if any(one["difference"] is None for one in contrasts):
        said += " none: not estimated."
    return [f"{said} p and memory: in the tables of the report.", *numbers.scores(contrasts)]
