"""Find the held-out problems of a protocol that an earlier registration of this repository opened, by
content.

No problem is built for it. A problem is identified by its id and the recipe of its task: tasks of other
names, sizes and splits that share both have the same problem. A problem of a file is identified by its
question, whatever its file and id; so is one of lm-eval, whichever task reads the row. A problem with late
randomness exists once, for one claim. Not detected are registrations in other places or that were deleted
(`status` names those that were committed), published problems under other ids, and built-in or lm-eval
problems that were copied into a file.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import splits
from protocol.evidence.bytes import files
from protocol.evidence.refusals import Refusal, Tampered
from protocol.evidence.run import late_randomness, ledger
from protocol.evidence.run.registration import CLAIM, SEAL, SHELVES, TASK_FILES, VERDICT, Registration
from protocol.locked import drift
from protocol.tasks import registry
from protocol.tasks.file_task import FileTask
from protocol.tasks.lm_eval_task import LmEvalTask
from protocol.tasks.registry import Task

__all__ = ["claimed", "lost", "opened_before"]

_EVENTS = ("claim", "attempt", "held-out")  # events of a ledger that are written only under a claim


def opened_before(
    folder: Path, items: Mapping[str, Any], content: Mapping[str, Any], parent: Mapping[str, str] | None
) -> list[dict[str, Any]]:
    """Return the field `opened` of a lock: {name, lock, problems: ids by task} of every claimed registration
    that shares held-out problems with `items`. One whose lock cannot be read has neither lock nor problems;
    nor has, if this study has tasks of files, one whose own file is not here as it was locked.

    folder, content: of the registration and its protocol. parent: the study that this one replicates; it and
    its other replications are left out, because a replication names its parent anyway.
    """
    found: list[dict[str, Any]] = []
    recipes = _recipes()
    own = registry.made(_written(content, items), folder)
    late = late_randomness.FIELD in content
    for study in claimed(folder):
        try:
            locked = study.lock
        except Refusal:
            found.append({"name": study.name, "lock": None, "problems": {}})
            continue
        repeated = {locked.digest, (study.parent or {}).get("lock")}
        if parent is not None and parent["lock"] in repeated:
            continue
        if shared := _shared(items, own, late, study, recipes):
            found.append({"name": study.name, "lock": locked.digest, "problems": shared})
        elif any(isinstance(task, FileTask | LmEvalTask) for task in own.values()) and lost(study):
            found.append({"name": study.name, "lock": None, "problems": {}})
    return found


def lost(study: Registration) -> bool:
    """Whether a file with its questions is not here as it was locked, so that its problems are undetermined.
    """
    for table in study.registered["tasks"]:
        if not any(field in table for field in TASK_FILES):
            continue
        name = registry.called(table)
        item = study.lock.content["items"].get(name, {})
        if _made(study, name, item) is None:
            return True
    return False


def claimed(folder: Path) -> list[Registration]:
    """Return every other registration with a trace of a claim, by name: those in sibling folders of `folder`,
    and those below registrations/ and replications/ of its repository and of the repository with the locked
    sources.
    """
    here = folder.resolve()
    shelves = {home / name for home in (here.parent.parent, drift.ROOT) for name in SHELVES}
    below = {path.resolve() for shelf in shelves for depth in ("*/", "*/*/") for path in shelf.glob(depth)}
    below |= {path.resolve() for path in here.parent.glob("*/")}
    studies = (Registration(path) for path in sorted(below - {here}, key=lambda path: (path.name, path)))
    return [study for study in studies if _is_claimed(study)]


def _is_claimed(study: Registration) -> bool:
    """Whether held-out problems may have been read: there is a claim, or something that only a claim leaves.
    """
    try:
        if not study.known():
            return False
        if any(study.has(name) for name in (CLAIM, SEAL, VERDICT)) or study.place("confirm").exists():
            return True
        path = study.folder / ledger.NAME
        return path.exists() and any(f'"event":"{event}"' in _text(path) for event in _EVENTS)
    except Tampered:  # not a plain file; `find_previously_opened` reports that it is unreadable
        return True
    except PermissionError:  # a sibling folder of another user
        return False


def _text(path: Path) -> str:
    """Read the raw text, so that a damaged ledger can be searched too."""
    return files.read(path, files.MOST_OF_A_DOCUMENT).decode(errors="replace")


def _shared(
    items: Mapping[str, Any],
    own: Mapping[str, Task],
    late: bool,
    earlier: Registration,
    recipes: Mapping[str, str],
) -> dict[str, list[str]]:
    """Return, by task of `items`, the held-out ids whose problem `earlier` holds out too. draws_late: whether
    this study has late randomness. recipes: by digest of a manifest.
    """
    content = earlier.lock.content
    late = late or late_randomness.FIELD in earlier.registered
    held = [
        _held(earlier, name, other, recipes)
        for name, other in content["items"].items()
        if not (late and name not in content["data"])
    ]
    found = {}
    for task, item in items.items():
        opened = [
            problem for problem in item["confirm"] if any(_in(own[task], problem, each) for each in held)
        ]
        if opened:
            found[task] = opened
    return found


class _Held(NamedTuple):
    """The problems that a study held out of one task: by question if a file has it, else by id and recipe. Of
    a task that is no longer available neither is known, and only ids can be compared.
    """

    ids: frozenset[str]
    recipe: str | None
    asked: frozenset[str] | None


def _in(task: Task, problem: str, held: _Held) -> bool:
    if isinstance(task, FileTask | LmEvalTask) and held.asked is not None:
        found = task.asked(problem) in held.asked
        if found or isinstance(task, FileTask):
            return found
    return problem in held.ids and held.recipe in (None, task.recipe())


def _held(earlier: Registration, name: str, item: Mapping[str, Any], recipes: Mapping[str, str]) -> _Held:
    """Return the held-out problems of a task of an earlier study. recipes: by digest of a manifest."""
    ids = frozenset(item["confirm"])
    if item["manifest"] in recipes:
        return _Held(ids, recipes[item["manifest"]], None)
    if (task := _made(earlier, name, item)) is None:
        return _Held(ids, None, None)
    asked = frozenset(map(task.asked, ids)) if isinstance(task, FileTask | LmEvalTask) else None
    return _Held(ids, task.recipe(), asked)


def _made(earlier: Registration, name: str, item: Mapping[str, Any]) -> Task | None:
    """Return a task of an earlier study as it was locked; None if its file or its plugin is missing here."""
    with suppress(Refusal, splits.SplitError):
        task = registry.finder(earlier.registered["tasks"], earlier.folder)(name)
        if registry.manifest(name, task).digest == item.get("manifest"):
            return task
    return None


def _written(content: Mapping[str, Any], items: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the tables of the tasks in the protocol."""
    tables = {task["name"]: task for task in content.get("tasks", ())}
    return [tables.get(name, {"name": name}) for name in items]


def _recipes() -> dict[str, str]:
    """Return the recipe of every installed task with a manifest, by the digest of the manifest."""
    found = {}
    for name in registry.names():
        with suppress(splits.SplitError):
            found[splits.load(name).digest] = registry.get(name).recipe()
    return found
