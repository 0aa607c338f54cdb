"""The problems of a study: the frozen split of each task, and golds that verify against themselves."""

from collections.abc import Mapping
from typing import Any

import splits
from protocol import grading
from protocol.evidence.refusals import BadInput, Drifted
from protocol.locked.planned import Planned
from protocol.tasks import Task, door, registry

__all__ = ["golds", "items", "refuse_wrong_golds", "scored"]


def items(planned: Planned) -> dict[str, Any]:
    """The frozen split of each task. Raises Drifted for an altered one, BadInput for an empty one."""
    known = planned.tasks
    return {task.name: _frozen(task.name, known[task.name]) for task in planned.protocol.tasks}


def _frozen(name: str, task: Task) -> dict[str, Any]:
    """The frozen split of a task, refused when the task no longer generates what the manifest lists."""
    try:
        manifest = registry.manifest(name, task)
    except splits.SplitError as altered:
        raise Drifted(f"tasks: {name}: {altered}") from altered
    if tuple(manifest.ids) != tuple(task.ids()) or manifest.source != task.source():
        raise Drifted(f"tasks: {name}: is not the task that splits/{name}.json was made from; restore both")
    for split in ("dev", "confirm"):
        if not getattr(manifest, split):
            raise BadInput(f"tasks: {name}: its {split} split is empty; choose a larger task")
    return {"manifest": manifest.digest, "dev": list(manifest.dev), "confirm": list(manifest.confirm)}


def golds(items: Mapping[str, Any], tasks: Mapping[str, Task]) -> dict[str, Any]:
    """How many mathematical golds registering verifies against themselves; nothing without any. Encrypted
    ones are not read, and the lock counts none.
    """
    found = {
        name: {
            "purpose": "gold self-check",
            "dev": len(item["dev"]),
            "confirm": 0 if door.is_encrypted(tasks[name]) else len(item["confirm"]),
        }
        for name, item in items.items()
        if tasks[name].grader == "math"
    }
    return {"golds": found} if found else {}


def scored(items: Mapping[str, Any], tasks: Mapping[str, Task]) -> dict[str, Any]:
    """The tasks whose answers have scores; nothing without any."""
    found = [name for name in items if grading.scores(tasks[name].grader)]
    return {"scored": found} if found else {}


def refuse_wrong_golds(items: Mapping[str, Any], tasks: Mapping[str, Task]) -> None:
    """Raises BadInput for a mathematical gold that does not verify against itself.

    A gold that its grader does not recognise would make every model wrong. Nothing else is done with those of
    held-out problems: they are no model's output, and the message does not show them. Encrypted ones are not
    read.
    """
    for name in (name for name in items if tasks[name].grader == "math"):
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
