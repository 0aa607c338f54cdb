"""The judged contrasts of a study as a forest plot; a second panel has those outside the decision rule."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from figures.canvas import numbers, page
from figures.canvas.contrasts import axis, cells, counts, mark, span, untested
from figures.canvas.page import INK, MARGIN, PALE
from figures.canvas.rows import HEAD, ROW, Row, Table, entries, frame, groups, panel
from figures.plots import forest_panels
from figures.plots.forest_parts import EQUAL, dashed, equal, heading, marks, memory, parts, rows, sides, title

__all__ = ["forest"]

COLUMNS = {"Δ (pp)": 0.65, "95 % interval": 1.35, "p": 0.75, "n": 0.5, "cache": 0.65}
LETTER, APART, BELOW = 0.26, 0.24, 0.72  # inches: of a panel's name, between panels, below the last


def forest(judged: Mapping[str, Any]) -> Figure:
    """Draw one line for each contrast; x is the difference in percentage points. All panels have one axis.

    The registered family is alone, grouped by model, task and budget, or it is panel (a). With two panels
    both are grouped by the two arms or by model, task and budget, whichever takes fewer headings. (b) is grey
    and has nothing bold, since the rule leaves it out. The marks are those of `contrasts.mark`; the gid of
    each is its meaning and the index of its contrast ("point-3", "nominal-3", "simultaneous-3"; in (b)
    "point-beside-3" and "point-auxiliary-3"; "margin").
    """
    shown = parts(judged)
    if forest_panels.wanted(shown):
        return forest_panels.drawn(judged, shown)
    alone, (first, second) = len(shown) == 1, sides(judged)
    panels = [rows(part) for part in shown]
    contrasts = [one for part in shown for one in part.contrasts]
    by = numbers.matched_by(contrasts)
    columns = COLUMNS | ({EQUAL[by]: 1.15} if any(map(equal, contrasts)) else {})
    framed = frame(list(itertools.chain(*panels)), columns, plot=4.0)
    letter = 0 if alone else LETTER
    body = ROW * sum(map(len, panels)) + len(panels) * (letter + HEAD + APART) - APART + BELOW
    notes = [*marks(judged, shown), *memory(contrasts, first, second), *numbers.scores(contrasts)]
    sheet = page.sheet(framed.width, body, title(judged), heading(judged), notes)
    top = body
    for part, lines in zip(shown, panels, strict=True):
        top -= letter + HEAD + ROW * len(lines)
        drawn = panel(sheet, framed, lines, top, outside=part.outside)
        drawn.axes.set_xlim(*span(contrasts))
        drawn.axes.tick_params(labelbottom=False)
        style = {"va": "bottom", "size": 9.5, "transform": drawn.across}
        style |= {"weight": "normal", "color": PALE} if part.outside else {"weight": "bold", "color": INK}
        drawn.axes.text(MARGIN, -1.75, part.name, **style)
        if not part.outside:
            for group in groups(lines):
                dashed(drawn.axes, (group.first + 0.5, group.last - 0.5), judged)
        _contrasts(drawn, lines, by, outside=part.outside)
        top -= APART
    drawn.axes.tick_params(labelbottom=True)
    axis(drawn, f"{second} better", f"{first} better")
    return sheet.figure


def _contrasts(drawn: Table, lines: Sequence[Row], by: str, *, outside: bool) -> None:
    axes, ink = drawn.axes, PALE if outside else INK
    for first, last, _ in groups(lines):
        axes.plot((0, 0), (first + 0.5, last - 0.5), color=ink, linewidth=0.9, zorder=1, gid="zero")
    for y, _, entry in entries(lines):
        if entry["difference"] is None:
            drawn.cells(y, {"95 % interval": "not estimated"}, color=PALE)
            continue
        if entry["tested"]:
            mark(axes, y, entry["mark"], entry, outside=outside)
        else:
            untested(axes, y, entry["mark"], entry)
        weight = "bold" if counts(entry) and not outside else "normal"
        drawn.cells(
            y, cells(entry) | ({EQUAL[by]: at} if (at := equal(entry)) else {}), weight=weight, color=ink
        )
        if not entry["matched"]:
            drawn.dagger(y, "cache", ink)
