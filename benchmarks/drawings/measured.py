"""Measurements of a benchmark, for the drawings that belong to no study: some values, and rows of values."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from protocol.formats.command_line import run_command
from protocol.formats.refusals import Refusal

__all__ = ["COUNT", "SECONDS", "TEXT", "BadMeasurements", "Kind", "drawing", "read"]


class BadMeasurements(Refusal):
    """Measurements that cannot be drawn; one line names the file, the field and the fix."""


class Kind(NamedTuple):
    """What a value has to be, in words and as a test."""

    name: str
    holds: Callable[[Any], bool]


TEXT = Kind("a text", lambda value: isinstance(value, str))
COUNT = Kind("a positive integer", lambda value: type(value) is int and value > 0)
SECONDS = Kind(
    "a finite number, not negative",
    lambda value: type(value) in (int, float) and math.isfinite(value) and value >= 0,
)
ROWS = Kind("a list of at least one row", lambda value: isinstance(value, list) and len(value) > 0)


def read(path: Path, values: Mapping[str, Kind], fields: Mapping[str, Kind], key: Sequence[str]) -> dict[str, Any]:
    """The JSON object of a file, with these values, and `rows` with these fields: at least one row, no two of
    one key. Raises BadMeasurements.
    """

    def check(held: Any, kinds: Mapping[str, Kind], where: str) -> None:
        for name, kind in kinds.items():
            value = held.get(name) if isinstance(held, dict) else None
            if not kind.holds(value):
                raise BadMeasurements(f"{path}: {where}{name}: {value!r} is not {kind.name}")

    try:
        held: dict[str, Any] = json.loads(Path(path).read_bytes())
    except FileNotFoundError:
        raise BadMeasurements(f"{path}: missing; name a file that a benchmark wrote") from None
    except ValueError:
        raise BadMeasurements(f"{path}: not JSON; let the benchmark write it again") from None
    check(held, {**values, "rows": ROWS}, "")
    for number, row in enumerate(held["rows"]):
        check(row, fields, f"rows[{number}].")
    keys = [tuple(row[name] for name in key) for row in held["rows"]]
    for number, one in enumerate(keys):
        if one in keys[:number]:
            same = ", ".join(f"{name} {value}" for name, value in zip(key, one, strict=True))
            raise BadMeasurements(f"{path}: rows[{number}]: a second row of {same}; keep one")
    return held


def drawing(
    name: str,
    description: str | None,
    draw: Callable[[Path, Path], Sequence[Path]],
    argv: list[str] | None,
) -> int:
    """The command line of such a drawing: measurements and a folder in, the written files out."""
    paths = {"source": "measurements, as JSON", "folder": "where the drawing goes"}
    return run_command(name, description, paths, draw, argv)
