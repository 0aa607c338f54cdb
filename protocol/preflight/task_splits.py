"""The split of a task as a lock has it: its problems, and what the task states about them."""

from collections.abc import Mapping
from typing import Any

import splits
from analysis.stats.methods import MIN_CONFIRMATORY
from protocol.formats.refusals import BadInput, Drifted
from protocol.tasks import Task, registry


def take_subset(full_split: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a full split that the table of a task requests with `dev` and `confirm`, or all of
    it. Raises BadInput for more problems than there are.
    """
    subset: dict[str, Any] = {}
    for part in ("dev", "confirm"):
        ids, requested = full_split[part], table.get(part)
        if requested is not None and requested > len(ids):
            raise BadInput(
                f"tasks: {table['name']}: {part}: {requested} problems are registered, but there are only "
                f"{len(ids)}; write {len(ids)} or fewer, or leave {part} out"
            )
        subset[part] = list(ids if requested is None else splits.subsample(ids, requested))
    selected_ids = {*subset["dev"], *subset["confirm"]}
    facts = {
        kind: {item: text for item, text in full_split[kind].items() if item in selected_ids}
        for kind in ("clusters", "levels")
        if kind in full_split
    }
    return {**full_split, **subset, **facts}


def read_split(name: str, task: Task) -> dict[str, Any]:
    """Return the full split of a task. Raises Drifted or BadInput unless the task makes what the manifest lists."""
    try:
        manifest = registry.split_manifest(name, task)
    except splits.SplitError as error:
        raise (Drifted if name in registry.TASKS else BadInput)(f"tasks: {name}: {error}") from error
    if tuple(manifest.ids) != tuple(task.ids()) or manifest.source != task.source():
        raise Drifted(f"tasks: {name}: is not the task from which splits/{name}.json was made; restore both")
    for part in ("confirm",) if registry.is_held_out(task) else ("dev", "confirm"):
        if not getattr(manifest, part):
            raise BadInput(f"tasks: {name}: its {part} split is empty; choose a larger task")
    source = {} if name in registry.TASKS else {"source": manifest.source}
    return {
        "manifest": manifest.digest,
        **source,
        "dev": list(manifest.dev),
        "confirm": list(manifest.confirm),
        **problem_facts(task),
    }


def problem_facts(task: Task) -> dict[str, Any]:
    """Return what a task states about its problems besides their ids; only the facts that it states."""
    facts = {
        "clusters": dict(registry.clusters(task)),
        "levels": dict(registry.levels(task)),
        "population": registry.population(task),
    }
    return {kind: values for kind, values in facts.items() if values}


def refuse_few_topics(items: Mapping[str, Any], tasks: Mapping[str, Task]) -> None:
    """Raise BadInput for a task with so many problems that a study of them may confirm, and with fewer topics.

    With fewer problems than that a study only screens, and its population names the topics.
    """
    for name, item in items.items():
        topics = registry.topics(tasks[name])
        count = len({topics[problem] for problem in item["confirm"] if problem in topics})
        if 0 < count < MIN_CONFIRMATORY <= len(item["confirm"]):
            raise BadInput(
                f"tasks.{name}: its {len(item['confirm'])} held-out problems are about only {count} topics, "
                f"so they count as {count} independent problems, too few for a valid interval; write "
                f"{registry.successor(name)}, whose problems have different topics, or confirm = "
                f"{MIN_CONFIRMATORY - 1} or less, which only screens"
            )


def checks_golds(task: Task) -> bool:
    """Whether registering checks the golds of a task with its grader: mathematical ones and those of files."""
    return task.grader == "math" or isinstance(task, registry.ChecksGolds)


def count_golds(item: Mapping[str, Any], *, is_encrypted: bool) -> dict[str, Any]:
    """Count the golds of a task that registering checks with its grader. Encrypted ones are not read."""
    confirm = 0 if is_encrypted else len(item["confirm"])
    return {"purpose": "gold self-check", "dev": len(item["dev"]), "confirm": confirm}
