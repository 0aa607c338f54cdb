"""The report's tables of what every arm evicted and of its cache size, by several ratios."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from analysis.studies import evicted
from figures.html.markup import Html, Number, element, items, sentences, table

__all__ = ["did_it_evict"]

PLACE = ("model", "task", "budget", "arm")


def did_it_evict(rows: Sequence[Mapping[str, Any]]) -> Html:
    """Render the section. rows: of `evicted.counted`."""
    return Html(
        element("h3", "Did it evict?")
        + sentences(
            "An event counts where it left fewer slots than it found. A lane without one holds the full "
            "cache, and its answer says nothing of the policy. Shares are of the registered budget, in slots."
        )
        + (items(warned) if (warned := evicted.warnings(rows)) else Html(""))
        + _events(rows)
        + _ratios(rows)
        + items(f"{name}: {ratio.words}." for name, ratio in evicted.RATIOS.items())
    )


def _events(rows: Sequence[Mapping[str, Any]]) -> Html:
    heads = [
        *PLACE,
        "lanes",
        "never evicted",
        "of lanes, %",
        "events, mean",
        "least",
        "most",
        "budget, slots",
    ]
    heads += [f"{ratio.words}, %" for ratio in evicted.OF_BUDGET.values()]
    cells: list[list[str | Number]] = [
        [
            *(row[name] for name in PLACE),
            Number.of(row["lanes"]),
            Number.of(row["never"]),
            _number(100 * Fraction(row["never"], row["lanes"]), 1),
            _number(row["events"]["mean"], 1),
            *(Number.of(row["events"][name]) for name in ("least", "most")),
            _number(row["slots"], 1),
            *(_number(None if share is None else 100 * share, 1) for share in row["of_budget"].values()),
        ]
        for row in rows
    ]
    return table("What was evicted, and what was held (exploratory)", heads, cells)


def _ratios(rows: Sequence[Mapping[str, Any]]) -> Html:
    cells = [
        [*(row[name] for name in PLACE), *(_number(ratio, 3) for ratio in row["ratios"].values())]
        for row in rows
    ]
    return table("One cache, by every ratio in use (exploratory)", [*PLACE, *evicted.RATIOS], cells)


def _number(value: Fraction | None, digits: int) -> Number:
    return Number("", None) if value is None else Number(f"{float(value):,.{digits}f}", float(value))
