"""The report's tables of what every arm evicted and of its cache size, by several ratios."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from analysis.judgement import eviction_counts
from figures.report_page.markup import Html, NumberCell, bullet_list, element, paragraphs, table

__all__ = ["render_evictions"]

ARM_FIELDS = ("model", "task", "budget", "arm")


def render_evictions(rows: Sequence[Mapping[str, Any]]) -> Html:
    """Render the section. rows: of `evicted.counted`."""
    return Html(
        element("h3", "Did it evict?")
        + paragraphs(
            "An event counts where it left fewer slots than it found. A lane without one holds the full "
            "cache, and its answer says nothing of the policy. Shares are of the registered budget, in slots."
        )
        + (bullet_list(warnings) if (warnings := eviction_counts.eviction_warnings(rows)) else Html(""))
        + _evictions_table(rows)
        + _ratios_table(rows)
        + bullet_list(f"{name}: {ratio.text}." for name, ratio in eviction_counts.RATIOS.items())
    )


def _evictions_table(rows: Sequence[Mapping[str, Any]]) -> Html:
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
    cells: list[list[str | NumberCell]] = [
        [
            *(row[name] for name in ARM_FIELDS),
            NumberCell.of_count(row["lanes"]),
            NumberCell.of_count(row["never"]),
            _number_cell(100 * Fraction(row["never"], row["lanes"]), 1),
            _number_cell(row["events"]["mean"], 1),
            *(NumberCell.of_count(row["events"][name]) for name in ("least", "most")),
            _number_cell(row["slots"], 1),
            *(_number_cell(None if share is None else 100 * share, 1) for share in row["of_budget"].values()),
        ]
        for row in rows
    ]
    return table("What was evicted, and what was held (exploratory)", heads, cells)


def _ratios_table(rows: Sequence[Mapping[str, Any]]) -> Html:
    cells = [
        [*(row[name] for name in ARM_FIELDS), *(_number_cell(ratio, 3) for ratio in row["ratios"].values())]
        for row in rows
    ]
    return table("One cache, by every ratio in use (exploratory)", [*ARM_FIELDS, *eviction_counts.RATIOS], cells)


def _number_cell(value: Fraction | None, digits: int) -> NumberCell:
    return NumberCell("", None) if value is None else NumberCell(f"{float(value):,.{digits}f}", float(value))
