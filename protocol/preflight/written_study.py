"""A study as it is written: what registering refuses in its files, and its protocol with other models.

Nothing here loads torch, so that these refusals take a second. A rehearsal makes the same checks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from protocol import grading
from protocol.evidence.registration import PROTOCOL
from protocol.formats import runners
from protocol.formats.progress_display import phase
from protocol.formats.refusals import BadInput
from protocol.plan import checks, toml_reader
from protocol.plan.design import Design
from protocol.preflight import frozen_problems, task_splits
from protocol.tasks.registry import PLUGINS
from protocol.workspace import drift, imports
from protocol.workspace.planned_study import PlannedStudy


class WrittenStudy(NamedTuple):
    data: bytes  # of protocol.toml
    planned: PlannedStudy
    items: dict[str, Any]  # the problems of each task, as a lock has them


def read_written_study(
    folder: Path,
    home: Path,
    *,
    opens_held_out: bool,
    is_decoded: bool = False,
    is_replication: bool = False,
    is_older: Callable[[bytes], bool] = lambda data: False,
) -> WrittenStudy:
    """Read protocol.toml and the problems of its tasks. Raises BadInput or Drifted for everything that the files of
    the study show and that registering refuses: for all that takes no policy to see before the policies are built.

    is_decoded: refuse a study that another harness runs. is_older: of the bytes of protocol.toml; the other
    arguments are those of `_freeze_checked_items`.
    """
    data, items = drift.read_protocol_bytes(folder), dict[str, Any]()

    def check_files(protocol: Design) -> None:
        if is_decoded and not protocol.decodes:
            raise BadInput(runners.describe_refusal(folder))
        planned = PlannedStudy(protocol, home, folder=folder)
        items.update(
            _freeze_checked_items(
                planned, opens_held_out=opens_held_out, is_replication=is_replication, is_older=is_older(data)
            )
        )

    with phase(f"reading {PROTOCOL} and its policies"):
        protocol = toml_reader.parse(data, str(folder / PROTOCOL), check_files)
    return WrittenStudy(data, PlannedStudy(protocol, home, folder=folder), items)


def _freeze_checked_items(
    planned: PlannedStudy, *, opens_held_out: bool, is_replication: bool = False, is_older: bool = False
) -> dict[str, Any]:
    """Return the problems of each task, as a lock has them.

    opens_held_out: check the answers of held-out published problems too; those of a user's file always are.
    is_replication: the method was accepted by the rules of its parent's time. is_older: so were a missing gate,
    memory and floor.
    """
    protocol = planned.protocol
    if not is_older:
        assert planned.folder is not None
        for require in (checks.require_gate, checks.require_memory, checks.require_floor):
            require(protocol, planned.folder / PROTOCOL)
    with phase("checking the splits of the tasks"):
        items = frozen_problems.freeze_items(planned)
        if protocol.decodes:
            refuse_unlocked_plugins(protocol)
    if not is_replication:
        task_splits.refuse_few_topics(items, planned.tasks)
    with phase("checking the method against the data"):
        from protocol.preflight import planned_size, rule_checks  # with scipy

        scored = frozen_problems.scored_tasks(items, planned)
        planned_size.refuse_few_clusters(items)
        rule_checks.refuse_method(protocol, items, scored, is_replication=is_replication)
        rule_checks.refuse_looks(protocol, items, scored)
    with phase("grading the gold answers"):
        opened = items if opens_held_out else {name: item | {"confirm": []} for name, item in items.items()}
        frozen_problems.refuse_wrong_golds(opened, planned.tasks)
    return items


def spread_ids(ids: Sequence[str], count: int) -> list[str]:
    """Return at most so many ids from all over the list: those of a level or cluster are adjacent, easy ones first."""
    count = min(count, len(ids))
    return [ids[index * len(ids) // count] for index in range(count)]


def with_stand_ins(protocol: Design, models: Mapping[str, str]) -> Design:
    """Return the protocol with the stand-ins' names. Raises BadInput if one stands in for two models."""
    if len(set(models.values())) < len(models):
        raise BadInput(
            "--stand-in: one model stands in for two, but the decision compares the two; name two different stand-ins"
        )
    rule_fields = {field: models.get(value, value) for field, value in protocol.decision.rule_settings.items()}
    decision = replace(protocol.decision, rule_settings=rule_fields)
    return replace(protocol, models=tuple(models.values()), decision=decision)


def refuse_unlocked_plugins(protocol: Design) -> None:
    """Raise BadInput for a plugin policy, task or grader whose code the lock would not contain."""
    names_by_group = {
        "kv_prereg.policies": {arm.policy for arm in protocol.arms if arm.policy is not None},
        PLUGINS.group: {task.name for task in protocol.tasks if task.file is None and task.lm_eval is None},
        grading.PLUGINS.group: {task.grader for task in protocol.tasks if task.grader is not None},
    }
    for group, names in names_by_group.items():
        imports.refuse_elsewhere(group, names)
