"""The content of a lock that follows from its protocol, the frozen manifests and the code. It is derived when
the lock is written and again before a claim, so that nobody can edit it in between.
"""

from collections.abc import Mapping
from typing import Any

from analysis.rules import RULES
from policies.structure import structure
from protocol import tasks
from protocol.lock import closure, frozen_problems
from protocol.plan import grid
from protocol.preflight import layer_support, same_slots, slot_sizes
from protocol.workspace.planned_study import PlannedStudy

__all__ = ["derive_checks", "derive_content"]


def derive_content(
    planned: PlannedStudy,
    data: bytes,
    items: Mapping[str, Any],
    sources: Mapping[str, str],
    first_event: int | None = None,
) -> dict[str, Any]:
    """Return the derived fields of a lock without `checks`; of `batch` the first event alone.

    data: protocol.toml; items: from `freeze_items`; sources: SHA-256 by path; first_event: the parent's, for
    a replication.
    """
    protocol, tasks_by_name = planned.protocol, planned.tasks
    extra_prompts = {
        arm.name: extra_prompt for arm in protocol.arms if (extra_prompt := protocol.extra_prompt(arm.name))
    }
    rule = RULES[protocol.decision.rule].source
    policies = {arm.name: structure(protocol.policy(arm.name)) for arm in protocol.arms}
    return {
        "protocol": {"sha256": closure.sha256_hex(data), "content": protocol.content()},
        "grid": [list(cell) for cell in grid.cells(protocol)],
        "policies": policies,
        **({"asked": extra_prompts} if extra_prompts else {}),
        **slot_sizes.slot_bytes_field(planned),
        **layer_support.layers_field(planned),
        "items": items,
        "batch": {"first_event": protocol.generation.steps_before_eviction if first_event is None else first_event},
        "data": tasks.data_digests(tasks_by_name),
        "rule": {"name": protocol.decision.rule, "source": rule, "sha256": sources[rule]},
    }


def derive_checks(planned: PlannedStudy, items: Mapping[str, Any], rule_results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the field `checks` of a lock: what the rule can detect (rule_results: from `check_rule`), the
    counts of golds, the tasks with scores, and the arms with the same slots.
    """
    problem_checks = frozen_problems.count_golds(items, planned.tasks) | frozen_problems.scored_tasks(
        items, planned.tasks
    )
    return {**rule_results, **problem_checks, "same_kept": same_slots.find_same_slots(planned, items)}
