"""Find the held-out problems of a protocol that an earlier registration of this repository opened, by content.

A problem is identified by its id and the recipe of its task: tasks of other names, sizes and splits that share
both have the same problem. Where two tasks know the text of a problem without a tokenizer (chains, files, published
sets, lm-eval), problems of equal text are the same one too, whatever their ids, tasks, files and seeds are called.
Problems that late randomness drew are those of the claim that drew them; those that it will draw are new.
Not detected are registrations in other places or that were deleted (`status` names those that were committed),
development problems that somebody looked at, and generated retrieval problems that were copied into a file.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import splits
from protocol.evidence import late_randomness, ledger
from protocol.evidence.registration import CLAIM, REGISTRATION_FOLDERS, SEAL, TASK_FILES, VERDICT, Registration
from protocol.formats import files
from protocol.formats.refusals import Refusal, Tampered
from protocol.tasks import registry
from protocol.tasks.registry import ChecksGolds, Task
from protocol.workspace import drift

_CLAIM_EVENTS = ("claim", "attempt", "held-out")  # events of a ledger that are written only under a claim


@runtime_checkable
class _HasContent(Protocol):
    """A task that knows the text of its problems without a tokenizer."""

    def content_digest(self, problem_id: str) -> str: ...


def find_previously_opened(folder: Path, items: Mapping[str, Any], content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the field `opened` of a lock: {name, lock, problems: ids by task} of every claimed registration
    that shares held-out problems with `items`. One whose lock cannot be read has neither lock nor problems;
    nor has, if this study has tasks of files, one whose own file is not here as it was locked. Where late
    randomness will draw every problem there is none.

    folder, content: of the registration and its protocol.
    """
    tasks_by_name = registry.make_tasks(_task_tables(content, items), folder)
    if late_randomness.FIELD in content:
        tasks_by_name = {name: task for name, task in tasks_by_name.items() if not registry.is_generated(task)}
    if not tasks_by_name:
        return []
    has_files = any(isinstance(task, registry.HasData) for task in tasks_by_name.values())
    entries: list[dict[str, Any]] = []
    todays_tasks = _todays_tasks()
    for study in claimed_registrations(folder):
        try:
            locked = study.lock
        except Refusal:
            entries.append({"name": study.name, "lock": None, "problems": {}})
            continue
        if shared_ids := _shared_problems(items, tasks_by_name, study, todays_tasks):
            entries.append({"name": study.name, "lock": locked.digest, "problems": shared_ids})
        elif has_files and has_lost_file(study):
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
    """Return every other registration with a trace of a claim, by name: those in sibling folders of `folder`, and those
    below registrations/ and replications/ of its repository and of the repository with the locked sources.
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
    items: Mapping[str, Any], tasks_by_name: Mapping[str, Task], earlier: Registration, todays_tasks: Mapping[str, Task]
) -> dict[str, list[str]]:
    """Return, by task, the ids whose problem `earlier` holds out too. todays_tasks: by the digest of their manifest."""
    held_out_sets = [
        held_out
        for name, item in earlier.lock.content["items"].items()
        if (held_out := _read_held_out(earlier, name, item, todays_tasks)) is not None
    ]
    shared_ids = {}
    for name, task in tasks_by_name.items():
        confirm = items[name]["confirm"]
        opened = {problem for problem in confirm if any(held_out.names(task, problem) for held_out in held_out_sets)}
        if (rest := set(confirm) - opened) and isinstance(task, _HasContent):
            texts = frozenset[str]().union(*(held_out.texts for held_out in held_out_sets))
            opened |= {problem for problem in rest if texts and not texts.isdisjoint(_digest_texts(task, [problem]))}
        if opened:
            shared_ids[name] = [problem for problem in confirm if problem in opened]
    return shared_ids


@dataclass(frozen=True)
class _HeldOut:
    """The problems that a study held out of one task; of a task that is no longer available the ids alone."""

    ids: frozenset[str]
    task: Task | None

    @cached_property
    def texts(self) -> frozenset[str]:
        """The digests of their texts; none where the task cannot tell."""
        return _digest_texts(self.task, self.ids)

    def names(self, task: Task, problem: str) -> bool:
        """Whether it holds out the problem with this id of `task`: ids of a file mean nothing in another one."""
        if problem not in self.ids or self.task is None:
            return problem in self.ids
        return not isinstance(task, ChecksGolds) and self.task.recipe() == task.recipe()


def _digest_texts(task: Task | None, problems: Iterable[str]) -> frozenset[str]:
    """Return the digests of the texts of problems; none where the task cannot tell, as for encrypted ones."""
    if not isinstance(task, _HasContent):
        return frozenset()
    try:
        if registry.is_generated(task):
            return _digest_generated(task, frozenset(problems))
        return frozenset(map(task.content_digest, problems))
    except Refusal:
        return frozenset()


@cache  # many studies hold out the same problems, and a command compares several times
def _digest_generated(task: _HasContent, problems: frozenset[str]) -> frozenset[str]:
    return frozenset(map(task.content_digest, problems))


def _read_held_out(
    earlier: Registration, name: str, item: Mapping[str, Any], todays_tasks: Mapping[str, Task]
) -> _HeldOut | None:
    """Return the held-out problems of a task of an earlier study; None where its late value is unknown."""
    ids, draws_late = frozenset(item["confirm"]), late_randomness.FIELD in earlier.protocol
    task = todays_tasks.get(item["manifest"]) or _restore_task(earlier, name, item)
    if not draws_late or (task is None and name in earlier.lock.content["data"]):
        return _HeldOut(ids, task)
    if task is not None and not registry.is_generated(task):
        return _HeldOut(ids, task)
    with suppress(Refusal):
        key = earlier.late_key()
        if task is not None and key is not None:
            return _HeldOut(ids, task.redrawn(late_randomness.draw_number(key, "problems")))
    return None


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


def _todays_tasks() -> dict[str, Task]:
    """Return every installed task with a manifest, by the digest of the manifest."""
    tasks = {}
    for name in registry.names():
        with suppress(splits.SplitError):
            digest = splits.load(name).digest  # first: without a manifest no plugin is loaded
            tasks[digest] = registry.get(name)
    return tasks
