"""Sentences about the size of a slot of each arm and about budgets in bytes, from a lock."""

from collections.abc import Mapping
from typing import Any

__all__ = ["FIELD", "forms", "words"]

FIELD = "slot_bytes"  # the field of a lock


def forms(lock: Mapping[str, Any]) -> str:
    """Explain budgets in bytes; empty if there are none."""
    every = [one for own in lock.get(FIELD, {}).values() for one in own["arms"].values()]
    if not any("slots" in one for one in every):
        return ""
    return (
        "; in bytes: keys and values of one lane over all layers and heads; bytes of: those of so many slots "
        "as computed; of either each arm has as many slots, as it stores them, as fit"
    )


def words(lock: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each model with sliding-window layers, and for each model and slot size, if the
    lock has them.
    """
    said = []
    for model, one in lock.get("layers", {}).items():
        said.append(
            f"On {model}, slots are of the {one['evictable']} layers of full attention; no budget covers "
            f"its {one['sliding']} sliding-window layers: each keeps the last {one['window']} "
            "tokens in every arm."
        )
    for model, own in lock.get(FIELD, {}).items():
        arms = own["arms"]
        for size in sorted({one["bytes"] for one in arms.values()}):
            alike = [arm for arm, one in arms.items() if one["bytes"] == size]
            facts = [f"On {model}, a slot of {', '.join(alike)} takes {size} bytes in each head of a layer"]
            given: Mapping[str, int] = next((arms[arm]["slots"] for arm in alike if "slots" in arms[arm]), {})
            facts += [f"{budget} is {slots} of them" for budget, slots in given.items()]
            waits = sorted({arms[arm]["interval"] for arm in alike if "interval" in arms[arm]})
            facts += [f"with {', '.join(map(str, waits))} more between events"] if waits else []
            said.append("; ".join(facts) + ".")
    return said + _unlike(lock)


def _unlike(lock: Mapping[str, Any]) -> list[str]:
    """Warn if arms with different slot sizes have budgets of equal slots but are matched in bytes."""
    if lock["protocol"]["content"]["decision"].get("memory") != "bytes":
        return []
    of_models = [own["arms"].values() for own in lock.get(FIELD, {}).values()]
    unlike = any(len({one["bytes"] for one in arms}) > 1 for arms in of_models)
    if not unlike or any("slots" in one for arms in of_models for one in arms):
        return []
    return [
        "Budgets are equal slots, and memory is matched in bytes: arms whose slots take other bytes will not "
        'match. Budgets in bytes ("bytes of 64") give each arm as many slots as fit.'
    ]
