"""The report's tables of what every arm evicted and of its cache size, by several ratios."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from markupsafe import Markup

from analysis.judgement import eviction_counts
from figures.report_page.rendering import Cell, NumberCell, decimal_cell, table

ARM_FIELDS = ("model", "task", "budget", "arm")


def evictions_table(rows: Sequence[Mapping[str, Any]]) -> Markup:
    heads = [
        *ARM_FIELDS,
        "lanes",
        "never evicted",
        "of lanes, %",
        "events, mean",
        "least",
        "most",
        "budget, slots",
    ]
    heads += [f"{ratio.text}, %" for ratio in eviction_counts.OF_BUDGET.values()]
    cells: list[list[Cell]] = [
        [
            *(row[name] for name in ARM_FIELDS),
            NumberCell.of_count(row["lanes"]),
            NumberCell.of_count(row["never"]),
            decimal_cell(100 * Fraction(row["never"], row["lanes"]), 1),
            decimal_cell(row["events"]["mean"], 1),
            *(NumberCell.of_count(row["events"][name]) for name in ("least", "most")),
            decimal_cell(row["slots"], 1),
            *(decimal_cell(None if share is None else 100 * share, 1) for share in row["of_budget"].values()),
        ]
        for row in rows
    ]
    return table("What was evicted, and what was held (exploratory)", heads, cells)


def ratios_table(rows: Sequence[Mapping[str, Any]]) -> Markup:
    cells = [
        [*(row[name] for name in ARM_FIELDS), *(decimal_cell(ratio, 3) for ratio in row["ratios"].values())]
        for row in rows
    ]
    return table("One cache, by every ratio in use (exploratory)", [*ARM_FIELDS, *eviction_counts.RATIOS], cells)
