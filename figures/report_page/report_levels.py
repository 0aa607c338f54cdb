"""The report's table of contrasts by level."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from analysis.rules import judged_numbers
from figures.report_page.rendering import NO_NUMBER, Cell, NumberCell, percent_cell, table

CONTRAST_FIELDS = ("model", "task", "budget", "subject", "against")


def levels_table(rows: Sequence[Mapping[str, Any]]) -> Markup:
    """Render the table. rows: of `analysis.exploratory.level_contrasts`; empty without any."""
    if not rows:
        return Markup("")
    heads = [*CONTRAST_FIELDS, "level", "problems", "gains", "losses", "subject, %", "comparator, %", "Δ (pp)"]
    cells = [_row_cells(row) for row in rows]
    return table("Contrasts by level (exploratory)", [*heads, "95 % interval"], cells)


def _row_cells(row: Mapping[str, Any]) -> list[Cell]:
    cells: list[Cell] = [*(row[name] for name in CONTRAST_FIELDS), row["level"]]
    cells += [NumberCell.of_count(row[name]) for name in ("n", "gains", "losses")]
    cells += [percent_cell(row[name]) for name in ("own", "other")]
    if row["difference"] is None:
        return [*cells, NO_NUMBER, NO_NUMBER]
    difference, low, high = (f"{row[name]:.6f}" for name in ("difference", "low", "high"))
    interval = NumberCell(judged_numbers.format_interval(low, high), row["low"])
    return [*cells, NumberCell(judged_numbers.format_points(difference), row["difference"]), interval]
