"""Rows of a drawing: groups with a heading each, a plot in the middle, columns of numbers to its right."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.transforms import blended_transform_factory

from figures.drawing.page import BAND, FACE, INK, MARGIN, PALE, WIDEST, Sheet, new_sheet, text_width

ROW = 0.235  # inches
INDENT, SPARE = 0.15, 0.3  # before the label of an entry, after a heading
HEAD = 0.3  # above the rows
LEAST = 2.4  # of a plot


class TableRow(NamedTuple):
    """A line of the drawing: the heading of a group, or an entry of it."""

    label: str
    entry: Mapping[str, Any] | None


class RowGroup(NamedTuple):
    """The row of its heading, the row after its last, and its model, task and budget."""

    first: int
    last: int
    cell: tuple[str, str, str]


class Frame(NamedTuple):
    """The left edge and width of the plot, the right edges of the columns, and the width of the page."""

    left: float
    plot: float
    columns: Mapping[str, float]
    width: float


class RowTable(NamedTuple):
    """The page of some rows. Row y of `axes` has this index; `across` maps inches by rows."""

    sheet: Sheet
    axes: Any
    across: Any
    columns: Mapping[str, float]  # right edges

    def print_cells(self, y: float, texts: Mapping[str, str], **how: Any) -> None:
        """Print each text in its column."""
        for head, text in texts.items():
            style = {"va": "center", "ha": "right", "color": INK} | how
            self.axes.text(self.columns[head], y, text, transform=self.across, **style)

    def mark_unmatched(self, y: float, head: str, ink: str = INK) -> None:
        """Print a dagger after the cell of this column: memory was not matched."""
        self.axes.text(self.columns[head] + 0.03, y, "†", transform=self.across, va="center", color=ink)


def cell_of(contrast: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return model, task and budget of a judged contrast or arm."""
    return contrast["model"], contrast["task"], contrast["budget"]


def limits(ends: Sequence[float]) -> tuple[float, float]:
    """Return axis limits for these percentage points, and for 5 pp on both sides of zero."""
    low, high = min([-5.0, *ends]), max([5.0, *ends])
    return low - 0.06 * (high - low), high + 0.06 * (high - low)


def group_entries(entries: Sequence[Mapping[str, Any]], label: Callable[[Mapping[str, Any]], str]) -> list[TableRow]:
    """Return rows with a heading before each run of entries of one model, task and budget."""
    rows = []
    for (model, task, budget), group in itertools.groupby(entries, cell_of):
        rows.append(TableRow(f"{model} · {task} · budget {budget}", None))
        rows += [TableRow(label(contrast), contrast) for contrast in group]
    return rows


def row_groups(rows: Sequence[TableRow]) -> list[RowGroup]:
    starts = [y for y, row in enumerate(rows) if row.entry is None] + [len(rows)]
    firsts = (row.entry for row, heading in zip(rows[1:], rows, strict=False) if heading.entry is None)
    return [
        RowGroup(first, last, cell_of(entry))
        for (first, last), entry in zip(itertools.pairwise(starts), firsts, strict=True)
        if entry is not None
    ]


def numbered_entries(rows: Sequence[TableRow]) -> list[tuple[int, int, Mapping[str, Any]]]:
    """Return for every row without a heading: its row, its index among these, and its entry."""
    entry_rows = [(y, row.entry) for y, row in enumerate(rows) if row.entry is not None]
    return [(y, number, entry) for number, (y, entry) in enumerate(entry_rows)]


def draw_point(axes: Any, x: float, y: float, marker: str, *, filled: bool, ink: str = INK, **how: Any) -> None:
    """Draw an open or filled marker with an edge of this ink."""
    axes.plot(x, y, marker, markerfacecolor=ink if filled else FACE, markeredgecolor=ink, **how)


def layout_frame(rows: Sequence[TableRow], columns: Mapping[str, float], plot: float, spare: float = SPARE) -> Frame:
    """Return a layout as wide as the longest label and heading. columns: the width of each; plot: its width,
    reduced if the page would be wider than WIDEST, and at least LEAST. spare: space after a heading.
    """
    label_width = max([1.2, *(text_width(row.label) + INDENT for row in rows if row.entry is not None)])
    fixed_width = 2 * MARGIN + 0.3 + sum(columns.values())
    plot = max(LEAST, min(plot, WIDEST - fixed_width - label_width))
    headings = [text_width(row.label, weight="bold") + spare - plot for row in rows if row.entry is None]
    left = MARGIN + max([label_width, *headings]) + 0.2
    edges = itertools.accumulate(columns.values(), initial=left + plot + 0.1)
    right = dict(zip(columns, list(edges)[1:], strict=True))
    return Frame(left, plot, right, max(right.values()) + MARGIN)


def strip_axes(axes: Any) -> None:
    """Hide all of the axes but the x-axis."""
    axes.set_yticks([])
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.patch.set_visible(False)


def draw_rows(
    sheet: Sheet, frame: Frame, rows: Sequence[TableRow], bottom: float, *, outside: bool = False
) -> RowTable:
    """Draw `rows` with their labels and an empty plot, `bottom` above the floor of the page, with column
    heads. Every second group has a pale band. outside: the decision rule leaves them out, so nothing is bold.
    """
    axes = sheet.add_axes(frame.left, bottom, frame.plot, ROW * len(rows))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    strip_axes(axes)
    across = blended_transform_factory(sheet.figure.dpi_scale_trans, axes.transData)
    ends = MARGIN - 0.1, frame.width - MARGIN + 0.1
    pale = {"transform": across, "color": BAND, "linewidth": 0, "zorder": -2, "clip_on": False}
    for first, last, _ in row_groups(rows)[::2]:
        axes.fill_betweenx((first - 0.5, last - 0.5), *ends, **pale)
    for y, row in enumerate(rows):
        heading = row.entry is None
        edge, weight = (MARGIN, "bold") if heading and not outside else (MARGIN, "normal")
        edge += 0 if heading else INDENT
        axes.text(edge, y, row.label, transform=across, va="center", weight=weight, color=PALE if outside else INK)
    drawn = RowTable(sheet, axes, across, frame.columns)
    drawn.print_cells(-0.75, {head: head for head in frame.columns}, va="bottom", color=PALE)
    return drawn


def draw_table(
    rows: Sequence[TableRow],
    columns: Mapping[str, float],
    title: str,
    subtitles: Sequence[str],
    notes: Sequence[str],
    plot: float = 4.0,
    below: float = 0.72,
    spare: float = SPARE,
) -> RowTable:
    """Return the page of `rows` alone. below: the height of the ticks of the plot and their label, in inches.
    spare: as in `layout_frame`.
    """
    layout = layout_frame(rows, columns, plot, spare)
    page = new_sheet(layout.width, HEAD + ROW * len(rows) + below, title, subtitles, notes)
    return draw_rows(page, layout, rows, below)
