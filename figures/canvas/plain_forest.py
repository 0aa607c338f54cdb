"""The registered contrasts as a forest plot of plain text, for outputs without pictures."""

from collections.abc import Mapping, Sequence
from typing import Any

from figures.canvas import numbers
from figures.canvas.rows import place

__all__ = ["plain_forest"]

WIDE = 41  # columns of the axis
MOST = 60  # rows: more contrasts are left to the table
ZERO, LOW, HIGH, LINE, POINT = "│├┤─●"
KEY = "● difference in percentage points, subject minus comparator; ├ ┤ its 95 % interval; │ zero"


def plain_forest(contrasts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line for each contrast in the order of the judgement, then the key. Every row has the same
    axis, with zero and every interval; contrasts without an estimate are marked.
    """
    shown = contrasts[:MOST]
    ends = [float(one[end]) for one in shown for end in ("low", "high") if one["difference"] is not None]
    if not ends:
        return ["no contrast could be estimated"]
    low, high = min(0.0, *ends), max(0.0, *ends)
    names = [" ".join((*place(one), f"{one['subject']} against {one['against']}")) for one in shown]
    margin = max(map(len, names))
    rows = [f"{name:<{margin}}  {_row(one, low, high)}" for name, one in zip(names, shown, strict=True)]
    left = len(contrasts) - len(shown)
    return [*rows, *([f"and {left} more contrasts"] if left else []), KEY]


def _row(one: Mapping[str, Any], low: float, high: float) -> str:
    def at(value: float) -> int:
        return round((value - low) / (high - low) * (WIDE - 1)) if high > low else WIDE // 2

    cells = [" "] * WIDE
    cells[at(0.0)] = ZERO
    if one["difference"] is None:
        return f"{''.join(cells)}  not estimated"
    first, last = at(float(one["low"])), at(float(one["high"]))
    for cell in range(first, last + 1):
        cells[cell] = ZERO if cell == at(0.0) else LINE
    cells[first], cells[last] = LOW, HIGH
    cells[at(float(one["difference"]))] = POINT
    told = f"{numbers.points(one['difference'])} {numbers.interval(one['low'], one['high'])}"
    unfair = "" if one["matched"] else "  saves no memory" if "saves" in one else "  memory unmatched"
    return f"{''.join(cells)}  {told}{unfair}"
