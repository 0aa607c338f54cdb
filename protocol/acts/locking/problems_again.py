"""Verify what a lock says of its problems: the split of each task, the golds that were read, the data.

The split of a built-in task is derived from its manifest in the bundle and from the installed manifest; that
of a file from the file beside the lock; that of a plugin task from the installed plugin. Needs no torch.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import splits
from protocol import grading
from protocol.acts.locking import form, frozen
from protocol.evidence.lock import bundle
from protocol.evidence.refusals import BadInput, Refusal
from protocol.evidence.run.registration import TASK_FILES, Registration
from protocol.locked import differences
from protocol.tasks import Task, registry
from protocol.tasks.dataset import Dataset

__all__ = ["data", "golds", "items", "scored"]

READ = (
    *("protocol/tasks/file_rows.py", "protocol/tasks/file_task.py", "protocol/acts/locking/frozen.py"),
    *("protocol/tasks/lm_eval_task.py", "protocol/tasks/ruler.py"),
)
"""The code that splits a file or a task of lm-eval, which need not be installed for that."""
SAID = ("protocol/tasks/association.py", "protocol/tasks/several.py", "protocol/acts/locking/frozen.py")
"""The code that locks the levels of built-in tasks."""


def items(study: Registration, untold: list[str]) -> Iterator[str]:
    """Yield one message for each fault in the field `items` of a lock; append to `undetermined` what cannot
    be checked here.
    """
    locked = study.lock.content
    tables = {registry.called(task): task for task in study.registered["tasks"]}
    yield from differences.between(sorted(locked["items"]), sorted(tables), "items")
    held = bundle.read(study.bundle, [_manifest(name) for name in locked["items"]])
    for name, item in locked["items"].items():
        table = tables.get(name, {"name": name})
        at = _manifest(name)
        if name in registry.TASKS or at in locked["sources"]:
            if hashlib.sha256(held.get(at, b"")).hexdigest() != locked["sources"].get(at):
                yield f"items.{name}: {at} is not in the locked sources as it was locked"
                continue
            said = _facts(locked, name)
            yield from _of_a_manifest(name, item, table, held[at], said, untold)
        else:
            yield from _of_a_task(study, item, table, untold)


def _facts(locked: Mapping[str, Any], name: str) -> dict[str, dict[str, str]]:
    """Return the facts that a built-in task states about its problems besides their ids. Earlier code did not
    lock them: for a lock of other code only those that the lock has.
    """
    if name not in registry.TASKS:
        return {}
    said, today = frozen.facts(registry.TASKS[name]), form.as_today(locked, SAID)
    return {kind: own for kind, own in said.items() if today or kind in locked["items"][name]}


def _of_a_manifest(
    name: str,
    item: Mapping[str, Any],
    table: Mapping[str, Any],
    held: bytes,
    said: Mapping[str, Any],
    untold: list[str],
) -> Iterator[str]:
    """Compare with the manifest in the bundle and with the installed one of that name, which is frozen."""
    try:
        bundled = splits.read(name, held, _manifest(name))
        whole = {"manifest": bundled.digest, "dev": list(bundled.dev), "confirm": list(bundled.confirm)}
        whole |= said
        due = frozen.sized(whole, table)
    except (splits.SplitError, BadInput) as wrong:
        yield f"items.{name}: {wrong}"
        return
    yield from differences.between(item, due, f"items.{name}")
    if name not in registry.TASKS:
        return
    try:
        own = splits.load(name).digest
    except splits.SplitError as altered:
        untold.append(str(altered))
    else:
        yield from differences.between(bundled.digest, own, f"items.{name}.manifest")


def _of_a_task(
    study: Registration, item: Mapping[str, Any], table: Mapping[str, Any], untold: list[str]
) -> Iterator[str]:
    """Compare with the file beside the lock, or with the installed task of that name."""
    name = str(table["name"])
    ours = not {"file", "lm_eval"}.isdisjoint(table)
    file = next((table[field] for field in TASK_FILES if field in table), None)
    if file and (wrong := _another(study, name, str(file))):
        yield wrong
        return
    try:
        due = frozen.sized(frozen.split(name, registry.one(table, study.folder)), table)
    except (Refusal, splits.SplitError) as refused:
        if ours and form.as_today(study.lock.content, READ):
            yield f"items.{name}: {refused}"
        else:
            untold.append(f"items.{name}: {refused}")
        return
    differing = differences.between(item, due, f"items.{name}")
    if ours and form.as_today(study.lock.content, READ):
        yield from differing
    else:  # another reader or another version of the plugin may give other problems
        untold += differing


def _another(study: Registration, name: str, file: str) -> str | None:
    """Return the fault if the file is not the locked one."""
    path = study.folder / file
    if Path(file).name != file or not path.is_file() or path.is_symlink():
        return f"data.{name}: {file} is not here; bring the file that was locked"
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    wrong = differences.between(study.lock.content["data"].get(name), found, f"data.{name}")
    return wrong[0] if wrong else None


def _manifest(task: str) -> str:
    return f"splits/{task}.json"


def golds(study: Registration) -> dict[str, Any]:
    """Return the expected field `checks.golds`. Golds of encrypted problems, whose data are in two files, are
    not read.
    """
    locked = study.lock.content
    if "golds" not in locked["checks"] and not form.as_today(locked):
        return {}
    return {
        name: {
            "purpose": "gold self-check",
            "dev": len(item["dev"]),
            "confirm": 0 if isinstance(locked["data"].get(name), Mapping) else len(item["confirm"]),
        }
        for name, item in locked["items"].items()
        if (task := _known(study).get(name)) is not None and frozen.checks_golds(task)
    }


def data(study: Registration) -> Iterator[str]:
    """Yield the faults of the field `data`. The source pins the data file of a published task, so that nobody
    can have registered another one; files that a protocol names are beside it.
    """
    locked, known = study.lock.content, _known(study)
    due: dict[str, Any] = {name: task.sha256 for name, task in known.items() if isinstance(task, Dataset)}
    read = {registry.called(task) for task in study.registered["tasks"] if "file" in task or "data" in task}
    found = {
        name: value
        for name, value in locked["data"].items()
        if (name in known and name not in read) or name not in locked["items"]
    }
    for name, value in found.items():
        if name in due and isinstance(value, Mapping) and value.keys() == {"dev", "confirm"}:
            due[name] = value  # encrypted for another key: the digests are those of this file alone
    yield from differences.between(found, due, "data")
    for name in sorted(read - locked["data"].keys()):
        yield f"data.{name}: missing, and the task reads a file"


def scored(study: Registration, untold: list[str]) -> Iterator[str]:
    """Yield the faults of the field `checks.scored`: the tasks whose answers may have partial scores. Append
    to `undetermined` those whose grader is not installed here.
    """
    said, known = study.lock.content["checks"].get("scored", []), _known(study)
    for task in study.registered["tasks"]:
        name = registry.called(task)
        if "lm_eval" not in task and name not in known:
            continue
        try:
            due = "lm_eval" in task or grading.scores(known[name].grader)
        except Refusal as refused:
            untold.append(f"checks.scored.{name}: {refused}")
            continue
        yield from differences.between(name in said, due, f"checks.scored.{name}")
    if wrong := sorted(set(said) - study.lock.content["items"].keys()):
        yield f"checks.scored: {differences.shown(wrong[0])} is no task"


def _known(study: Registration) -> dict[str, Task]:
    """Return the installed tasks and the files, whose golds and data can be derived."""
    own = (task for task in study.registered["tasks"] if "lm_eval" not in task)
    known = (task for task in own if "file" in task or registry.called(task) in registry.TASKS)
    return registry.made(known, study.folder)
