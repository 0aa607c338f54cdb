"""The one seam to the world: an executor takes jobs (some problems, all their cells) and returns records.

May import: policies, protocol.plan, protocol.locked, protocol.engine, protocol.tasks, protocol.models,
protocol.grading, protocol.layers, protocol.evidence; torch, transformers, submitit, ray.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from protocol.plan.grid import Cell

if TYPE_CHECKING:  # with torch
    from protocol.engine import Doing

__all__ = ["Execute", "Executor", "Job", "Loading", "Produced", "Spread", "Told"]


class Job(NamedTuple):
    model: str
    task: str
    problems: tuple[str, ...]
    cells: tuple[Cell, ...]


class Produced(NamedTuple):
    """records: (cell, problem) -> (body without registration and phase, costs). trajectories: the content of
    the one side file that the bodies cite, empty where none does. seconds: that the job took, without loading
    its model. where: what ran it, as costs say it; the executor that hands it over knows.
    """

    records: Mapping[tuple[Cell, str], tuple[dict[str, Any], dict[str, Any]]]
    trajectories: tuple[dict[str, Any], ...]
    seconds: float = 0.0
    where: Mapping[str, str] = MappingProxyType({})


class Loading(NamedTuple):
    """What an executor does before the first job of a model."""

    model: str


class Spread(NamedTuple):
    """How jobs stand that several processes run. running: where. pending: workers that have not begun.
    waiting: jobs that nobody has taken yet; ready: results that wait for one before them. refused: why the
    first worker that refused did; empty where none did.
    """

    running: tuple[str, ...]
    pending: int
    waiting: int
    ready: int
    refused: str = ""


Told: TypeAlias = "Loading | Doing | Spread"
"""What is said of a job while it runs, and is in no record."""
Execute: TypeAlias = Callable[[Job], Produced]
Executor: TypeAlias = Callable[[Iterable[Job]], Iterator[Produced]]
"""Results in the order of the jobs. What comes back of a job does not depend on the others."""
