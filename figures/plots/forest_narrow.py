"""The forest plot for a narrow screen: one column, the label of each contrast above its line."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import blended_transform_factory

from analysis.rules import judged_numbers
from figures.drawing import formatting, page
from figures.drawing.contrasts import axis_limits, cell_texts, draw_contrast, draw_untested, is_significant
from figures.drawing.page import BAND, INK, MARGIN, PALE
from figures.plots import forest_panels
from figures.plots.forest_parts import (
    Part,
    draw_margin,
    equal_memory_text,
    forest_title,
    heading_lines,
    mark_notes,
    memory_notes,
    part_rows,
    side_names,
    split_parts,
)

__all__ = ["WIDTH", "forest_narrow"]

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
    contrasts = [item for part in parts for item in part.contrasts]
    brief = forest_panels.should_use_panels(parts)
    entries_by_part = [_part_entries(part, brief=brief) for part in parts]
    heights = [sum(item.height for item in entries) for entries in entries_by_part]
    body = sum(heights) + AXIS * len(parts) + MEANS
    notes = [*mark_notes(judged, parts), *([] if brief else memory_notes(contrasts, *side_names(judged)))]
    notes += formatting.score_notes(contrasts)
    sheet = page.new_sheet(WIDTH, body, forest_title(judged), heading_lines(judged), notes)
    top = body
    for part, entries, height in zip(parts, entries_by_part, heights, strict=True):
        top -= height
        axes = sheet.add_axes(MARGIN, top, PLOT, height)
        axes.set(xlim=axis_limits(contrasts), ylim=(height, 0), yticks=[])
        axes.spines[["left", "right", "top"]].set_visible(False)
        axes.patch.set_visible(False)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]))
        axes.xaxis.set_major_formatter(lambda x, _: judged_numbers.format_points(str(x / 100)).removesuffix(".0"))
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
    items = [
        f"p {texts['p']}",
        f"n {texts['n']}",
        f"cache {texts['cache']}" + ("" if contrast["matched"] else " †"),
    ]
    if equal_text := equal_memory_text(contrast):
        items.append(f"at equal memory {equal_text}")
    return " · ".join(items).replace("p <", "p < ")


def _draw_part(axes: Any, part: Part, entries: Sequence[Entry], judged: Mapping[str, Any]) -> None:
    ink, weight = (PALE, "normal") if part.outside else (INK, "bold")
    across = blended_transform_factory(axes.figure.dpi_scale_trans, axes.transData)
    top, groups = 0.0, list[tuple[float, float]]()
    for entry in entries:
        style = {"transform": across, "va": "center", "color": ink}
        for line, text in enumerate(entry.above):
            up = top + entry.padding + TEXT * (line + 0.5)
            axes.text(MARGIN, up, text, weight=weight if entry.contrast is None else "normal", **style)
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
        axes.plot((0, 0), (low, high), color=ink, linewidth=0.9, zorder=1, gid="zero")
        if not part.outside:
            draw_margin(axes, (low, high), judged)


def _draw_line(axes: Any, y: float, part: Part, contrast: Mapping[str, Any], across: Any) -> None:
    style = {"transform": across, "va": "center", "ha": "right", "color": PALE if part.outside else INK}
    right = WIDTH - MARGIN
    if contrast["difference"] is None:
        axes.text(right, y, "not estimated", **style)
        return
    if contrast["tested"]:
        draw_contrast(axes, y, contrast["mark"], contrast, outside=part.outside, size=0.9)
    else:
        draw_untested(axes, y, contrast["mark"], contrast)
    texts = cell_texts(contrast)
    weight = "bold" if is_significant(contrast) and not part.outside else "normal"
    dagger = "" if contrast["matched"] else " †"
    axes.text(right, y, f"{texts['Δ (pp)']} {texts['95 % interval']}{dagger}", weight=weight, **style)
