"""The one seam to the world: an executor takes a job (some problems, all their cells) and returns records."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from protocol.grid import Cell

__all__ = ["Executor", "Job", "Produced"]


class Job(NamedTuple):
    model: str
    task: str
    problems: tuple[str, ...]
    cells: tuple[Cell, ...]


class Produced(NamedTuple):
    """records: (cell, problem) -> (body without registration and phase, costs); trajectories: the side files
    they cite.
    """

    records: Mapping[tuple[Cell, str], tuple[dict[str, Any], dict[str, Any]]]
    trajectories: tuple[dict[str, Any], ...]


Executor: TypeAlias = Callable[[Job], Produced]
