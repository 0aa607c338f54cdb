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
from protocol.evidence.registration import TASK_FILES, Registration
from protocol.formats.refusals import BadInput, Refusal
from protocol.lock import bundle, field_checks, frozen_problems
from protocol.tasks import Task, registry
from protocol.tasks.dataset import Dataset
from protocol.workspace import differences

__all__ = ["data_faults", "expected_golds", "item_faults", "scored_faults"]

FILE_SPLIT_SOURCES = (
    *("protocol/tasks/file_rows.py", "protocol/tasks/file_task.py", "protocol/lock/frozen_problems.py"),
    *("protocol/tasks/lm_eval_task.py", "protocol/tasks/ruler.py"),
)
"""The code that splits a file or a task of lm-eval, which need not be installed for that."""
LEVEL_SOURCES = ("protocol/tasks/association.py", "protocol/tasks/task_union.py", "protocol/lock/frozen_problems.py")
"""The code that locks the levels of built-in tasks."""


def item_faults(study: Registration, undetermined: list[str]) -> Iterator[str]:
    """Yield one message for each fault in the field `items` of a lock; append to `undetermined` what cannot
    be checked here.
    """
    locked = study.lock.content
    tables = {registry.task_name(task): task for task in study.protocol["tasks"]}
    yield from differences.diff_values(sorted(locked["items"]), sorted(tables), "items")
    bundled_files = bundle.read(study.bundle, [_manifest_path(name) for name in locked["items"]])
    for name, item in locked["items"].items():
        table = tables.get(name, {"name": name})
        path = _manifest_path(name)
        if name in registry.TASKS or path in locked["sources"]:
            if hashlib.sha256(bundled_files.get(path, b"")).hexdigest() != locked["sources"].get(path):
                yield f"items.{name}: {path} is not in the locked sources as it was locked"
                continue
            facts = _locked_facts(locked, name)
            yield from _manifest_faults(name, item, table, bundled_files[path], facts, undetermined)
        else:
            yield from _task_faults(study, item, table, undetermined)


def _locked_facts(locked: Mapping[str, Any], name: str) -> dict[str, dict[str, str]]:
    """Return the facts that a built-in task states about its problems besides their ids. Earlier code did not
    lock them: for a lock of other code only those that the lock has.
    """
    if name not in registry.TASKS:
        return {}
    facts, is_today = (
        frozen_problems.problem_facts(registry.TASKS[name]),
        field_checks.is_todays_sources(locked, LEVEL_SOURCES),
    )
    return {kind: values for kind, values in facts.items() if is_today or kind in locked["items"][name]}


def _manifest_faults(
    name: str,
    item: Mapping[str, Any],
    table: Mapping[str, Any],
    data: bytes,
    facts: Mapping[str, Any],
    undetermined: list[str],
) -> Iterator[str]:
    """Compare with the manifest in the bundle and with the installed one of that name, which is frozen."""
    try:
        bundled = splits.parse_manifest(name, data, _manifest_path(name))
        full_split = {"manifest": bundled.digest, "dev": list(bundled.dev), "confirm": list(bundled.confirm)}
        full_split |= facts
        expected = frozen_problems.take_subset(full_split, table)
    except (splits.SplitError, BadInput) as error:
        yield f"items.{name}: {error}"
        return
    yield from differences.diff_values(item, expected, f"items.{name}")
    if name not in registry.TASKS:
        return
    try:
        installed_digest = splits.load(name).digest
    except splits.SplitError as altered_manifest:
        undetermined.append(str(altered_manifest))
    else:
        yield from differences.diff_values(bundled.digest, installed_digest, f"items.{name}.manifest")


def _task_faults(
    study: Registration, item: Mapping[str, Any], table: Mapping[str, Any], undetermined: list[str]
) -> Iterator[str]:
    """Compare with the file beside the lock, or with the installed task of that name."""
    name = str(table["name"])
    is_ours = not {"file", "lm_eval"}.isdisjoint(table)
    file = next((table[field] for field in TASK_FILES if field in table), None)
    if file and (fault := _file_fault(study, name, str(file))):
        yield fault
        return
    try:
        expected = frozen_problems.take_subset(
            frozen_problems.read_split(name, registry.make_task(table, study.folder)), table
        )
    except (Refusal, splits.SplitError) as refusal:
        if is_ours and field_checks.is_todays_sources(study.lock.content, FILE_SPLIT_SOURCES):
            yield f"items.{name}: {refusal}"
        else:
            undetermined.append(f"items.{name}: {refusal}")
        return
    differing = differences.diff_values(item, expected, f"items.{name}")
    if is_ours and field_checks.is_todays_sources(study.lock.content, FILE_SPLIT_SOURCES):
        yield from differing
    else:  # another reader or another version of the plugin may give other problems
        undetermined += differing


def _file_fault(study: Registration, name: str, file: str) -> str | None:
    """Return the fault if the file is not the locked one."""
    path = study.folder / file
    if Path(file).name != file or not path.is_file() or path.is_symlink():
        return f"data.{name}: {file} is not here; bring the file that was locked"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    faults = differences.diff_values(study.lock.content["data"].get(name), digest, f"data.{name}")
    return faults[0] if faults else None


def _manifest_path(task: str) -> str:
    return f"splits/{task}.json"


def expected_golds(study: Registration) -> dict[str, Any]:
    """Return the expected field `checks.golds`. Golds of encrypted problems, whose data are in two files, are
    not read.
    """
    locked = study.lock.content
    if "golds" not in locked["checks"] and not field_checks.is_todays_sources(locked):
        return {}
    return {
        name: {
            "purpose": "gold self-check",
            "dev": len(item["dev"]),
            "confirm": 0 if isinstance(locked["data"].get(name), Mapping) else len(item["confirm"]),
        }
        for name, item in locked["items"].items()
        if (task := _known_tasks(study).get(name)) is not None and frozen_problems.checks_golds(task)
    }


def data_faults(study: Registration) -> Iterator[str]:
    """Yield the faults of the field `data`. The source pins the data file of a published task, so that nobody
    can have registered another one; files that a protocol names are beside it.
    """
    locked, tasks_by_name = study.lock.content, _known_tasks(study)
    expected: dict[str, Any] = {name: task.sha256 for name, task in tasks_by_name.items() if isinstance(task, Dataset)}
    file_tasks = {registry.task_name(task) for task in study.protocol["tasks"] if "file" in task or "data" in task}
    locked_digests = {
        name: value
        for name, value in locked["data"].items()
        if (name in tasks_by_name and name not in file_tasks) or name not in locked["items"]
    }
    for name, value in locked_digests.items():
        if name in expected and isinstance(value, Mapping) and value.keys() == {"dev", "confirm"}:
            expected[name] = value  # encrypted for another key: the digests are those of this file alone
    yield from differences.diff_values(locked_digests, expected, "data")
    for name in sorted(file_tasks - locked["data"].keys()):
        yield f"data.{name}: missing, and the task reads a file"


def scored_faults(study: Registration, undetermined: list[str]) -> Iterator[str]:
    """Yield the faults of the field `checks.scored`: the tasks whose answers may have partial scores. Append
    to `undetermined` those whose grader is not installed here.
    """
    locked_names, tasks_by_name = study.lock.content["checks"].get("scored", []), _known_tasks(study)
    for task in study.protocol["tasks"]:
        name = registry.task_name(task)
        if "lm_eval" not in task and name not in tasks_by_name:
            continue
        try:
            is_scored = "lm_eval" in task or grading.gives_scores(tasks_by_name[name].grader)
        except Refusal as refusal:
            undetermined.append(f"checks.scored.{name}: {refusal}")
            continue
        yield from differences.diff_values(name in locked_names, is_scored, f"checks.scored.{name}")
    if unknown := sorted(set(locked_names) - study.lock.content["items"].keys()):
        yield f"checks.scored: {differences.format_value(unknown[0])} is no task"


def _known_tasks(study: Registration) -> dict[str, Task]:
    """Return the installed tasks and the files, whose golds and data can be derived."""
    tables = (task for task in study.protocol["tasks"] if "lm_eval" not in task)
    known_tables = (task for task in tables if "file" in task or registry.task_name(task) in registry.TASKS)
    return registry.make_tasks(known_tables, study.folder)
