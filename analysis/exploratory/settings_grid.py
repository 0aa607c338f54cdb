"""A grid of arms that differ in two settings alone: the setting of each axis, and the arm in each cell."""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from analysis.exploratory.level_contrasts import order_levels
from protocol.formats.refusals import Refusal

Settings = Mapping[str, str]  # of a policy: the value of each path, as in locks


class NoGrid(Refusal, ValueError):
    """The arms of a study do not form a grid over two settings; the message says what varies."""


class Grid(NamedTuple):
    """rows, columns: paths of the settings. down, across: their values, numbers ascending and others as registered.
    arms: by a value of each, the first of two with the same settings. other_arms: the arms outside the grid.
    """

    rows: str
    columns: str
    down: list[str]
    across: list[str]
    arms: dict[tuple[str, str], str]
    other_arms: list[str]


def build_grid(settings_of: Mapping[str, Settings], rows: str | None = None, columns: str | None = None) -> Grid:
    """Build the grid of the arms that have the same parts and paths and vary in two settings; every value of
    one occurs with every value of the other.

    settings_of: the settings of each arm that evicts. Without `rows` and `columns` the two settings that vary
    are used, the one with more values in the columns. Raises NoGrid, which names what varies instead.
    """
    for path in (rows, columns):
        if path is not None and not any(path in settings for settings in settings_of.values()):
            raise NoGrid(f"{path}: no arm has this setting; choose a setting from the policies in the lock")
    if rows is not None and rows == columns:
        raise NoGrid(f"{rows}: is given for both rows and columns; name two different settings")
    requested = {path for path in (rows, columns) if path is not None}
    groups = _group_arms(settings_of)
    grids = [
        _lay_out(settings_of, group, rows, columns)
        for group in groups
        if len(paths := _varying_paths(settings_of, group)) == 2 and requested <= {*paths}
    ]
    complete = [grid for grid in grids if len(grid.arms) == len(grid.down) * len(grid.across)]
    if len(complete) == 1:
        return complete[0]
    if complete or not grids:
        axes = " and ".join(path for path in (rows, columns) if path) or "two settings"
        raise NoGrid(_refusal_text(settings_of, groups, "more than one grid" if complete else f"no grid over {axes}"))
    grid = max(grids, key=lambda candidate: len(candidate.arms))
    cell = next(cell for cell in itertools.product(grid.down, grid.across) if cell not in grid.arms)
    raise NoGrid(
        f"arms: no arm has {grid.rows} {cell[0]} with {grid.columns} {cell[1]}; a grid needs an arm for "
        "every pair of values"
    )


def _lay_out(settings_of: Mapping[str, Settings], group: Sequence[str], rows: str | None, columns: str | None) -> Grid:
    """Lay out the arms of a group in which two settings vary, even if a pair of values has no arm."""
    values = {
        path: order_levels(settings_of[arm][path] for arm in group) for path in _varying_paths(settings_of, group)
    }
    fewest, most = sorted(values, key=lambda path: len(values[path]))
    down = rows or (most if columns == fewest else fewest)
    across = most if down == fewest else fewest
    arms: dict[tuple[str, str], str] = {}
    for arm in group:
        arms.setdefault((settings_of[arm][down], settings_of[arm][across]), arm)
    other_arms = [arm for arm in settings_of if arm not in arms.values()]
    return Grid(down, across, values[down], values[across], arms, other_arms)


def _group_arms(settings_of: Mapping[str, Settings]) -> list[list[str]]:
    """Group the arms by their paths and, if a path is a part, by its class; groups of one arm are left out."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for arm, settings in settings_of.items():
        key = tuple((path, value if value.endswith("()") else "") for path, value in sorted(settings.items()))
        groups.setdefault(key, []).append(arm)
    return [arms for arms in groups.values() if len(arms) > 1]


def _varying_paths(settings_of: Mapping[str, Settings], group: Sequence[str]) -> list[str]:
    return [path for path in settings_of[group[0]] if len({settings_of[arm][path] for arm in group}) > 1]


def _refusal_text(settings_of: Mapping[str, Settings], groups: Sequence[Sequence[str]], form: str) -> str:
    if not groups:
        return "arms: no two arms consist of the same parts; a grid needs arms that differ only in two settings"
    variations = "; ".join(
        f"among {', '.join(group)}: {', '.join(_varying_paths(settings_of, group)) or 'nothing'}" for group in groups
    )
    return f"arms: they form {form}; settings that vary {variations}"
