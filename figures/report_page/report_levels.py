"""The report's table of contrasts by level."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.rules import judged_numbers
from figures.report_page.markup import Html, NumberCell, element, paragraphs, table

__all__ = ["levels_table"]

CONTRAST_FIELDS = ("model", "task", "budget", "subject", "against")


def levels_table(rows: Sequence[Mapping[str, Any]]) -> Html:
    """Render the table. rows: of `analysis.exploratory.level_contrasts`; empty without any."""
    if not rows:
        return Html("")
    heads = [*CONTRAST_FIELDS, "level", "problems", "gains", "losses", "subject, %", "comparator, %", "Δ (pp)"]
    return Html(
        element("h3", "Contrasts by level")
        + paragraphs(
            "Levels are those that the lock names: a length, a depth, a difficulty. Each has a part of the "
            "problems, intervals are of one contrast at one level, and no level is in the rule."
        )
        + table("Contrasts by level (exploratory)", [*heads, "95 % interval"], [_row_cells(row) for row in rows])
    )


def _row_cells(row: Mapping[str, Any]) -> list[str | NumberCell]:
    cells: list[str | NumberCell] = [*(row[name] for name in CONTRAST_FIELDS), row["level"]]
    cells += [NumberCell.of_count(row[name]) for name in ("n", "gains", "losses")]
    cells += [NumberCell(f"{100 * row[name]:.1f}", row[name]) for name in ("own", "other")]
    if row["difference"] is None:
        return [*cells, NumberCell("", None), NumberCell("", None)]
    difference, low, high = (f"{row[name]:.6f}" for name in ("difference", "low", "high"))
    interval = NumberCell(judged_numbers.format_interval(low, high), row["low"])
    return [*cells, NumberCell(judged_numbers.format_points(difference), row["difference"]), interval]
