"""The lanes of a study with looks: those of the problems that its looks opened."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from protocol.formats.looks import number_problems, open_items

FIELD = "look"  # in the lock of a study whose later problems are left out: the number of its last look
DEVIATION = "deviation"  # in the lock of a study that did not keep to its looks: how


class OpenedLanes(NamedTuple):
    lock: dict[str, Any]
    lanes: pd.DataFrame


def keep_looks(lock: Mapping[str, Any], lanes: pd.DataFrame, number: int) -> OpenedLanes:
    """Return the lock and the lanes of the problems that the first `number` looks opened."""
    opened = {**lock, "items": open_items(lock, number), FIELD: number}
    return OpenedLanes(opened, lanes[_look_numbers(lock, lanes) <= number].reset_index(drop=True))


def keep_reached(lock: Mapping[str, Any], lanes: pd.DataFrame, not_run: str) -> OpenedLanes:
    """Return those of the looks up to the last one with a record. not_run: the state of lanes without one."""
    reached = _look_numbers(lock, lanes)[lanes["state"] != not_run].max()
    return keep_looks(lock, lanes, int(reached))


def _look_numbers(lock: Mapping[str, Any], lanes: pd.DataFrame) -> "pd.Series[int]":
    numbers = {
        (task, problem): number for task in lock["items"] for problem, number in number_problems(lock, task).items()
    }
    pairs = zip(lanes["task"], lanes["problem"], strict=True)
    return pd.Series([numbers[pair] for pair in pairs], index=lanes.index)
