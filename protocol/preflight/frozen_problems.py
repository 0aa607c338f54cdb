"""The problems of a study: the frozen split of each task, and golds that their own grader accepts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from protocol.formats import canonical, files
from protocol.formats.refusals import BadInput
from protocol.grading.mathverify import MathVerify
from protocol.preflight import task_splits
from protocol.tasks import Task, held_out_guard, registry
from protocol.tasks.file_task import FileTask
from protocol.tasks.lm_eval_task import LmEvalTask
from protocol.workspace.planned_study import PlannedStudy

MAX_PROBLEM_BYTES = files.MAX_DOCUMENT_BYTES // 2  # of a lock


def freeze_items(planned: PlannedStudy) -> dict[str, Any]:
    """Return the split of each task with as many problems as the protocol requests. Raises Drifted for an
    altered split, BadInput for an empty one, for more problems than there are, for a problem that is both
    held out and for development, or held out twice, and for any error of the task.
    """
    tasks_by_name = planned.tasks
    frozen = {
        table["name"]: task_splits.take_subset(
            task_splits.read_split(table["name"], tasks_by_name[table["name"]]), table
        )
        for table in planned.protocol.content()["tasks"]
    }
    _refuse_duplicates(planned, frozen)
    if (size := len(canonical.dumps(frozen))) > MAX_PROBLEM_BYTES:
        raise BadInput(
            f"tasks: their problems take {size} bytes of the lock, more than the limit of "
            f"{MAX_PROBLEM_BYTES}; reduce dev and confirm"
        )
    return frozen


def _refuse_duplicates(planned: PlannedStudy, items: Mapping[str, Any]) -> None:
    """Compare the problems of user files by their question, whatever their file, task and id: a held-out problem that
    is also a development problem is not held out, and one that two tasks ask in the same way counts twice.
    """
    developed: dict[str, str] = {}
    held_out: dict[tuple[str, Any], str] = {}
    user_tasks = [
        (table, task)
        for table in planned.protocol.tasks
        if isinstance(task := planned.tasks[table.name], FileTask | LmEvalTask)
    ]
    for table, task in user_tasks:
        for item in items[table.name]["dev"]:
            developed.setdefault(task.content_digest(item), f"{item!a} of {table.name}")
    for table, task in user_tasks:
        query_settings = replace(table, name="", file=None, data=None, max_new_tokens=1, dev=None, confirm=None)
        for item in items[table.name]["confirm"]:
            question = task.content_digest(item)
            if development_problem := developed.get(question):
                raise BadInput(
                    f"tasks: {table.name}: the held-out problem {item!a} is the same as the development "
                    f"problem {development_problem}; leave one of the two out"
                )
            if (first_task := held_out.setdefault((question, query_settings), table.name)) != table.name:
                raise BadInput(
                    f"tasks: {table.name}: {item!a} is also a problem of {first_task}; a problem counts only "
                    "once, so leave it out of one of the two"
                )


def count_all_golds(items: Mapping[str, Any], tasks: Mapping[str, Task]) -> dict[str, Any]:
    """Count the golds that registering checks, by task."""
    return {
        name: task_splits.count_golds(item, is_encrypted=held_out_guard.is_encrypted(tasks[name]))
        for name, item in items.items()
        if task_splits.checks_golds(tasks[name])
    }


def scored_tasks(items: Mapping[str, Any], planned: PlannedStudy) -> list[str]:
    """Return the tasks whose answers have scores: with an outcome of its own, all tasks of a study."""
    return [name for name in items if planned.protocol.outcome or registry.gives_scores(planned.tasks[name])]


def refuse_wrong_golds(items: Mapping[str, Any], tasks: Mapping[str, Task]) -> None:
    """Raise BadInput for a mathematical gold that does not verify against itself, and for a gold of a file
    that its own grader does not accept.

    A gold that its grader does not recognise would make every model wrong. Golds of held-out problems are used for
    nothing else: they are no model's output, and the message does not show them. Encrypted ones are not read.
    """
    for name in (name for name in items if task_splits.checks_golds(tasks[name])):
        if isinstance(file_task := tasks[name], FileTask):
            file_task.refuse_wrong_golds()
            continue
        task, is_encrypted = tasks[name], held_out_guard.is_encrypted(tasks[name])
        with MathVerify() as grader:
            for item in (*items[name]["dev"], *([] if is_encrypted else items[name]["confirm"])):
                gold = str(held_out_guard.gold(task, item))
                is_correct = grader.grade(gold, rf"\boxed{{{gold}}}").status == "correct"
                if not is_correct or grader.compare(gold, gold) != "same":
                    raise BadInput(
                        f"tasks: {name}: the gold answer of {item} is not graded as correct by its own "
                        "grader; leave the task out or correct its data"
                    )
