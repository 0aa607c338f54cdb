"""The forest plot of a large family on one page: pairs of arms and budgets in rows and columns."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.transforms import blended_transform_factory

from figures.drawing import formatting
from figures.drawing.contrasts import INTERVAL, axis_limits, cell_texts, draw_marks, set_ticks
from figures.drawing.page import BAND, INK, MARGIN, PALE, WIDEST, text_width
from figures.drawing.table_rows import strip_axes
from figures.plots.forest_parts import Part, draw_margin, list_contrasts, new_forest_sheet, pair_label

LONG = 24  # contrasts of a part, beyond which one line for each does not fit on a page
ROW = 0.2  # inches
NAME, HEAD, TICKS, APART, AXIS = 0.3, 0.34, 0.26, 0.14, 0.3  # inches: above and below a block of a part
WIDE, LEAST, GAP = 2.6, 0.6, 0.3  # inches: of a plot at most and at least, and between columns
SMALL = 0.8  # relative to the markers of `forest`
POINTS = "Δ"
CELLS = {POINTS: 0.5, INTERVAL: 1.3}  # inches


class Block(NamedTuple):
    """The contrasts of one model and task of a part, by row and column."""

    part: Part
    label: str
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


def should_use_panels(parts: Sequence[Part]) -> bool:
    """Return whether there are enough contrasts for panels, and the columns fit on a page."""
    return max(len(part.contrasts) for part in parts) > LONG and _plan_layout(_list_blocks(parts)).plot >= LEAST


def draw_panels(judged: Mapping[str, Any], parts: Sequence[Part]) -> Figure:
    """Draw a block for each model and task of a part; its columns are pairs or budgets, whichever are fewer.

    The difference and, if there is room, its interval are printed next to each mark; p, n and memory are left
    to the tables. The gids are those of the forest.
    """
    contrasts = list_contrasts(parts)
    blocks = _list_blocks(parts)
    layout = _plan_layout(blocks)
    width = max(2 * MARGIN + layout.label + layout.column * max(len(item.columns) for item in blocks), 7.0)
    body = AXIS + NAME * sum(bool(part.name) for part in parts)
    body += sum(HEAD + ROW * len(block.rows) + TICKS + APART for block in blocks)
    sheet = new_forest_sheet(judged, parts, width, body, _number_notes(contrasts))
    limits, top, current_name = axis_limits(contrasts), body, ""
    for block in blocks:
        if block.part.name != current_name:
            current_name = block.part.name
            sheet.add_text(MARGIN, top - 0.2, current_name, size=9.5, **block.part.style)
            top -= NAME
        top -= HEAD + ROW * len(block.rows)
        for number, column in enumerate(block.columns):
            left = MARGIN + layout.label + number * layout.column
            axes = sheet.add_axes(left, top, layout.plot, ROW * len(block.rows))
            axes.set_xlim(*limits)
            _style_axes(axes, layout.plot, block, judged)
            if number == 0:
                _draw_row_names(axes, block, width)
            _draw_column(axes, layout, block, column)
        top -= TICKS + APART
    caption = (
        "accuracy difference, percentage points: the first arm is better to the right of 0, the second to the left"
    )
    sheet.add_text(MARGIN, 0.12, caption, color=INK)
    return sheet.figure


def _list_blocks(parts: Sequence[Part]) -> list[Block]:
    blocks = []
    for part in parts:
        arms = list(dict.fromkeys(map(_pair_label, part.contrasts)))
        budgets = list(dict.fromkeys(map(_budget_label, part.contrasts)))
        across = _budget_label if len(budgets) <= len(arms) else _pair_label
        down = _pair_label if across is _budget_label else _budget_label
        settings = dict.fromkeys((contrast["model"], contrast["task"]) for contrast in part.contrasts)
        for setting in settings:
            setting_contrasts = [
                contrast for contrast in part.contrasts if (contrast["model"], contrast["task"]) == setting
            ]
            cells = {(down(contrast), across(contrast)): contrast for contrast in setting_contrasts}
            rows, columns = (list(dict.fromkeys(map(side, setting_contrasts))) for side in (down, across))
            blocks.append(Block(part, " · ".join(setting), rows, columns, cells))
    return blocks


def _pair_label(contrast: Mapping[str, Any]) -> str:
    return pair_label(contrast) + ("" if contrast["tested"] else " (auxiliary)")


def _budget_label(contrast: Mapping[str, Any]) -> str:
    return f"budget {contrast['budget']}"


def _plan_layout(blocks: Sequence[Block]) -> Layout:
    """Return the layout, with intervals if plots stay wide enough next to them."""
    label = max(1.2, *(text_width(name) for block in blocks for name in block.rows))
    label = max(label, *(text_width(block.label, weight="bold") for block in blocks)) + 0.2
    columns = max(len(block.columns) for block in blocks)
    heads = max(text_width(name) for block in blocks for name in block.columns)
    room = (WIDEST - 2 * MARGIN - label) / columns - GAP
    for printed in ((POINTS, INTERVAL), (POINTS,)):
        plot = min(WIDE, room - sum(CELLS[name] for name in printed))
        if plot >= max(2 * LEAST, heads):
            break
    return Layout(label, plot, printed)


def _draw_row_names(axes: Any, block: Block, width: float) -> None:
    """Draw the names of the rows next to the first column, a band behind every second row, and the model and task."""
    across = blended_transform_factory(axes.figure.dpi_scale_trans, axes.transData)
    band = {"transform": across, "color": BAND, "linewidth": 0, "zorder": -2, "clip_on": False}
    for y, name in enumerate(block.rows):
        axes.text(MARGIN, y, name, transform=across, va="center", color=block.part.ink)
        if y % 2 == 0:
            axes.fill_betweenx((y - 0.5, y + 0.5), MARGIN - 0.1, width - MARGIN + 0.1, **band)
    axes.text(MARGIN, -0.62, block.label, transform=across, va="bottom", **block.part.style)


def _style_axes(axes: Any, plot: float, block: Block, judged: Mapping[str, Any]) -> None:
    ends = len(block.rows) - 0.5, -0.5
    axes.set_ylim(*ends)
    strip_axes(axes)
    set_ticks(axes, max(2, int(plot / 0.42)), [1, 2, 5, 10])
    axes.plot((0, 0), ends, color=block.part.ink, linewidth=0.9, zorder=1, gid="zero")
    if not block.part.outside:
        draw_margin(axes, ends, judged)


def _draw_column(axes: Any, layout: Layout, block: Block, column: str) -> None:
    transform = blended_transform_factory(axes.transAxes, axes.transData)
    edges = itertools.accumulate(CELLS[name] for name in layout.printed)
    right = {name: 1 + edge / layout.plot for name, edge in zip(layout.printed, edges, strict=True)}
    last = right[layout.printed[-1]]
    style = {"transform": transform, "color": PALE, "va": "bottom"}
    axes.text(0, -0.62, column, **style)
    for name, position in right.items():
        heading = formatting.interval_heading(block.cells.values()) if name == INTERVAL else name
        axes.text(position, -0.62, heading, ha="right", **style)
    for y, row in enumerate(block.rows):
        contrast = block.cells.get((row, column))
        if contrast is None:
            continue
        text_style = {"transform": transform, "va": "center", "ha": "right", "color": block.part.ink}
        if contrast["difference"] is None:
            axes.text(last, y, "none", **text_style)
            continue
        draw_marks(axes, y, contrast, outside=block.part.outside, size=SMALL)
        printed = cell_texts(contrast)
        texts, weight = {POINTS: printed["Δ (pp)"], INTERVAL: printed[INTERVAL]}, block.part.weight(contrast)
        for name, position in right.items():
            axes.text(position, y, texts[name], weight=weight, **text_style)
        if not contrast["matched"]:
            axes.text(last + 0.03 / layout.plot, y, "†", **text_style | {"ha": "left"})


def _number_notes(contrasts: Sequence[Mapping[str, Any]]) -> list[str]:
    sizes = sorted({contrast["n"] for contrast in contrasts})
    problems = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else f"{sizes[0]}"
    text = f"Δ: difference in percentage points, over {problems} problems."
    if any(contrast["difference"] is None for contrast in contrasts):
        text += " none: not estimated."
    return [f"{text} For p and memory, see the tables of the report."]
