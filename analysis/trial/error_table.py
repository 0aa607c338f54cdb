"""Error rates that were computed once: how often a method rejects one contrast where nothing differs.

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

from analysis.trial import populations
from analysis.trial.type_one import TypeOne

__all__ = ["PLACE", "SAME", "Grid", "looked_up", "row", "table"]

PLACE = Path(__file__).with_suffix(".json")
# What one method tends to as its draws grow, and what is looked at of max-t, is another.
SAME = MappingProxyType({"bootstrap": "exact-bootstrap", "max-t": "sign-flip"})
DIGITS = 1_000  # ratios are whole thousandths


class Grid(NamedTuple):
    """What the table was made for, each in rising order."""

    problems: tuple[int, ...] = (100, 150, 200, 250, 300, 400, 500, 700, 1_000)
    seeds: tuple[int, ...] = (2, 3, 5)  # of one seed every study is counted out in no time
    levels: tuple[float, ...] = tuple(0.05 / 2**halved for halved in range(7, -2, -1))


def looked_up(method: str, problems: int, seeds: int, level: float) -> TypeOne | None:
    """The worst neighbour in the table, and None outside it, or where one neighbour holds its level and
    another does not: what lies between is then to be simulated.
    """
    grid, rows = Grid(), table().get(SAME.get(method, method))
    near = [
        _neighbours(of, at)
        for of, at in ((grid.seeds, seeds), (grid.problems, problems), (grid.levels, level))
    ]
    if rows is None or not all(near):
        return None
    found = [
        _read(rows[str(of_seeds)][str(of_problems)][grid.levels.index(of_level)], of_level)
        for of_seeds, of_problems, of_level in itertools.product(*near)
    ]
    if len({one.exceeds() for one in found}) > 1:
        return None
    return max(found, key=lambda one: one.ratio)


def row(worst: Sequence[TypeOne]) -> list[list[int]]:
    """As the table holds it, of each level."""
    return [
        [
            *(round(DIGITS * ratio) for ratio in (one.ratio, one.ratio_low, one.ratio_high)),
            one.studies,
            populations.SETTINGS.index(one.setting),
        ]
        for one in worst
    ]


def _read(entry: Sequence[int], level: float) -> TypeOne:
    ratio, low, high = (value / DIGITS for value in entry[:3])
    return TypeOne(ratio * level, ratio, low, high, entry[3], populations.SETTINGS[entry[4]])


def _neighbours(of: Sequence[Any], at: float) -> list[Any]:
    """The values next to `at` on both sides, itself alone where it is one of them, none outside."""
    if same := [value for value in of if abs(value - at) <= 1e-9 * value]:
        return same
    below, above = [value for value in of if value < at], [value for value in of if value > at]
    return [below[-1], above[0]] if below and above else []


@cache
def table() -> Mapping[str, Any]:
    """method -> seeds -> problems -> of each level the ratio, its limits, studies and setting."""
    held: Mapping[str, Any] = json.loads(PLACE.read_text(encoding="utf-8"))
    return held
