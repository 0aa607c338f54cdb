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
from protocol.evidence import late_randomness, ledger
from protocol.evidence.registration import CLAIM, REGISTRATION_FOLDERS, SEAL, TASK_FILES, VERDICT, Registration
from protocol.formats import files
from protocol.formats.refusals import Refusal, Tampered
from protocol.tasks import registry
from protocol.tasks.file_task import FileTask
from protocol.tasks.lm_eval_task import LmEvalTask
from protocol.tasks.registry import Task
from protocol.workspace import drift

__all__ = ["claimed_registrations", "find_previously_opened", "has_lost_file"]

_CLAIM_EVENTS = ("claim", "attempt", "held-out")  # events of a ledger that are written only under a claim


def find_previously_opened(
    folder: Path, items: Mapping[str, Any], content: Mapping[str, Any], parent: Mapping[str, str] | None
) -> list[dict[str, Any]]:
    """Return the field `opened` of a lock: {name, lock, problems: ids by task} of every claimed registration
    that shares held-out problems with `items`. One whose lock cannot be read has neither lock nor problems;
    nor has, if this study has tasks of files, one whose own file is not here as it was locked.

    folder, content: of the registration and its protocol. parent: the study that this one replicates; it and
    its other replications are left out, because a replication names its parent anyway.
    """
    entries: list[dict[str, Any]] = []
    recipes = _todays_recipes()
    tasks_by_name = registry.make_tasks(_task_tables(content, items), folder)
    draws_late = late_randomness.FIELD in content
    for study in claimed_registrations(folder):
        try:
            locked = study.lock
        except Refusal:
            entries.append({"name": study.name, "lock": None, "problems": {}})
            continue
        related_locks = {locked.digest, (study.parent or {}).get("lock")}
        if parent is not None and parent["lock"] in related_locks:
            continue
        if shared_ids := _shared_problems(items, tasks_by_name, draws_late, study, recipes):
            entries.append({"name": study.name, "lock": locked.digest, "problems": shared_ids})
        elif any(isinstance(task, FileTask | LmEvalTask) for task in tasks_by_name.values()) and has_lost_file(study):
            entries.append({"name": study.name, "lock": None, "problems": {}})
    return entries


def has_lost_file(study: Registration) -> bool:
    """Whether a file with its questions is not here as it was locked, so that its problems are undetermined."""
    for table in study.protocol["tasks"]:
        if not any(field in table for field in TASK_FILES):
            continue
        name = registry.task_name(table)
        item = study.lock.content["items"].get(name, {})
        if _restore_task(study, name, item) is None:
            return True
    return False


def claimed_registrations(folder: Path) -> list[Registration]:
    """Return every other registration with a trace of a claim, by name: those in sibling folders of `folder`,
    and those below registrations/ and replications/ of its repository and of the repository with the locked
    sources.
    """
    own_folder = folder.resolve()
    shelves = {home / name for home in (own_folder.parent.parent, drift.ROOT) for name in REGISTRATION_FOLDERS}
    folders = {path.resolve() for shelf in shelves for depth in ("*/", "*/*/") for path in shelf.glob(depth)}
    folders |= {path.resolve() for path in own_folder.parent.glob("*/")}
    studies = (Registration(path) for path in sorted(folders - {own_folder}, key=lambda path: (path.name, path)))
    return [study for study in studies if _is_claimed(study)]


def _is_claimed(study: Registration) -> bool:
    """Whether held-out problems may have been read: there is a claim, or something that only a claim leaves."""
    try:
        if not study.is_registration():
            return False
        if any(study.has(name) for name in (CLAIM, SEAL, VERDICT)) or study.phase_folder("confirm").exists():
            return True
        path = study.folder / ledger.NAME
        return path.exists() and any(f'"event":"{event}"' in _read_text(path) for event in _CLAIM_EVENTS)
    except Tampered:  # not a plain file; `find_previously_opened` reports that it is unreadable
        return True
    except PermissionError:  # a sibling folder of another user
        return False


def _read_text(path: Path) -> str:
    """Read the raw text, so that a damaged ledger can be searched too."""
    return files.read(path, files.MAX_DOCUMENT_BYTES).decode(errors="replace")


def _shared_problems(
    items: Mapping[str, Any],
    tasks_by_name: Mapping[str, Task],
    draws_late: bool,
    earlier: Registration,
    recipes: Mapping[str, str],
) -> dict[str, list[str]]:
    """Return, by task of `items`, the held-out ids whose problem `earlier` holds out too. draws_late: whether
    this study has late randomness. recipes: by digest of a manifest.
    """
    content = earlier.lock.content
    draws_late = draws_late or late_randomness.FIELD in earlier.protocol
    held_out_sets = [
        _read_held_out(earlier, name, other_item, recipes)
        for name, other_item in content["items"].items()
        if not (draws_late and name not in content["data"])
    ]
    shared_ids = {}
    for task, item in items.items():
        opened = [
            problem
            for problem in item["confirm"]
            if any(_is_held_out(tasks_by_name[task], problem, held_out) for held_out in held_out_sets)
        ]
        if opened:
            shared_ids[task] = opened
    return shared_ids


class _HeldOut(NamedTuple):
    """The problems that a study held out of one task: by question if a file has it, else by id and recipe. Of
    a task that is no longer available neither is known, and only ids can be compared.
    """

    ids: frozenset[str]
    recipe: str | None
    questions: frozenset[str] | None


def _is_held_out(task: Task, problem: str, held_out: _HeldOut) -> bool:
    if isinstance(task, FileTask | LmEvalTask) and held_out.questions is not None:
        is_same_question = task.content_digest(problem) in held_out.questions
        if is_same_question or isinstance(task, FileTask):
            return is_same_question
    return problem in held_out.ids and held_out.recipe in (None, task.recipe())


def _read_held_out(earlier: Registration, name: str, item: Mapping[str, Any], recipes: Mapping[str, str]) -> _HeldOut:
    """Return the held-out problems of a task of an earlier study. recipes: by digest of a manifest."""
    ids = frozenset(item["confirm"])
    if item["manifest"] in recipes:
        return _HeldOut(ids, recipes[item["manifest"]], None)
    if (task := _restore_task(earlier, name, item)) is None:
        return _HeldOut(ids, None, None)
    questions = frozenset(map(task.content_digest, ids)) if isinstance(task, FileTask | LmEvalTask) else None
    return _HeldOut(ids, task.recipe(), questions)


def _restore_task(earlier: Registration, name: str, item: Mapping[str, Any]) -> Task | None:
    """Return a task of an earlier study as it was locked; None if its file or its plugin is missing here."""
    with suppress(Refusal, splits.SplitError):
        task = registry.task_finder(earlier.protocol["tasks"], earlier.folder)(name)
        if registry.split_manifest(name, task).digest == item.get("manifest"):
            return task
    return None


def _task_tables(content: Mapping[str, Any], items: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the tables of the tasks in the protocol."""
    tables = {task["name"]: task for task in content.get("tasks", ())}
    return [tables.get(name, {"name": name}) for name in items]


def _todays_recipes() -> dict[str, str]:
    """Return the recipe of every installed task with a manifest, by the digest of the manifest."""
    recipes = {}
    for name in registry.names():
        with suppress(splits.SplitError):
            digest = splits.load(name).digest  # first: without a manifest no plugin is loaded
            recipes[digest] = registry.get(name).recipe()
    return recipes
