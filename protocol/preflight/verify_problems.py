"""Derive what a lock says of its problems: the split of each task, the data, the golds that were read, the scores.

The split of a built-in task is derived from its manifest in the bundle and from the installed manifest; that
of a file from the file beside the lock; that of a plugin task from the installed plugin. Needs no torch.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import splits
from protocol.evidence.registration import TASK_FILES, Registration
from protocol.formats import files
from protocol.formats.refusals import BadInput, Refusal
from protocol.lock import lock
from protocol.preflight import task_splits
from protocol.tasks import Task, registry
from protocol.workspace import differences


class ProblemFields(NamedTuple):
    """The fields of a lock about problems, with the locked value where it cannot be told here."""

    items: dict[str, Any]
    data: dict[str, Any]
    golds: dict[str, Any]  # of `checks`
    scored: list[str]  # of `checks`
    faults: list[str]  # of what cannot be derived because it is wrong
    undetermined: list[str]  # what cannot be told, and why


def derive_problem_fields(study: Registration) -> ProblemFields:
    """Derive the fields about problems. What other code than this release's gives otherwise is undetermined."""
    locked, checks = study.lock.content, study.lock.content["checks"]
    fields = ProblemFields({}, {}, {}, [], [], [])
    tables = {registry.task_name(table): table for table in study.protocol["tasks"]}
    for name, table in tables.items():
        task = _known_task(study, name, table)
        if name not in locked["items"]:
            continue
        digest = _data_digest(study, table, task, fields.faults)
        if digest is not None:
            fields.data[name] = digest
        path = _manifest_path(name)
        if name in registry.TASKS or path in locked["sources"]:
            fields.items[name] = _item_of_manifest(study, table, study.source_files.get(path, b""), fields)
        else:
            fields.items[name] = _item_of_task(study, table, fields)
        if task is None:
            fields.golds.update({name: checks["golds"][name]} if name in checks["golds"] else {})
        elif task_splits.checks_golds(task):
            is_encrypted = isinstance(digest, Mapping)
            fields.golds[name] = task_splits.count_golds(fields.items[name], is_encrypted=is_encrypted)
        if "outcome" in study.protocol or _is_scored(table, task, name in checks["scored"], fields.undetermined):
            fields.scored.append(name)
    return fields


def _known_task(study: Registration, name: str, table: Mapping[str, Any]) -> Task | None:
    """Return an installed task or that of a file, whose golds and data can be derived; else None."""
    if "lm_eval" in table or not ("file" in table or name in registry.TASKS):
        return None
    return registry.make_task(table, study.folder)


def _item_of_manifest(
    study: Registration, table: Mapping[str, Any], data: bytes, fields: ProblemFields
) -> dict[str, Any]:
    """Return the split by the manifest in the bundle, which has to be the installed one of that name."""
    name = registry.task_name(table)
    path = _manifest_path(name)
    locked_item: dict[str, Any] = study.lock.content["items"][name]
    if hashlib.sha256(data).hexdigest() != study.lock.content["sources"].get(path):
        fields.faults.append(
            f"items.{name}: {path} differs from its locked version in the sources, or is missing there"
        )
        return locked_item
    facts: dict[str, Any] = {}
    if name in registry.TASKS:
        facts = task_splits.problem_facts(registry.TASKS[name])
        if lock.is_of_other_code(study.lock):  # which may not have stated them
            facts = {kind: values for kind, values in facts.items() if kind in locked_item}
    try:
        bundled = splits.parse_manifest(name, data, path)
        full_split = {"manifest": bundled.digest, "dev": list(bundled.dev), "confirm": list(bundled.confirm)}
        item = task_splits.take_subset(full_split | facts, table)
    except (splits.SplitError, BadInput) as error:
        fields.faults.append(f"items.{name}: {error}")
        return locked_item
    if name in registry.TASKS:
        try:
            item["manifest"] = splits.load(name).digest
        except splits.SplitError as altered_manifest:
            fields.undetermined.append(str(altered_manifest))
    return item


def _item_of_task(study: Registration, table: Mapping[str, Any], fields: ProblemFields) -> dict[str, Any]:
    """Return the split of the file beside the lock, or of the installed task of that name."""
    name = registry.task_name(table)
    locked_item: dict[str, Any] = study.lock.content["items"][name]
    if any(fault.startswith(f"data.{name}:") for fault in fields.faults):
        return locked_item
    is_ours = not {"file", "lm_eval"}.isdisjoint(table) and not lock.is_of_other_code(study.lock)
    try:
        split = task_splits.read_split(name, registry.make_task(table, study.folder))
        item = task_splits.take_subset(split, table)
    except (Refusal, splits.SplitError) as refusal:
        (fields.faults if is_ours else fields.undetermined).append(f"items.{name}: {refusal}")
        return locked_item
    if is_ours:
        return item
    # Another reader, or another version of the plugin, may give other problems.
    fields.undetermined.extend(differences.diff_values(locked_item, item, f"items.{name}"))
    return locked_item


def _data_digest(study: Registration, table: Mapping[str, Any], task: Task | None, faults: list[str]) -> Any:
    """Return the entry of a task in the field `data`, None for a task without data.

    The source pins the data file of a published task, so that nobody can have registered another one; files
    that a protocol names are beside it. Data that are encrypted for another key have digests of their files.
    """
    name = registry.task_name(table)
    locked = study.lock.content["data"].get(name)
    if file := next((str(table[field]) for field in TASK_FILES if field in table), None):
        from protocol.tasks import file_rows

        path = study.folder / file
        if Path(file).name != file or not path.is_file() or path.is_symlink():
            faults.append(f"data.{name}: {file} is not here; restore the file that was locked")
            return locked
        digest = files.plain_sha256(path, file_rows.MAX_BYTES)
        faults.extend(differences.diff_values(locked, digest, f"data.{name}"))
        return locked
    if not isinstance(task, registry.PublishedTask):
        return None if task is not None else locked
    is_encrypted = isinstance(locked, Mapping) and locked.keys() == {"dev", "confirm"}
    return locked if is_encrypted else task.sha256


def _is_scored(table: Mapping[str, Any], task: Task | None, locked: bool, undetermined: list[str]) -> bool:
    """Whether the answers of a task may have scores; as `locked` for a task or grader that is not here."""
    if "lm_eval" in table or task is None:
        return "lm_eval" in table or locked
    try:
        return registry.gives_scores(task)
    except Refusal as refusal:
        undetermined.append(f"checks.scored.{registry.task_name(table)}: {refusal}")
        return locked


def _manifest_path(task: str) -> str:
    return f"splits/{task}.json"
