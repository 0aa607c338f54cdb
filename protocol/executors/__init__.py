"""The one seam to the world: an executor takes a job (one problem, all its cells) and returns its records."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from protocol.grid import Cell

__all__ = ["Executor", "Job", "Produced"]


class Job(NamedTuple):
    model: str
    task: str
    problem: str
    cells: tuple[Cell, ...]


class Produced(NamedTuple):
    """records: cell -> (body without registration and phase, costs); trajectories: the side files they
    cite.
    """

    records: Mapping[Cell, tuple[dict[str, Any], dict[str, Any]]]
    trajectories: tuple[dict[str, Any], ...]


Executor: TypeAlias = Callable[[Job], Produced]
