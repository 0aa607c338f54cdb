"""The registered contrasts as a forest plot of plain text, for outputs without pictures."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.rules import judged_numbers
from analysis.rules.judged_numbers import decisive_ends
from figures.drawing import formatting
from figures.drawing.table_rows import cell_of

COLUMNS = 41  # columns of the axis
MAX_ROWS = 60  # rows: more contrasts are left to the table
ZERO, LOW, HIGH, LINE, POINT = "│├┤─●"
KEY = "● difference in percentage points, subject minus comparator; ├ ┤ its {} interval; │ zero"


def plain_forest(contrasts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line for each contrast in the order of the judgement, then the key. Every row has the same
    axis, with zero and every interval; contrasts without an estimate are marked.
    """
    visible = contrasts[:MAX_ROWS]
    ends = [end for contrast in visible if contrast["difference"] is not None for end in decisive_ends(contrast)]
    if not ends:
        return ["no contrast could be estimated"]
    low, high = min(0.0, *ends), max(0.0, *ends)
    names = [
        " ".join((*cell_of(contrast), f"{contrast['subject']} against {contrast['against']}")) for contrast in visible
    ]
    margin = max(map(len, names))
    rows = [
        f"{name:<{margin}}  {_draw_row(contrast, low, high)}" for name, contrast in zip(names, visible, strict=True)
    ]
    n_hidden = len(contrasts) - len(visible)
    key = KEY.format(formatting.interval_heading(visible).removesuffix(" interval"))
    return [*rows, *([f"and {n_hidden} more contrasts"] if n_hidden else []), key]


def _draw_row(contrast: Mapping[str, Any], low: float, high: float) -> str:
    def column(value: float) -> int:
        return round((value - low) / (high - low) * (COLUMNS - 1)) if high > low else COLUMNS // 2

    cells = [" "] * COLUMNS
    cells[column(0.0)] = ZERO
    if contrast["difference"] is None:
        return f"{''.join(cells)}  not estimated"
    first, last = map(column, decisive_ends(contrast))
    for cell in range(first, last + 1):
        cells[cell] = ZERO if cell == column(0.0) else LINE
    cells[first], cells[last] = LOW, HIGH
    cells[column(float(contrast["difference"]))] = POINT
    interval = judged_numbers.format_decisive_interval(contrast)
    estimate = f"{judged_numbers.format_points(contrast['difference'])} {interval}"
    unfair = "" if contrast["matched"] else "  saves no memory" if "saves" in contrast else "  memory unmatched"
    return f"{''.join(cells)}  {estimate}{unfair}"
