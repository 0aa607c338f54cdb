"""The problems of a study: the frozen split of each task, and golds that verify against themselves."""

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

MOST = files.MOST_OF_A_DOCUMENT // 2  # bytes of a lock that problems may take


def items(planned: Planned) -> dict[str, Any]:
    """The split of each task, as many problems of it as are asked for. Raises Drifted for an altered one,
    BadInput for an empty one, for more problems than there are, for a problem that is held out and developed
    on, or held out twice, and as the task does.
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
    """By what is asked in files of one's own, whatever file, task and id it stands in: a held-out problem
    that is a development problem is not held out, and one that two tasks ask in the same way counts twice.
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
    """What of a whole split a study has that asks for `dev` and `confirm` problems, or for all of them.
    written: the table of its task. Raises BadInput for more than there are.
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
    """The whole split of a task, refused when the task no longer generates what the manifest lists."""
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
    """What else a task says of its problems, by id, where it says anything."""
    said = {"clusters": dict(registry.clusters(task)), "levels": dict(registry.levels(task))}
    return {kind: own for kind, own in said.items() if own}


def checks_golds(task: Task) -> bool:
    """Whether registering holds the golds of a task to its grader: mathematical ones and those of files."""
    return task.grader == "math" or isinstance(task, FileTask)


def golds(items: Mapping[str, Any], tasks: Mapping[str, Task]) -> dict[str, Any]:
    """How many golds registering holds to their own grader; nothing without any. Encrypted ones are not read,
    and the lock counts none.
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
    """The tasks whose answers have scores; nothing without any."""
    found = [name for name in items if grading.scores(tasks[name].grader)]
    return {"scored": found} if found else {}


def refuse_wrong_golds(items: Mapping[str, Any], tasks: Mapping[str, Task]) -> None:
    """Raises BadInput for a mathematical gold that does not verify against itself, and for one of a file that
    its own grader does not take.

    A gold that its grader does not recognise would make every model wrong. Nothing else is done with those of
    held-out problems: they are no model's output, and the message does not show them. Encrypted ones are not
    read.
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
