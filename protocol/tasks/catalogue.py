"""Every task by name.

A name that a registration cites keeps its meaning for good: a changed task is a new name.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Protocol

from protocol.evidence.refusals import BadInput
from protocol.tasks.association import Association
from protocol.tasks.needle import Needle
from protocol.tasks.problem import Problem
from protocol.tasks.recital import Recital

__all__ = ["TASKS", "Task", "UnknownTask", "get", "names"]


class Task(Protocol):
    """A frozen set of problems; `splits` says which of them are held out."""

    def ids(self) -> tuple[str, ...]: ...

    def build(self, problem_id: str, count: Callable[[str], int]) -> Problem: ...

    def source(self) -> str: ...


class UnknownTask(BadInput):
    """No task has this name."""


TASKS: Mapping[str, Task] = MappingProxyType(
    {
        # The first indices with which both splits of so small a task hold every depth.
        "needle-256": Needle(256, repetitions=4, first=7),
        "association-256": Association(256, repetitions=10),
        "needle-768": Needle(768, repetitions=8),
        "association-768": Association(768, repetitions=22),
        # At least 205 held-out problems each; indices go on where the small ones end, so none is in both.
        "needle-768-large": Needle(768, repetitions=72, first=8),
        "association-768-large": Association(768, repetitions=205, first=22),
        # The fewest repetitions with at least 200 held-out problems. Above 1,024 tokens CrystalCache makes
        # two chunks.
        "needle-1024": Needle(1024, repetitions=70),
        "association-1024": Association(1024, repetitions=165),
        "needle-1536": Needle(1536, repetitions=69),
        "association-1280": Association(1280, repetitions=172),
        "recital-448": Recital(448, lines=10, repetitions=347),
    }
)


def get(name: str) -> Task:
    """Raises UnknownTask, which suggests the nearest name."""
    if name not in TASKS:
        nearest = get_close_matches(name, TASKS, n=1, cutoff=0.0)[0]
        raise UnknownTask(f"task {name!r}: unknown; did you mean {nearest!r}?")
    return TASKS[name]


def names() -> tuple[str, ...]:
    return tuple(TASKS)
