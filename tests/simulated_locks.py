"""Locks of protocols that no model has run: what follows from the design, beside made-up observations."""

import copy
from typing import Any

import finished_study

from analysis.rules import RULES
from analysis.stats.methods import resampling_problems
from policies.structure import structure
from protocol.lock import closure, installed_versions
from protocol.plan.design import Design
from protocol.preflight.derive import derive_lock

POWER = {
    "type_one_over_nominal": "1.000",
    "type_one_setting": "nothing",
    "minimal_detectable_effect": {"0.2": "0.100", "0.6": "0.200"},
}


def lock_content(design: Design, items: dict[str, Any], name: str = "study", **checks: Any) -> dict[str, Any]:
    """The content of the lock of a design. items: of every task, as in the lock; checks: of its field."""
    arms = [arm.name for arm in design.arms if design.decodes]
    sizes = {str(len(resampling_problems(item))) for item in items.values()}
    inputs = finished_study.lock_content(name) | {
        "release": installed_versions.release(),
        "policies": {arm: structure(design.policy(arm)) for arm in arms},
        "items": {task: {"manifest": "0" * 64, **item} for task, item in items.items()},
        "batch": {"lanes": dict.fromkeys(design.models, 1)},
        "full_use": {
            model: {task.name: {"held": dict.fromkeys(items[task.name]["dev"], 100)} for task in design.tasks}
            for model in design.models
        },
        "slot_bytes": {
            model: {"heads": 4, "width": 8, "arms": {arm: {"bytes": 64} for arm in arms}} for model in design.models
        },
        "sources": {RULES[design.decision.rule].source: "0" * 64},
        "weights": {model: {"model.safetensors": closure.sha256_hex(model.encode())} for model in design.models},
        "checks": copy.deepcopy(finished_study.CHECKS) | {"problems": dict.fromkeys(sizes, POWER)} | checks,
    }
    return derive_lock(design, design.promises(), inputs)


def plain_items(design: Design, problems: int, clusters: int = 0) -> dict[str, Any]:
    """Items of every task with so many held-out problems and three for development, in clusters if there are."""
    return {
        task.name: {
            "dev": [f"d{number}" for number in range(4)],
            "confirm": [f"p{number}" for number in range(problems)],
        }
        | ({"clusters": {f"p{number}": f"c{number % clusters}" for number in range(problems)}} if clusters else {})
        for task in design.tasks
    }
