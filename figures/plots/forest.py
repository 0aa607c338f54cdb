"""The judged contrasts of a study as a forest plot; a second panel has those outside the decision rule."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from figures.drawing import formatting
from figures.drawing.contrasts import INTERVAL, axis_limits, cell_texts, draw_marks, label_axis
from figures.drawing.page import MARGIN, PALE
from figures.drawing.table_rows import (
    HEAD,
    ROW,
    RowTable,
    TableRow,
    draw_rows,
    layout_frame,
    numbered_entries,
    row_groups,
)
from figures.plots import forest_panels
from figures.plots.forest_parts import (
    EQUAL,
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

COLUMNS = {"Δ (pp)": 0.65, INTERVAL: 1.35, "p": 0.75, "n": 0.5, "cache": 0.65}
LETTER, APART, BELOW = 0.26, 0.24, 0.72  # inches: of a panel's name, between panels, below the last


def forest(judged: Mapping[str, Any]) -> Figure:
    """Draw one line for each contrast; x is the difference in percentage points. All panels have one axis.

    The registered family is alone, grouped by model, task and budget, or it is panel (a). With two panels
    both are grouped by the two arms or by model, task and budget, whichever takes fewer headings. (b) is grey
    and has nothing bold, since the rule leaves it out. The marks are those of `contrasts.mark`; the gid of
    each is its meaning and the index of its contrast ("point-3", "nominal-3", "simultaneous-3"; in (b)
    "point-beside-3" and "point-auxiliary-3"; "margin").
    """
    parts = split_parts(judged)
    if forest_panels.should_use_panels(parts):
        return forest_panels.draw_panels(judged, parts)
    is_single, (first, second) = len(parts) == 1, side_names(judged)
    panels = [part_rows(part) for part in parts]
    contrasts = list_contrasts(parts)
    memory_unit = formatting.memory_basis(contrasts)
    heading = formatting.interval_heading(contrasts)
    columns = {heading if name == INTERVAL else name: width for name, width in COLUMNS.items()}
    columns |= {EQUAL[memory_unit]: 1.15} if any(map(equal_memory_text, contrasts)) else {}
    framed = layout_frame(list(itertools.chain(*panels)), columns, plot=4.0)
    letter = 0 if is_single else LETTER
    body = ROW * sum(map(len, panels)) + len(panels) * (letter + HEAD + APART) - APART + BELOW
    sheet = new_forest_sheet(judged, parts, framed.width, body, memory_notes(contrasts, first, second))
    top = body
    for part, lines in zip(parts, panels, strict=True):
        top -= letter + HEAD + ROW * len(lines)
        drawn = draw_rows(sheet, framed, lines, top, outside=part.outside)
        drawn.axes.set_xlim(*axis_limits(contrasts))
        drawn.axes.tick_params(labelbottom=False)
        drawn.axes.text(MARGIN, -1.75, part.name, va="bottom", size=9.5, transform=drawn.across, **part.style)
        if not part.outside:
            for group in row_groups(lines):
                draw_margin(drawn.axes, (group.first + 0.5, group.last - 0.5), judged)
        _draw_contrasts(drawn, lines, memory_unit, part, heading)
        top -= APART
    drawn.axes.tick_params(labelbottom=True)
    label_axis(drawn, f"{second} better", f"{first} better")
    return sheet.figure


def _draw_contrasts(
    drawn: RowTable, lines: Sequence[TableRow], memory_unit: str, part: Part, interval_heading: str
) -> None:
    axes = drawn.axes
    for first, last, _ in row_groups(lines):
        axes.plot((0, 0), (first + 0.5, last - 0.5), color=part.ink, linewidth=0.9, zorder=1, gid="zero")
    for y, _, entry in numbered_entries(lines):
        if entry["difference"] is None:
            drawn.print_cells(y, {interval_heading: "not estimated"}, color=PALE)
            continue
        draw_marks(axes, y, entry, outside=part.outside)
        drawn.print_cells(
            y,
            {interval_heading if name == INTERVAL else name: text for name, text in cell_texts(entry).items()}
            | ({EQUAL[memory_unit]: equal_text} if (equal_text := equal_memory_text(entry)) else {}),
            weight=part.weight(entry),
            color=part.ink,
        )
        if not entry["matched"]:
            drawn.mark_unmatched(y, "cache", part.ink)
