"""Precomputed error rates: how often a method rejects one contrast under the null.

They depend only on the method, the problems, the seeds and the level. `error_table.json` holds the worst
setting of each; `benchmarks/error_table.py` writes it. A study between tabulated sizes and levels gets the
worst of its neighbours. What the table lacks is simulated: margins, and methods that are refused at several seeds.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from analysis.simulation import null_settings
from analysis.simulation.error_estimate import LIMIT, TypeOneError
from analysis.stats.methods import EXACT_BELOW

TABLE_PATH = Path(__file__).with_suffix(".json")
TWO_SIDED = "two-sided"
DIGITS, SHARE_DIGITS = 1_000, 10_000  # ratios and discordances are stored as integers
INDEXED_KINDS = null_settings.kinds(2)
LEVELS = tuple(0.05 / 2**halved for halved in range(7, -2, -1))


class TableGrid(NamedTuple):
    """The sizes and levels of the table, each in ascending order."""

    problems: tuple[int, ...] = (100, 150, 200, 250, 300, 400, 500, 700, 1_000)
    seeds: tuple[int, ...] = (2, 3, 5)  # with one seed exact enumeration is fast
    levels: tuple[float, ...] = LEVELS


def look_up(method: str, problems: int, seeds: int, level: float) -> TypeOneError | None:
    """Return the worst neighbour in the table; None outside it, if only some neighbours exceed their level, or if
    one cannot tell: the error has to be simulated then.
    """
    is_exact = method == "auto" and problems <= EXACT_BELOW  # `auto` is exact below this
    rows = load_table()[TWO_SIDED].get("restricted-likelihood" if is_exact else method)
    grid = TableGrid()
    axis_neighbours = [_nearest_values(grid.seeds, seeds), _nearest_values(grid.problems, problems)]
    levels = _nearest_values(grid.levels, level)
    if rows is None or not all(axis_neighbours) or not levels:
        return None
    neighbours = []
    for keys in itertools.product(*axis_neighbours):
        entry = rows
        for key in keys:
            entry = entry[f"{key:g}"]
        neighbours += [_parse_entry(entry[grid.levels.index(target)], target) for target in levels]
    if len({limit > LIMIT for one in neighbours for limit in (one.ratio_low, one.ratio_high)}) > 1:
        return None
    return max(neighbours, key=lambda neighbour: neighbour.ratio)


def _parse_entry(entry: Sequence[int], level: float) -> TypeOneError:
    ratio, low, high = (value / DIGITS for value in entry[:3])
    setting = INDEXED_KINDS[entry[4]]._replace(discordance=entry[5] / SHARE_DIGITS)
    return TypeOneError(ratio * level, ratio, low, high, entry[3], setting)


def _nearest_values(axis: Sequence[float], target: float) -> list[float]:
    """Return the two values around `target`, only itself if it is on the axis, none outside the axis."""
    if matches := [value for value in axis if abs(value - target) <= 1e-9 * value]:
        return matches
    below, above = [value for value in axis if value < target], [value for value in axis if value > target]
    return [below[-1], above[0]] if below and above else []


@cache
def load_table() -> Mapping[str, Any]:
    """Load the table: test -> method -> seeds -> problems -> entries of `benchmarks.error_table` by level."""
    content: Mapping[str, Any] = json.loads(TABLE_PATH.read_text(encoding="utf-8"))
    return content
