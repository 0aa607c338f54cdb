"""The forest plot for a narrow screen: one column, the label of each contrast above its line."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.transforms import blended_transform_factory

from figures.drawing import page
from figures.drawing.contrasts import INTERVAL, axis_limits, cell_texts, draw_marks, set_ticks
from figures.drawing.page import BAND, INK, MARGIN, PALE
from figures.drawing.table_rows import strip_axes
from figures.plots import forest_panels
from figures.plots.forest_parts import (
    Part,
    draw_margin,
    equal_memory_text,
    list_contrasts,
    memory_notes,
    new_forest_sheet,
    part_rows,
    side_names,
    split_parts,
)

WIDTH = 358 / 96  # inches: the CSS pixels that a screen of 390 leaves for a plot
PLOT = 1.6  # inches; the difference and its interval are printed to the right
TEXT, SMALL, LINE, SPACE = 0.17, 0.15, 0.2, 0.06  # inches: a text line, a note, a mark, a gap
AXIS, MEANS = 0.34, 0.4  # inches: the ticks of a part, and their caption
ROOM = WIDTH - 2 * MARGIN


class Entry(NamedTuple):
    """A heading, or a contrast with the text above and below its line."""

    above: list[str]
    contrast: Mapping[str, Any] | None
    below: list[str]

    @property
    def height(self) -> float:
        """Inches."""
        line_height = 0.0 if self.contrast is None else LINE
        return self.padding + TEXT * len(self.above) + line_height + SMALL * len(self.below) + SPACE

    @property
    def padding(self) -> float:
        """Inches above a heading."""
        return 2 * SPACE if self.contrast is None else 0.0


def forest_narrow(judged: Mapping[str, Any]) -> Figure:
    """Draw the contrasts, numbers and gids of `forest` in 358 CSS pixels, with no text below 10 pixels."""
    parts = split_parts(judged)
    contrasts = list_contrasts(parts)
    brief = forest_panels.should_use_panels(parts)
    entries_by_part = [_part_entries(part, brief=brief) for part in parts]
    heights = [sum(item.height for item in entries) for entries in entries_by_part]
    body = sum(heights) + AXIS * len(parts) + MEANS
    notes = [] if brief else memory_notes(contrasts, *side_names(judged))
    sheet = new_forest_sheet(judged, parts, WIDTH, body, notes)
    top = body
    for part, entries, height in zip(parts, entries_by_part, heights, strict=True):
        top -= height
        axes = sheet.add_axes(MARGIN, top, PLOT, height)
        axes.set(xlim=axis_limits(contrasts), ylim=(height, 0))
        strip_axes(axes)
        set_ticks(axes, 4, [1, 2, 2.5, 5, 10])
        _draw_part(axes, part, entries, judged)
        top -= AXIS
    _, second = side_names(judged)
    caption = f"percentage points; left of 0 the {second} is better"
    for line, text in enumerate(["difference in accuracy,", caption]):
        up = (sheet.floor + MEANS - 0.12 - TEXT * line) / sheet.height
        sheet.figure.text(MARGIN / WIDTH, up, text, va="center", color=INK)
    return sheet.figure


def _part_entries(part: Part, *, brief: bool) -> list[Entry]:
    """Return the entries of a part. brief: without p, n and memory, as in the panels of a large forest."""
    entries = [Entry(page.wrap_text(part.name, ROOM, 8.5, "bold"), None, [])] if part.name else []
    for row in part_rows(part):
        if row.entry is None:
            entries.append(Entry(page.wrap_text(row.label, ROOM, 8.5, "bold"), None, []))
            continue
        below = [] if brief or row.entry["difference"] is None else page.wrap_text(_detail_text(row.entry), ROOM, 7.5)
        entries.append(Entry(page.wrap_text(row.label, ROOM), row.entry, below))
    return entries


def _detail_text(contrast: Mapping[str, Any]) -> str:
    texts = cell_texts(contrast)
    items = [f"p {texts['p']}", f"n {texts['n']}", f"cache {texts['cache']}" + ("" if contrast["matched"] else " †")]
    if equal_text := equal_memory_text(contrast):
        items.append(f"at equal memory {equal_text}")
    return " · ".join(items).replace("p <", "p < ")


def _draw_part(axes: Any, part: Part, entries: Sequence[Entry], judged: Mapping[str, Any]) -> None:
    across = blended_transform_factory(axes.figure.dpi_scale_trans, axes.transData)
    top, groups = 0.0, list[tuple[float, float]]()
    for entry in entries:
        style = {"transform": across, "va": "center", "color": part.ink}
        for line, text in enumerate(entry.above):
            up = top + entry.padding + TEXT * (line + 0.5)
            axes.text(MARGIN, up, text, weight=part.style["weight"] if entry.contrast is None else "normal", **style)
        y = top + TEXT * len(entry.above) + LINE / 2
        for line, text in enumerate(entry.below):
            small = style | {"size": 7.5, "color": PALE}
            axes.text(MARGIN, y + LINE / 2 + SMALL * (line + 0.5), text, **small)
        if entry.contrast is not None:
            groups.append((y - LINE / 2, y + LINE / 2))
            _draw_line(axes, y, part, entry.contrast, across)
        top += entry.height
    band = {"transform": across, "color": BAND, "linewidth": 0, "zorder": -2}
    for low, high in groups:
        axes.fill_betweenx((low, high), MARGIN, MARGIN + PLOT, **band)
        axes.plot((0, 0), (low, high), color=part.ink, linewidth=0.9, zorder=1, gid="zero")
        if not part.outside:
            draw_margin(axes, (low, high), judged)


def _draw_line(axes: Any, y: float, part: Part, contrast: Mapping[str, Any], across: Any) -> None:
    style = {"transform": across, "va": "center", "ha": "right", "color": part.ink}
    right = WIDTH - MARGIN
    if contrast["difference"] is None:
        axes.text(right, y, "not estimated", **style)
        return
    draw_marks(axes, y, contrast, outside=part.outside, size=0.9)
    texts = cell_texts(contrast)
    dagger = "" if contrast["matched"] else " †"
    axes.text(right, y, f"{texts['Δ (pp)']} {texts[INTERVAL]}{dagger}", weight=part.weight(contrast), **style)
