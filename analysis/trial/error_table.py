"""Precomputed error rates: how often a method rejects one contrast under the null, or at exactly the margin.

They depend only on the method, the problems, the seeds and the level. `error_table.json` holds the worst
setting of each; `benchmarks/error_table.py` writes it. A study between tabulated sizes and levels gets the
worst of its neighbours.
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
TWO_SIDED, ABOUT_MARGIN = "two-sided", ("worse", "below")  # as in `margin_tests.MarginPValues`
# Methods whose table entry is another method: the limit of many draws, and the single contrast of max-t.
SAME = MappingProxyType({"bootstrap": "exact-bootstrap", "max-t": "sign-flip"})
DIGITS = 1_000  # ratios are stored as integer thousandths
NAMED = populations.SETTINGS + populations.settings(2, margin=True)


LEVELS = tuple(0.05 / 2**halved for halved in range(7, -2, -1))


class Grid(NamedTuple):
    """The sizes and levels of the table, each in ascending order."""

    problems: tuple[int, ...] = (100, 150, 200, 250, 300, 400, 500, 700, 1_000)
    seeds: tuple[int, ...] = (2, 3, 5)  # with one seed exact enumeration is fast
    levels: tuple[float, ...] = LEVELS
    problems_of_margins: tuple[int, ...] = (100, 200, 300, 500)
    seeds_of_margins: tuple[int, ...] = (2, 3)
    margins: tuple[float, ...] = (0.02, 0.05, 0.1)


def looked_up(
    test: str, method: str, problems: int, seeds: int, level: float, margin: float | None = None
) -> TypeOne | None:
    """Return the worst neighbour in the table; None outside it, or if only some neighbours exceed their
    level: the value in between has to be simulated then.
    """
    exact = method == "auto" and problems <= FEW  # `auto` is exact below this
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
    """Return the table entry of each level."""
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
    """Return the two values around `target`, only itself if it is on the axis, none outside the axis."""
    if same := [value for value in of if abs(value - at) <= 1e-9 * value]:
        return same
    below, above = [value for value in of if value < at], [value for value in of if value > at]
    return [below[-1], above[0]] if below and above else []


@cache
def table() -> Mapping[str, Any]:
    """Load the table: test -> method -> seeds -> (margin ->) problems -> entries of `table_row` by level."""
    held: Mapping[str, Any] = json.loads(PLACE.read_text(encoding="utf-8"))
    return held
