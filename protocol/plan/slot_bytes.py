"""Bytes of a slot by model and arm, by which budgets in bytes are divided.

An arm that stores slots in another form than the model computes them, quantized or with a weight, gets more
or fewer slots for the same bytes. The same holds for the growth between two evictions, by one interval: in a
cell with a budget in bytes, the interval counts slots as computed, and an arm evicts after as many tokens as
fit into their bytes. The lock stores the results; this file has the arithmetic.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from analysis.rules.rule import AS_COMPUTED
from protocol.plan.budget import Budget, Slot, parse_bytes
from protocol.plan.design import Design

if TYPE_CHECKING:
    from policies import Policy

__all__ = [
    "FIELD",
    "Widths",
    "faults",
    "is_needed",
    "lock_entry",
    "parse_byte_budgets",
    "read_widths",
    "scale_interval",
    "slot_of",
]

FIELD = "slot_bytes"  # the field of a lock
ITEM_BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2}  # bytes per number, by registered dtype
PLAIN_SCHEDULE = "policies.cadence.Cadence()"


class Widths(NamedTuple):
    """Dimensions of the cache of one model."""

    heads: int  # layers times KV heads
    width: int  # numbers in a key, and in a value, of one head in one layer

    def slot(self, stored: int, dtype: str) -> Slot:
        """Return the size of a slot. stored: its bytes for one head in one layer, as an arm stores it."""
        return Slot(self.heads, 2 * self.width * ITEM_BYTES[dtype], stored)


def slot_of(protocol: Design, arm: str, widths: Widths) -> Slot:
    """Return the slot size of an arm. Raises ValueError for a state that does not fit these widths."""
    dtype = protocol.generation.dtype
    return widths.slot(protocol.policy(arm).state.slot_bytes(widths.width, ITEM_BYTES[dtype]), dtype)


def parse_byte_budgets(budgets: Iterable[str]) -> dict[str, Budget]:
    """Return those budgets that are in bytes, by their text."""
    parsed = ((text, parse_bytes(text)) for text in budgets)
    return {text: budget for text, budget in parsed if budget is not None}


def is_needed(budgets: Iterable[str], policies: Mapping[str, Mapping[str, str]]) -> bool:
    """Return whether a lock needs this field. policies: the settings of every arm, by path."""
    return bool(parse_byte_budgets(budgets)) or not all(map(_stores_as_computed, policies.values()))


def _stores_as_computed(settings: Mapping[str, str]) -> bool:
    return settings.get("state", AS_COMPUTED[0]) in AS_COMPUTED


def scale_interval(policy: "Policy", slot: Slot) -> "Policy":
    """Return the policy with its interval scaled, for a cell with a budget in bytes. Other eviction schedules
    than the plain one keep their interval, which may mean more than memory: ThinKV's is a segment of text.
    """
    from policies import Cadence

    cadence = policy.cadence
    if type(cadence) is not Cadence or cadence.interval is None:
        return policy
    return replace(policy, cadence=replace(cadence, interval=_scaled_interval(cadence.interval, slot)))


def _scaled_interval(interval: int, slot: Slot) -> int:
    return max(1, slot.as_many(interval))


def lock_entry(
    widths: Widths,
    dtype: str,
    stored_bytes: Mapping[str, int],
    budgets: Iterable[str],
    policies: Mapping[str, Mapping[str, str]],
) -> dict[str, Any]:
    """Return the entry of one model in a lock. stored_bytes: bytes of a slot of one head in one layer, by
    arm. budgets, policies: as in the lock.
    """
    sizes = parse_byte_budgets(budgets)
    arms: dict[str, Any] = {}
    for arm, size in stored_bytes.items():
        slot, settings = widths.slot(size, dtype), policies[arm]
        arms[arm] = {"bytes": size}
        if not sizes or settings.get("cadence.at_prefill") != "True":
            continue
        arms[arm]["slots"] = {text: budget.count_slots(0, None, slot) for text, budget in sizes.items()}
        interval = settings.get("cadence.interval", "")
        if settings.get("cadence") == PLAIN_SCHEDULE and interval.isdecimal():
            arms[arm]["interval"] = _scaled_interval(int(interval), slot)
    return {"heads": widths.heads, "width": widths.width, "arms": arms}


def read_widths(locked: Mapping[str, Any]) -> dict[str, Widths] | None:
    """Return the widths by model; None for a lock without the field."""
    if (field := locked.get(FIELD)) is None:
        return None
    return {model: Widths(entry["heads"], entry["width"]) for model, entry in field.items()}


def faults(locked: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line for each contradiction between this field and the rest of a lock. Slot sizes of states
    that do not store slots as computed are not checked: that needs the policy, and torch.
    """
    content, field = locked["protocol"]["content"], locked.get(FIELD)
    policies = locked.get("policies", {})
    if not is_needed(content["budgets"], policies):
        if field is not None:
            yield f"{FIELD}: every slot is as computed and no budget is in bytes, so nothing belongs there"
        return
    if field is None:
        yield f"{FIELD}: missing, and a budget is in bytes or an arm stores its slots otherwise than computed"
        return
    if field.keys() != set(content["models"]):
        yield f"{FIELD}: is not about the registered models"
        return
    for model, entry in field.items():
        yield from _entry_faults(locked, entry, f"{FIELD}.{model!a}")


def _entry_faults(locked: Mapping[str, Any], entry: Mapping[str, Any], at: str) -> Iterator[str]:
    content, policies = locked["protocol"]["content"], locked["policies"]
    if entry["arms"].keys() != policies.keys():
        yield f"{at}.arms: is not about the registered arms"
        return
    dtype, stored_bytes = (
        content["generation"]["dtype"],
        {arm: arm_entry["bytes"] for arm, arm_entry in entry["arms"].items()},
    )
    widths = Widths(entry["heads"], entry["width"])
    computed = widths.slot(1, dtype).computed
    expected = lock_entry(widths, dtype, stored_bytes, content["budgets"], policies)["arms"]
    for arm, arm_entry in entry["arms"].items():
        if _stores_as_computed(policies[arm]) and arm_entry["bytes"] != computed:
            yield f"{at}.arms.{arm!a}.bytes: {arm_entry['bytes']}, and a slot as computed takes {computed}"
        for name in ("slots", "interval"):
            if arm_entry.get(name) != expected[arm].get(name):
                gives = f"where the bytes of a slot give {expected[arm].get(name)!a}"
                yield f"{at}.arms.{arm!a}.{name}: {arm_entry.get(name)!a}, {gives}"
