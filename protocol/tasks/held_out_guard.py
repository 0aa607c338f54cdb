"""The guard of held-out problems: they are built under an open claim or, again, after the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.formats.refusals import BadInput, Tampered
from protocol.grading.grade import Gold
from protocol.tasks.problem import Problem
from protocol.tasks.registry import PublishedTask, Task, split_units
from splits import CONFIRM, assign_bucket

if TYPE_CHECKING:
    from protocol.evidence.held_out_guard import HeldOutGuard, JudgedHeldOut


@dataclass(frozen=True)
class HeldOutProblems:
    """Held-out problems that were built once, and the guard that is checked at each access."""

    held_out: HeldOutGuard | JudgedHeldOut
    key: str | None  # of the claim under which they were built
    problems: Mapping[tuple[str, str, str], Problem]  # by model (for its tokenizer), task and id

    def problem(self, model: str, task: str, problem_id: str) -> Problem:
        """Return a problem. Raises as HeldOut.admit does, and Tampered when the claim was replaced by another key's."""
        if self.held_out.admit(task, problem_id) != self.key:
            raise Tampered(
                f"{self.held_out.folder}: its claim changed while it ran, so its problems are different; start again"
            )
        return self.problems[model, task, problem_id]


def build(
    task: Task,
    name: str,
    problem_id: str,
    count: Callable[[str], int],
    held_out: HeldOutGuard | JudgedHeldOut | None = None,
) -> Problem:
    """Return a problem of `task`, which a study calls `name`. A held-out problem comes from `held_out`, drawn with the
    key of its claim if there is one, decrypted with its identity if it is encrypted. count: tokens of a text.

    Raises BadInput for a held-out problem without `held_out`, and as its `admit` and Task.build do.
    """
    if _is_held_out(task, problem_id):
        if held_out is None:
            raise BadInput(f"problem {problem_id!r} of {name}: is held out; only confirm may read it")
        task = _open_task(task, held_out.admit(name, problem_id), held_out.identity)
    return task.build(problem_id, count)


def gold(task: Task, problem_id: str, key: str | None = None, identity: Path | None = None) -> Gold:
    """Return the answer of a problem and nothing else, for checking golds and regrading sealed records.

    key: of the claim, if held-out problems were drawn late. identity: a file with the private key, if they
    are encrypted. Raises as Task.build does.
    """
    if (key or identity) and _is_held_out(task, problem_id):
        task = _open_task(task, key, identity)
    return task.gold(problem_id)


def measure_size(
    task: Task, problem_id: str, count: Callable[[str], int], count_prompt: Callable[[Problem], tuple[int, int]]
) -> tuple[int, int]:
    """Return the length of a problem of a file and nothing else: held-out problems are checked too, since it
    is too late when they do not fit at confirm. count: tokens of a text; count_prompt: tokens of a prompt.
    """
    return count_prompt(task.build(problem_id, count))


def is_encrypted(task: Task) -> bool:
    """Whether the held-out problems of a task are encrypted here. Raises as `Dataset.is_encrypted` does."""
    return isinstance(task, PublishedTask) and task.is_encrypted()


def refuse_missing_key(tasks: Iterable[Task], identity: Path | None) -> None:
    """Raise BadInput unless `identity` opens the held-out problems of each sealed task, and for an identity
    that no task needs. Decrypts no problem, so it may run before the claim.
    """
    encrypted_tasks = [task for task in tasks if isinstance(task, PublishedTask) and task.is_encrypted()]
    for task in encrypted_tasks:
        task.refuse_other_key(identity)
    if identity is not None and not encrypted_tasks:
        raise BadInput(f"--identity {identity}: no task of this study is encrypted here; leave it out")


def _is_held_out(task: Task, problem_id: str) -> bool:
    """Whether every manifest's rule holds the problem out; those set aside for calibration are not among the ids."""
    return assign_bucket(split_units(task).get(problem_id, problem_id)) in CONFIRM and problem_id in task.ids()


def _open_task(task: Task, key: str | None, identity: Path | None) -> Task:
    if identity is not None and isinstance(task, PublishedTask):
        task = task.with_identity(identity)
    if key is None:
        return task
    from protocol.evidence.late_randomness import draw_number

    return task.redrawn(draw_number(key, "problems"))
