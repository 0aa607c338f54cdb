"""Rows of a drawing: groups with a heading each, a plot in the middle, columns of numbers to its right."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.transforms import blended_transform_factory

from figures.canvas.page import BAND, FACE, INK, MARGIN, PALE, WIDEST, Sheet, inches, sheet

__all__ = [
    "HEAD",
    "ROW",
    "Frame",
    "Group",
    "Row",
    "Table",
    "entries",
    "frame",
    "grouped",
    "groups",
    "limits",
    "panel",
    "place",
    "point",
    "table",
]

ROW = 0.235  # inches
INDENT, SPARE = 0.15, 0.3  # before the label of an entry, after a heading
HEAD = 0.3  # above the rows
LEAST = 2.4  # of a plot


class Row(NamedTuple):
    """A line of the drawing: the heading of a group, or an entry of it."""

    label: str
    entry: Mapping[str, Any] | None


class Group(NamedTuple):
    """The row of its heading, the row after its last, and its model, task and budget."""

    first: int
    last: int
    place: tuple[str, str, str]


class Frame(NamedTuple):
    """The left edge and width of the plot, the right edges of the columns, and the width of the page."""

    left: float
    plot: float
    columns: Mapping[str, float]
    width: float


class Table(NamedTuple):
    """The page of some rows. Row y of `axes` has this index; `across` maps inches by rows."""

    sheet: Sheet
    axes: Any
    across: Any
    columns: Mapping[str, float]  # right edges

    def cells(self, y: float, texts: Mapping[str, str], **how: Any) -> None:
        """Print each text in its column."""
        for head, text in texts.items():
            style = {"va": "center", "ha": "right", "color": INK} | how
            self.axes.text(self.columns[head], y, text, transform=self.across, **style)

    def dagger(self, y: float, head: str, ink: str = INK) -> None:
        """Print a dagger after the cell of this column: memory was not matched."""
        self.axes.text(self.columns[head] + 0.03, y, "†", transform=self.across, va="center", color=ink)


def place(one: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return model, task and budget of a judged contrast or arm."""
    return one["model"], one["task"], one["budget"]


def limits(ends: Sequence[float]) -> tuple[float, float]:
    """Return axis limits for these percentage points, and for 5 pp on both sides of zero."""
    low, high = min([-5.0, *ends]), max([5.0, *ends])
    return low - 0.06 * (high - low), high + 0.06 * (high - low)


def grouped(entries: Sequence[Mapping[str, Any]], label: Callable[[Mapping[str, Any]], str]) -> list[Row]:
    """Return rows with a heading before each run of entries of one model, task and budget."""
    rows = []
    for (model, task, budget), group in itertools.groupby(entries, place):
        rows.append(Row(f"{model} · {task} · budget {budget}", None))
        rows += [Row(label(one), one) for one in group]
    return rows


def groups(rows: Sequence[Row]) -> list[Group]:
    starts = [y for y, row in enumerate(rows) if row.entry is None] + [len(rows)]
    firsts = (row.entry for row, heading in zip(rows[1:], rows, strict=False) if heading.entry is None)
    return [
        Group(first, last, place(one))
        for (first, last), one in zip(itertools.pairwise(starts), firsts, strict=True)
        if one is not None
    ]


def entries(rows: Sequence[Row]) -> list[tuple[int, int, Mapping[str, Any]]]:
    """Return for every row without a heading: its row, its index among these, and its entry."""
    shown = [(y, row.entry) for y, row in enumerate(rows) if row.entry is not None]
    return [(y, number, entry) for number, (y, entry) in enumerate(shown)]


def point(axes: Any, x: float, y: float, marker: str, *, filled: bool, ink: str = INK, **how: Any) -> None:
    """Draw an open or filled marker with an edge of this ink."""
    axes.plot(x, y, marker, markerfacecolor=ink if filled else FACE, markeredgecolor=ink, **how)


def frame(rows: Sequence[Row], columns: Mapping[str, float], plot: float, spare: float = SPARE) -> Frame:
    """Return a layout as wide as the longest label and heading. columns: the width of each; plot: its width,
    reduced if the page would be wider than WIDEST, and at least LEAST. spare: space after a heading.
    """
    entries = max([1.2, *(inches(row.label) + INDENT for row in rows if row.entry is not None)])
    beside = 2 * MARGIN + 0.3 + sum(columns.values())
    plot = max(LEAST, min(plot, WIDEST - beside - entries))
    headings = [inches(row.label, weight="bold") + spare - plot for row in rows if row.entry is None]
    left = MARGIN + max([entries, *headings]) + 0.2
    edges = itertools.accumulate(columns.values(), initial=left + plot + 0.1)
    right = dict(zip(columns, list(edges)[1:], strict=True))
    return Frame(left, plot, right, max(right.values()) + MARGIN)


def panel(sheet: Sheet, frame: Frame, rows: Sequence[Row], bottom: float, *, outside: bool = False) -> Table:
    """Draw `rows` with their labels and an empty plot, `bottom` above the floor of the page, with column
    heads. Every second group has a pale band. outside: the decision rule leaves them out, so nothing is bold.
    """
    axes = sheet.axes(frame.left, bottom, frame.plot, ROW * len(rows))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks([])
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.patch.set_visible(False)
    across = blended_transform_factory(sheet.figure.dpi_scale_trans, axes.transData)
    ends = MARGIN - 0.1, frame.width - MARGIN + 0.1
    pale = {"transform": across, "color": BAND, "linewidth": 0, "zorder": -2, "clip_on": False}
    for first, last, _ in groups(rows)[::2]:
        axes.fill_betweenx((first - 0.5, last - 0.5), *ends, **pale)
    for y, row in enumerate(rows):
        heading = row.entry is None
        edge, weight = (MARGIN, "bold") if heading and not outside else (MARGIN, "normal")
        edge += 0 if heading else INDENT
        axes.text(
            edge, y, row.label, transform=across, va="center", weight=weight, color=PALE if outside else INK
        )
    drawn = Table(sheet, axes, across, frame.columns)
    drawn.cells(-0.75, {head: head for head in frame.columns}, va="bottom", color=PALE)
    return drawn


def table(
    rows: Sequence[Row],
    columns: Mapping[str, float],
    title: str,
    said: Sequence[str],
    notes: Sequence[str],
    plot: float = 4.0,
    below: float = 0.72,
    spare: float = SPARE,
) -> Table:
    """Return the page of `rows` alone. below: the height of the ticks of the plot and their label, in inches.
    spare: as in `layout_frame`.
    """
    framed = frame(rows, columns, plot, spare)
    page = sheet(framed.width, HEAD + ROW * len(rows) + below, title, said, notes)
    return panel(page, framed, rows, below)
