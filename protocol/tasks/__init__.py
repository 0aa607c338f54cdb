"""Tasks: frozen sets of problems, generated or published, looked up by name.

problem = tasks.build("needle-768", item, count)      # count: tokens of a text under the model's tokenizer

A held-out problem can be built only with the open `HeldOut` of a claimed study. `tasks.get(name).build`
bypasses this guard, for tests and benchmarks. Use `Planned.tasks` for the tasks of a study, since they may be
files next to the protocol, and `held_out_guard` for their problems.

May import: splits, protocol.grading, protocol.harness, protocol.formats, protocol.lock, protocol.evidence; jinja2,
pyrage, transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.grading.grade import Gold
from protocol.tasks import held_out_guard
from protocol.tasks.problem import Problem
from protocol.tasks.registry import (
    TASKS,
    Task,
    UnknownTask,
    builtin_chance,
    data_digests,
    get,
    make_tasks,
    names,
    task_finder,
    task_name,
)

if TYPE_CHECKING:
    from protocol.evidence.held_out_guard import HeldOutGuard, JudgedHeldOut

__all__ = [
    "TASKS",
    "Problem",
    "Task",
    "UnknownTask",
    "build",
    "builtin_chance",
    "data_digests",
    "get",
    "gold",
    "make_tasks",
    "names",
    "task_finder",
    "task_name",
]


def build(
    name: str, problem_id: str, count: Callable[[str], int], held_out: HeldOutGuard | JudgedHeldOut | None = None
) -> Problem:
    """Return a problem of the task of this name in this installation. Raises as `get` and `held_out_guard.build` do."""
    return held_out_guard.build(get(name), name, problem_id, count, held_out)


def gold(name: str, problem_id: str, key: str | None = None, identity: Path | None = None) -> Gold:
    """Return an answer of the task of this name in this installation. Raises as `get` and `held_out_guard.gold` do."""
    return held_out_guard.gold(get(name), problem_id, key, identity)
