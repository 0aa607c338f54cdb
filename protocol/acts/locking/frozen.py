"""The problems of a study: the frozen split of each task, and golds that their own grader accepts."""

from collections.abc import Mapping
from typing import Any

import splits
from protocol import grading
from protocol.evidence.bytes import canonical, files
from protocol.evidence.refusals import BadInput, Drifted
from protocol.locked.planned import Planned
from protocol.plan.design import TASK
from protocol.tasks import Task, door, registry
from protocol.tasks.file_task import FileTask
from protocol.tasks.lm_eval_task import LmEvalTask

__all__ = ["checks_golds", "facts", "golds", "items", "refuse_wrong_golds", "scored", "sized", "split"]

MOST = files.MOST_OF_A_DOCUMENT // 2  # of a lock


def items(planned: Planned) -> dict[str, Any]:
    """Return the split of each task with as many problems as the protocol requests. Raises Drifted for an
    altered split, BadInput for an empty one, for more problems than there are, for a problem that is both
    held out and for development, or held out twice, and for any error of the task.
    """
    known = planned.tasks
    found = {
        task.name: sized(split(task.name, known[task.name]), TASK.content(task))
        for task in planned.protocol.tasks
    }
    _refuse_one_problem_twice(planned, found)
    if (size := len(canonical.dumps(found))) > MOST:
        raise BadInput(
            f"tasks: their problems take {size} bytes of the lock, over {MOST}; give dev and confirm"
        )
    return found


def _refuse_one_problem_twice(planned: Planned, items: Mapping[str, Any]) -> None:
    """Compare the problems of user files by their question, whatever their file, task and id: a held-out
    problem that is also a development problem is not held out, and one that two tasks ask in the same way
    counts twice.
    """
    developed: dict[str, str] = {}
    held: dict[tuple[str, Any], str] = {}
    own = [
        (table, task)
        for table in planned.protocol.tasks
        if isinstance(task := planned.tasks[table.name], FileTask | LmEvalTask)
    ]
    for table, task in own:
        for item in items[table.name]["dev"]:
            developed.setdefault(task.asked(item), f"{item!a} of {table.name}")
    for table, task in own:
        way = table._replace(name="", file=None, data=None, max_new_tokens=1, dev=None, confirm=None)
        for item in items[table.name]["confirm"]:
            asked = task.asked(item)
            if other := developed.get(asked):
                raise BadInput(
                    f"tasks: {table.name}: {item!a} is held out and asks what {other} asks, for development; "
                    "leave one of the two out"
                )
            if (first := held.setdefault((asked, way), table.name)) != table.name:
                raise BadInput(
                    f"tasks: {table.name}: {item!a} is asked by {first} in the same way; a problem counts "
                    "once, so leave it out of one of the two"
                )


def sized(whole: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a full split that the table of a task requests with `dev` and `confirm`, or all of
    it. Raises BadInput for more problems than there are.
    """
    chosen: dict[str, Any] = {}
    for part in ("dev", "confirm"):
        ids, asked = whole[part], written.get(part)
        if asked is not None and asked > len(ids):
            raise BadInput(
                f"tasks: {written['name']}: {part}: {asked} problems are asked for and there are {len(ids)}; "
                f"write {len(ids)} or fewer, or leave {part} out"
            )
        chosen[part] = list(ids if asked is None else splits.first(ids, asked))
    here = {*chosen["dev"], *chosen["confirm"]}
    said = {
        kind: {item: text for item, text in whole[kind].items() if item in here}
        for kind in ("clusters", "levels")
        if kind in whole
    }
    return {**whole, **chosen, **said}


def split(name: str, task: Task) -> dict[str, Any]:
    """Return the full split of a task. Raises Drifted or BadInput if the task does not generate what the
    manifest lists.
    """
    try:
        manifest = registry.manifest(name, task)
    except splits.SplitError as altered:
        raise (Drifted if name in registry.TASKS else BadInput)(f"tasks: {name}: {altered}") from altered
    if tuple(manifest.ids) != tuple(task.ids()) or manifest.source != task.source():
        raise Drifted(f"tasks: {name}: is not the task that splits/{name}.json was made from; restore both")
    for part in ("dev", "confirm"):
        if not getattr(manifest, part):
            raise BadInput(f"tasks: {name}: its {part} split is empty; choose a larger task")
    source = {} if name in registry.TASKS else {"source": manifest.source}
    return {
        "manifest": manifest.digest,
        **source,
        "dev": list(manifest.dev),
        "confirm": list(manifest.confirm),
        **facts(task),
    }


def facts(task: Task) -> dict[str, dict[str, str]]:
    """Return what a task states about its problems besides their ids, by id; only the facts that it states.
    """
    said = {"clusters": dict(registry.clusters(task)), "levels": dict(registry.levels(task))}
    return {kind: own for kind, own in said.items() if own}


def checks_golds(task: Task) -> bool:
    """Whether registering checks the golds of a task with its grader: mathematical ones and those of files.
    """
    return task.grader == "math" or isinstance(task, FileTask)


def golds(items: Mapping[str, Any], tasks: Mapping[str, Task]) -> dict[str, Any]:
    """Count the golds that registering checks with their own grader; empty without any. Encrypted ones are
    not read, and the lock counts none of them.
    """
    found = {
        name: {
            "purpose": "gold self-check",
            "dev": len(item["dev"]),
            "confirm": 0 if door.is_encrypted(tasks[name]) else len(item["confirm"]),
        }
        for name, item in items.items()
        if checks_golds(tasks[name])
    }
    return {"golds": found} if found else {}


def scored(items: Mapping[str, Any], tasks: Mapping[str, Task]) -> dict[str, Any]:
    """Return the tasks whose answers have scores; empty without any."""
    found = [name for name in items if grading.scores(tasks[name].grader)]
    return {"scored": found} if found else {}


def refuse_wrong_golds(items: Mapping[str, Any], tasks: Mapping[str, Task]) -> None:
    """Raise BadInput for a mathematical gold that does not verify against itself, and for a gold of a file
    that its own grader does not accept.

    A gold that its grader does not recognise would make every model wrong. Golds of held-out problems are
    used for nothing else: they are no model's output, and the message does not show them. Encrypted ones are
    not read.
    """
    for name in (name for name in items if checks_golds(tasks[name])):
        if isinstance(written := tasks[name], FileTask):
            written.refuse_wrong_golds()
            continue
        task, hidden = tasks[name], door.is_encrypted(tasks[name])
        with grading.MathVerify() as grader:
            for item in (*items[name]["dev"], *([] if hidden else items[name]["confirm"])):
                gold = str(door.gold(task, item))
                alone = grader.grade(gold, rf"\boxed{{{gold}}}").status == "correct"
                if not alone or grader.compare(gold, gold) != "same":
                    raise BadInput(
                        f"tasks: {name}: the gold answer of {item} does not verify against itself; "
                        f"leave the task out or correct its data"
                    )
