"""The forest plot for a narrow screen: one column, the label of each contrast above its line."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import blended_transform_factory

from figures.canvas import numbers, page
from figures.canvas.contrasts import cells, counts, mark, span, untested
from figures.canvas.page import BAND, INK, MARGIN, PALE
from figures.plots import forest_panels
from figures.plots.forest_parts import Part, dashed, equal, heading, marks, memory, parts, rows, sides, title

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
        own = 0.0 if self.contrast is None else LINE
        return self.over + TEXT * len(self.above) + own + SMALL * len(self.below) + SPACE

    @property
    def over(self) -> float:
        """Inches above a heading."""
        return 2 * SPACE if self.contrast is None else 0.0


def forest_narrow(judged: Mapping[str, Any]) -> Figure:
    """Draw the contrasts, numbers and gids of `forest` in 358 CSS pixels, with no text below 10 pixels."""
    shown = parts(judged)
    contrasts = [one for part in shown for one in part.contrasts]
    brief = forest_panels.wanted(shown)
    listed = [_entries(part, brief=brief) for part in shown]
    heights = [sum(one.height for one in entries) for entries in listed]
    body = sum(heights) + AXIS * len(shown) + MEANS
    notes = [*marks(judged, shown), *([] if brief else memory(contrasts, *sides(judged)))]
    notes += numbers.scores(contrasts)
    sheet = page.sheet(WIDTH, body, title(judged), heading(judged), notes)
    top = body
    for part, entries, height in zip(shown, listed, heights, strict=True):
        top -= height
        axes = sheet.axes(MARGIN, top, PLOT, height)
        axes.set(xlim=span(contrasts), ylim=(height, 0), yticks=[])
        axes.spines[["left", "right", "top"]].set_visible(False)
        axes.patch.set_visible(False)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]))
        axes.xaxis.set_major_formatter(lambda x, _: numbers.points(str(x / 100)).removesuffix(".0"))
        _part(axes, part, entries, judged)
        top -= AXIS
    _, second = sides(judged)
    said = f"percentage points; left of 0 the {second} is better"
    for line, text in enumerate(["difference in accuracy,", said]):
        up = (sheet.floor + MEANS - 0.12 - TEXT * line) / sheet.height
        sheet.figure.text(MARGIN / WIDTH, up, text, va="center", color=INK)
    return sheet.figure


def _entries(part: Part, *, brief: bool) -> list[Entry]:
    """Return the entries of a part. brief: without p, n and memory, as in the panels of a large forest."""
    found = [Entry(page.wrapped(part.name, ROOM, 8.5, "bold"), None, [])] if part.name else []
    for row in rows(part):
        if row.entry is None:
            found.append(Entry(page.wrapped(row.label, ROOM, 8.5, "bold"), None, []))
            continue
        below = [] if brief or row.entry["difference"] is None else page.wrapped(_more(row.entry), ROOM, 7.5)
        found.append(Entry(page.wrapped(row.label, ROOM), row.entry, below))
    return found


def _more(one: Mapping[str, Any]) -> str:
    shown = cells(one)
    said = [
        f"p {shown['p']}",
        f"n {shown['n']}",
        f"cache {shown['cache']}" + ("" if one["matched"] else " †"),
    ]
    if at := equal(one):
        said.append(f"at equal memory {at}")
    return " · ".join(said).replace("p <", "p < ")


def _part(axes: Any, part: Part, entries: Sequence[Entry], judged: Mapping[str, Any]) -> None:
    ink, weight = (PALE, "normal") if part.outside else (INK, "bold")
    across = blended_transform_factory(axes.figure.dpi_scale_trans, axes.transData)
    top, groups = 0.0, list[tuple[float, float]]()
    for entry in entries:
        how = {"transform": across, "va": "center", "color": ink}
        for line, text in enumerate(entry.above):
            up = top + entry.over + TEXT * (line + 0.5)
            axes.text(MARGIN, up, text, weight=weight if entry.contrast is None else "normal", **how)
        at = top + TEXT * len(entry.above) + LINE / 2
        for line, text in enumerate(entry.below):
            small = how | {"size": 7.5, "color": PALE}
            axes.text(MARGIN, at + LINE / 2 + SMALL * (line + 0.5), text, **small)
        if entry.contrast is not None:
            groups.append((at - LINE / 2, at + LINE / 2))
            _line(axes, at, part, entry.contrast, across)
        top += entry.height
    band = {"transform": across, "color": BAND, "linewidth": 0, "zorder": -2}
    for low, high in groups:
        axes.fill_betweenx((low, high), MARGIN, MARGIN + PLOT, **band)
        axes.plot((0, 0), (low, high), color=ink, linewidth=0.9, zorder=1, gid="zero")
        if not part.outside:
            dashed(axes, (low, high), judged)


def _line(axes: Any, at: float, part: Part, one: Mapping[str, Any], across: Any) -> None:
    how = {"transform": across, "va": "center", "ha": "right", "color": PALE if part.outside else INK}
    right = WIDTH - MARGIN
    if one["difference"] is None:
        axes.text(right, at, "not estimated", **how)
        return
    if one["tested"]:
        mark(axes, at, one["mark"], one, outside=part.outside, size=0.9)
    else:
        untested(axes, at, one["mark"], one)
    shown = cells(one)
    weight = "bold" if counts(one) and not part.outside else "normal"
    dagger = "" if one["matched"] else " †"
    axes.text(right, at, f"{shown['Δ (pp)']} {shown['95 % interval']}{dagger}", weight=weight, **how)
