"""What a lock needs from the policies, the models and the problems: read when the lock is written and again
before a claim, so that nobody can edit it in between.
"""

from collections.abc import Mapping
from typing import Any

from protocol import tasks
from protocol.lock import closure
from protocol.preflight import frozen_problems, layer_support, same_slots, slot_sizes
from protocol.workspace.planned_study import PlannedStudy


def read_inputs(planned: PlannedStudy, data: bytes, items: Mapping[str, Any]) -> dict[str, Any]:
    """Return these inputs of `derive_lock`. data: protocol.toml; items: from `freeze_items`."""
    protocol = planned.protocol
    extra_prompts = {arm.name: protocol.extra_prompt(arm.name) for arm in protocol.arms}
    return {
        "protocol": {"sha256": closure.sha256_hex(data)},
        "policies": {arm.name: protocol.policy_settings(arm.name) for arm in protocol.arms},
        "asked": {arm: text for arm, text in extra_prompts.items() if text},
        "slot_bytes": slot_sizes.measure_slots(planned),
        "layers": layer_support.read_layers(planned),
        "items": items,
        "data": tasks.data_digests(planned.tasks),
    }


def read_checks(planned: PlannedStudy, items: Mapping[str, Any], rule_results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of `derive_lock` in `checks`: what the rule can detect (rule_results: from
    `check_rule`), the counts of golds, the tasks with scores, and the arms with the same slots.
    """
    return {
        **rule_results,
        "golds": frozen_problems.count_all_golds(items, planned.tasks),
        "scored": frozen_problems.scored_tasks(items, planned),
        "same_kept": same_slots.find_same_slots(planned, items),
    }
