"""Tasks: frozen sets of problems, generated or published, found by name.

problem = tasks.build("needle-768", item, count)      # count: tokens of a text under the model's tokenizer

A held-out problem is built with the open `HeldOut` of a claimed study alone. `tasks.get(name).build` is the
builder behind this door, for tests and benchmarks. The tasks of a study are asked for by its protocol, since
they may be files that lie beside it: see `Planned.tasks`, and `door` for their problems.

May import: splits, protocol.grading, protocol.harness, protocol.evidence; pyrage, transformers.
"""

from collections.abc import Callable
from pathlib import Path

from protocol.evidence.run.held_out import HeldOut, Judged
from protocol.grading.grade import Gold
from protocol.tasks import door
from protocol.tasks.problem import Problem
from protocol.tasks.registry import TASKS, Task, UnknownTask, called, data, finder, get, made, names

__all__ = [
    "TASKS",
    "Problem",
    "Task",
    "UnknownTask",
    "build",
    "called",
    "data",
    "finder",
    "get",
    "gold",
    "made",
    "names",
]


def build(
    name: str, problem_id: str, count: Callable[[str], int], held_out: HeldOut | Judged | None = None
) -> Problem:
    """A problem of the task that has this name here. Raises as `get` and `door.build` do."""
    return door.build(get(name), name, problem_id, count, held_out)


def gold(name: str, problem_id: str, key: str | None = None, identity: Path | None = None) -> Gold:
    """An answer of the task that has this name here. Raises as `get` and `door.gold` do."""
    return door.gold(get(name), problem_id, key, identity)
