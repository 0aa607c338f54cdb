"""The report's table of contrasts by level."""

from collections.abc import Mapping, Sequence
from typing import Any

from figures.canvas import numbers
from figures.html.markup import Html, Number, element, sentences, table

__all__ = ["by_level"]

PLACE = ("model", "task", "budget", "subject", "against")


def by_level(rows: Sequence[Mapping[str, Any]]) -> Html:
    """Render the table. rows: of `analysis.explored.by_level`; empty without any."""
    if not rows:
        return Html("")
    heads = [*PLACE, "level", "problems", "gains", "losses", "subject, %", "comparator, %", "Δ (pp)"]
    return Html(
        element("h3", "Contrasts by level")
        + sentences(
            "Levels are those that the lock names: a length, a depth, a difficulty. Each has a part of the "
            "problems, intervals are of one contrast at one level, and no level is in the rule."
        )
        + table("Contrasts by level (exploratory)", [*heads, "95 % interval"], [_cells(row) for row in rows])
    )


def _cells(row: Mapping[str, Any]) -> list[str | Number]:
    cells: list[str | Number] = [*(row[name] for name in PLACE), row["level"]]
    cells += [Number.of(row[name]) for name in ("n", "gains", "losses")]
    cells += [Number(f"{100 * row[name]:.1f}", row[name]) for name in ("own", "other")]
    if row["difference"] is None:
        return [*cells, Number("", None), Number("", None)]
    difference, low, high = (f"{row[name]:.6f}" for name in ("difference", "low", "high"))
    interval = Number(numbers.interval(low, high), row["low"])
    return [*cells, Number(numbers.points(difference), row["difference"]), interval]
