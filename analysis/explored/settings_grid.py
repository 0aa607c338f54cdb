"""A grid of arms that differ in two settings alone: the setting of each axis, and the arm in each cell."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

__all__ = ["Grid", "NoGrid", "grid"]

Settings = Mapping[str, str]  # of a policy: the value of each path, as in locks


class NoGrid(ValueError):
    """The arms of a study do not form a grid over two settings; the message says what varies."""


class Grid(NamedTuple):
    """rows, columns: paths of the settings. down, across: their values, numbers ascending and others as
    registered. arms: by a value of each, the first of two with the same settings. other_arms: the arms
    outside the grid.
    """

    rows: str
    columns: str
    down: list[str]
    across: list[str]
    arms: dict[tuple[str, str], str]
    beside: list[str]


def grid(held: Mapping[str, Settings], rows: str | None = None, columns: str | None = None) -> Grid:
    """Build the grid of the arms that have the same parts and paths and vary in two settings; every value of
    one occurs with every value of the other.

    settings_of: the settings of each arm that evicts. Without `rows` and `columns` the two settings that vary
    are used, the one with more values in the columns. Raises NoGrid, which names what varies instead.
    """
    for path in (rows, columns):
        if path is not None and not any(path in settings for settings in held.values()):
            raise NoGrid(f"{path}: no arm has this setting; the lock's policies name them")
    if rows is not None and rows == columns:
        raise NoGrid(f"{rows}: stands for rows and columns; name two settings")
    asked = {path for path in (rows, columns) if path is not None}
    makes = _makes(held)
    found = [
        _laid(held, make, rows, columns)
        for make in makes
        if len(paths := _varying(held, make)) == 2 and asked <= {*paths}
    ]
    whole = [one for one in found if len(one.arms) == len(one.down) * len(one.across)]
    if len(whole) == 1:
        return whole[0]
    if whole or not found:
        over = " and ".join(path for path in (rows, columns) if path) or "two settings"
        raise NoGrid(_refusal(held, makes, "more than one grid" if whole else f"no grid over {over}"))
    one = max(found, key=lambda each: len(each.arms))
    place = next(place for place in itertools.product(one.down, one.across) if place not in one.arms)
    raise NoGrid(
        f"arms: none has {one.rows} {place[0]} with {one.columns} {place[1]}; a grid has every pair of values"
    )


def _laid(held: Mapping[str, Settings], make: Sequence[str], rows: str | None, columns: str | None) -> Grid:
    """Lay out the arms of a group in which two settings vary, even if a pair of values has no arm."""
    values = {path: _values(held[arm][path] for arm in make) for path in _varying(held, make)}
    fewest, most = sorted(values, key=lambda path: len(values[path]))
    down = rows or (most if columns == fewest else fewest)
    across = most if down == fewest else fewest
    arms: dict[tuple[str, str], str] = {}
    for arm in make:
        arms.setdefault((held[arm][down], held[arm][across]), arm)
    beside = [arm for arm in held if arm not in arms.values()]
    return Grid(down, across, values[down], values[across], arms, beside)


def _makes(held: Mapping[str, Settings]) -> list[list[str]]:
    """Group the arms by their paths and, if a path is a part, by its class; groups of one arm are left out.
    """
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for arm, settings in held.items():
        make = tuple(
            (path, value if value.endswith("()") else "") for path, value in sorted(settings.items())
        )
        found.setdefault(make, []).append(arm)
    return [arms for arms in found.values() if len(arms) > 1]


def _varying(held: Mapping[str, Settings], make: Sequence[str]) -> list[str]:
    return [path for path in held[make[0]] if len({held[arm][path] for arm in make}) > 1]


def _values(given: Iterable[str]) -> list[str]:
    values = list(dict.fromkeys(given))
    try:
        return sorted(values, key=Decimal)
    except InvalidOperation:
        return values


def _refusal(held: Mapping[str, Settings], makes: Sequence[Sequence[str]], form: str) -> str:
    if not makes:
        return "arms: no two are of the same parts; a grid needs arms that differ in two settings alone"
    said = "; ".join(
        f"of {', '.join(make)}: {', '.join(_varying(held, make)) or 'nothing'}" for make in makes
    )
    return f"arms: form {form}; what varies, {said}"
