"""Error rates that were computed once: how often a method rejects one contrast where nothing differs, or
where it differs by just the margin.

They depend on the method, the problems, the seeds and the level alone. `error_table.json` holds the worst
setting of each; `benchmarks/error_table.py` makes it. Between its sizes and levels a study has several
neighbours, and the worst of them counts.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from analysis.stats.methods import FEW
from analysis.trial import populations
from analysis.trial.type_one import TypeOne

__all__ = ["ABOUT_MARGIN", "NAMED", "PLACE", "SAME", "TWO_SIDED", "Grid", "looked_up", "row", "table"]

PLACE = Path(__file__).with_suffix(".json")
TWO_SIDED, ABOUT_MARGIN = "two-sided", ("worse", "below")  # tests, the last as in `margin_tests.Tests`
# What a method tends to as its draws grow, and what is looked at of max-t, is another.
SAME = MappingProxyType({"bootstrap": "exact-bootstrap", "max-t": "sign-flip"})
DIGITS = 1_000  # ratios are whole thousandths
NAMED = populations.SETTINGS + populations.settings(2, margin=True)


LEVELS = tuple(0.05 / 2**halved for halved in range(7, -2, -1))


class Grid(NamedTuple):
    """What the table was made for, each in rising order."""

    problems: tuple[int, ...] = (100, 150, 200, 250, 300, 400, 500, 700, 1_000)
    seeds: tuple[int, ...] = (2, 3, 5)  # of one seed every study is counted out in no time
    levels: tuple[float, ...] = LEVELS
    problems_of_margins: tuple[int, ...] = (100, 200, 300, 500)
    seeds_of_margins: tuple[int, ...] = (2, 3)
    margins: tuple[float, ...] = (0.02, 0.05, 0.1)


def looked_up(
    test: str, method: str, problems: int, seeds: int, level: float, margin: float | None = None
) -> TypeOne | None:
    """The worst neighbour in the table, and None outside it, or where one neighbour holds its level and
    another does not: what lies between is then to be simulated.
    """
    exact = method == "auto" and problems <= FEW  # that many problems never differ
    rows = table().get(test, {}).get("restricted-likelihood" if exact else SAME.get(method, method))
    grid = Grid()
    axes: list[tuple[Sequence[float], float]] = [(grid.seeds, seeds), (grid.problems, problems)]
    if margin is not None:
        sizes = grid.problems_of_margins
        axes = [(grid.seeds_of_margins, seeds), (grid.margins, margin), (sizes, problems)]
    near = [_neighbours(of, at) for of, at in axes]
    levels = _neighbours(grid.levels, level)
    if rows is None or not all(near) or not levels:
        return None
    found = []
    for keys in itertools.product(*near):
        entry = rows
        for key in keys:
            entry = entry[f"{key:g}"]
        found += [_read(entry[grid.levels.index(at)], at) for at in levels]
    if len({one.exceeds() for one in found}) > 1:
        return None
    return max(found, key=lambda one: one.ratio)


def row(worst: Sequence[TypeOne]) -> list[list[int]]:
    """As the table holds it, of each level."""
    return [
        [
            *(round(DIGITS * ratio) for ratio in (one.ratio, one.ratio_low, one.ratio_high)),
            one.studies,
            NAMED.index(one.setting),
        ]
        for one in worst
    ]


def _read(entry: Sequence[int], level: float) -> TypeOne:
    ratio, low, high = (value / DIGITS for value in entry[:3])
    return TypeOne(ratio * level, ratio, low, high, entry[3], NAMED[entry[4]])


def _neighbours(of: Sequence[float], at: float) -> list[float]:
    """The values next to `at` on both sides, itself alone where it is one of them, none outside."""
    if same := [value for value in of if abs(value - at) <= 1e-9 * value]:
        return same
    below, above = [value for value in of if value < at], [value for value in of if value > at]
    return [below[-1], above[0]] if below and above else []


@cache
def table() -> Mapping[str, Any]:
    """test -> method -> seeds -> (of a margin: margin ->) problems -> of each level what `row` holds."""
    held: Mapping[str, Any] = json.loads(PLACE.read_text(encoding="utf-8"))
    return held
