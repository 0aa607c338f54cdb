"""Sentences about the size of a slot of each arm and about budgets in bytes, from a lock."""

from collections.abc import Mapping
from typing import Any

FIELD = "slot_bytes"  # the field of a lock
QUANTISED = "policies.quantised.states."  # a state of packed keys and values, as a lock names it


def describe_byte_budgets(lock: Mapping[str, Any]) -> str:
    """Explain budgets in bytes; empty if there are none."""
    entries = [entry for model_entry in lock.get(FIELD, {}).values() for entry in model_entry["arms"].values()]
    if not any("slots" in entry for entry in entries):
        return ""
    return (
        '; a budget in bytes counts keys and values of one lane over all layers and heads; "bytes of" a '
        "number of slots means the bytes of these slots as computed; each arm has as many slots as fit, in "
        "the form in which it stores them"
    )


def describe_slots(lock: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each model with sliding-window layers, and for each model and slot size, if the
    lock has them.
    """
    sentences = []
    for model, entry in lock.get("layers", {}).items():
        sentences.append(
            f"On {model}, slots are counted in the {entry['evictable']} layers of full attention. No budget "
            f"covers its {entry['sliding']} sliding-window layers: each keeps the last {entry['window']} "
            "tokens in every arm."
        )
    for model, model_entry in lock.get(FIELD, {}).items():
        arms = model_entry["arms"]
        for size, recent in sorted({(entry["bytes"], entry.get("recent", 0)) for entry in arms.values()}):
            alike = [arm for arm, entry in arms.items() if (entry["bytes"], entry.get("recent", 0)) == (size, recent)]
            facts = [f"On {model}, a slot of {', '.join(alike)} takes {size} bytes in each head of a layer"]
            facts += [f"its latest slots take another {recent} bytes, whatever their number"] if recent else []
            slots_by_budget: Mapping[str, int] = next((arms[arm]["slots"] for arm in alike if "slots" in arms[arm]), {})
            facts += [f"{budget} gives {slots} slots" for budget, slots in slots_by_budget.items()]
            waits = sorted({arms[arm]["interval"] for arm in alike if "interval" in arms[arm]})
            facts += [f"with {', '.join(map(str, waits))} more slots between events"] if waits else []
            sentences.append("; ".join(facts) + ".")
        packed = [arm for arm in arms if lock.get("policies", {}).get(arm, {}).get("state", "").startswith(QUANTISED)]
        if packed:
            sentences.append(
                f"On {model}, {', '.join(packed)} unpack the slots of one layer at a time for attention. The "
                "work space for this, the bytes of these slots as computed, is not part of any measured "
                "memory."
            )
    return sentences + _describe_mismatch(lock)


def _describe_mismatch(lock: Mapping[str, Any]) -> list[str]:
    """Warn if arms with different slot sizes have budgets of equal slots but are matched in bytes."""
    if lock["protocol"]["content"]["decision"].get("memory") != "bytes":
        return []
    arms_by_model = [model_entry["arms"].values() for model_entry in lock.get(FIELD, {}).values()]
    has_unlike_sizes = any(len({entry["bytes"] for entry in arms}) > 1 for arms in arms_by_model)
    if not has_unlike_sizes or any("slots" in entry for arms in arms_by_model for entry in arms):
        return []
    return [
        "Budgets give equal numbers of slots, but memory is matched in bytes: arms whose slots have "
        'different sizes will not match. Budgets in bytes ("bytes of 64") give each arm as many slots as fit.'
    ]
