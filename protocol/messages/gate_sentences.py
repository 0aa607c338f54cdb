"""Sentences about the gate of a lock, and about what overrides the verdict of its rule."""

import itertools
from collections.abc import Mapping
from typing import Any

from analysis.rules import full_cache_gate

__all__ = ["describe_gate"]

JUDGE = "analysis/judgement/gate.py"  # in locks since gates and the verdict SCREENED exist


def describe_gate(lock: Mapping[str, Any]) -> list[str]:
    """Describe what the full cache must reach, with all numbers, and what holds for small studies and single
    models. For an older lock: that it has no gate.
    """
    content, models = lock["protocol"]["content"], lock["protocol"]["content"]["models"]
    if (registered := content.get("gate")) is None:
        sentences = ["No gate is registered: nothing asks whether the full cache can do the task."]
    else:
        pairs = itertools.product(models, (task["name"] for task in content["tasks"]))
        sentences = [
            "The gate: of the held-out lanes of the full cache, for each model and task, a share must be "
            "correct, and no more than a share may be cut by max_new_tokens before a correct answer; a lane "
            "without a grade is not correct. Otherwise the verdict is INCONCLUSIVE and the study "
            "uninformative, whatever the contrasts say.",
            *(
                f"Gate of {model} on {task}: {full_cache_gate.gate_requirement(registered, model, task).text}."
                for model, task in pairs
            ),
        ]
    if JUDGE not in lock["sources"]:
        return sentences
    sentences.append(
        "SCREENED takes the place of these words where some contrast has fewer than 200 problems: such a "
        "study decides nothing, whatever the rule says."
    )
    return [*sentences, f"What is decided is for {models[0]} alone."] if len(models) == 1 else sentences
