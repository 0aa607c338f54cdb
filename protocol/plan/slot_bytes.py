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
from protocol.plan.budget import Budget, Slot, of_bytes
from protocol.plan.design import Design

if TYPE_CHECKING:
    from policies import Policy

__all__ = ["FIELD", "Widths", "buffered", "entry", "faults", "in_bytes", "needed", "of_lock", "slot_of"]

FIELD = "slot_bytes"  # the field of a lock
ITEM: Mapping[str, int] = {"float32": 4, "bfloat16": 2}  # bytes per number, by registered dtype
PLAIN = "policies.cadence.Cadence()"


class Widths(NamedTuple):
    """Dimensions of the cache of one model."""

    heads: int  # layers times KV heads
    width: int  # numbers in a key, and in a value, of one head in one layer

    def slot(self, own: int, dtype: str) -> Slot:
        """Return the size of a slot. stored: its bytes for one head in one layer, as an arm stores it."""
        return Slot(self.heads, 2 * self.width * ITEM[dtype], own)


def slot_of(protocol: Design, arm: str, one: Widths) -> Slot:
    """Return the slot size of an arm. Raises ValueError for a state that does not fit these widths."""
    dtype = protocol.generation.dtype
    return one.slot(protocol.policy(arm).state.slot_bytes(one.width, ITEM[dtype]), dtype)


def in_bytes(budgets: Iterable[str]) -> dict[str, Budget]:
    """Return those budgets that are in bytes, by their text."""
    found = ((text, of_bytes(text)) for text in budgets)
    return {text: budget for text, budget in found if budget is not None}


def needed(budgets: Iterable[str], policies: Mapping[str, Mapping[str, str]]) -> bool:
    """Return whether a lock needs this field. policies: the settings of every arm, by path."""
    return bool(in_bytes(budgets)) or not all(map(_as_computed, policies.values()))


def _as_computed(settings: Mapping[str, str]) -> bool:
    return settings.get("state", AS_COMPUTED[0]) in AS_COMPUTED


def buffered(policy: "Policy", slot: Slot) -> "Policy":
    """Return the policy with its interval scaled, for a cell with a budget in bytes. Other eviction schedules
    than the plain one keep their interval, which may mean more than memory: ThinKV's is a segment of text.
    """
    from policies import Cadence

    cadence = policy.cadence
    if type(cadence) is not Cadence or cadence.interval is None:
        return policy
    return replace(policy, cadence=replace(cadence, interval=_waits(cadence.interval, slot)))


def _waits(interval: int, slot: Slot) -> int:
    return max(1, slot.as_many(interval))


def entry(
    one: Widths,
    dtype: str,
    own: Mapping[str, int],
    budgets: Iterable[str],
    policies: Mapping[str, Mapping[str, str]],
) -> dict[str, Any]:
    """Return the entry of one model in a lock. stored_bytes: bytes of a slot of one head in one layer, by
    arm. budgets, policies: as in the lock.
    """
    sizes = in_bytes(budgets)
    arms: dict[str, Any] = {}
    for arm, size in own.items():
        slot, settings = one.slot(size, dtype), policies[arm]
        arms[arm] = {"bytes": size}
        if not sizes or settings.get("cadence.at_prefill") != "True":
            continue
        arms[arm]["slots"] = {text: budget.of(0, None, slot) for text, budget in sizes.items()}
        interval = settings.get("cadence.interval", "")
        if settings.get("cadence") == PLAIN and interval.isdecimal():
            arms[arm]["interval"] = _waits(int(interval), slot)
    return {"heads": one.heads, "width": one.width, "arms": arms}


def of_lock(locked: Mapping[str, Any]) -> dict[str, Widths] | None:
    """Return the widths by model; None for a lock without the field."""
    if (found := locked.get(FIELD)) is None:
        return None
    return {model: Widths(one["heads"], one["width"]) for model, one in found.items()}


def faults(locked: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line for each contradiction between this field and the rest of a lock. Slot sizes of states
    that do not store slots as computed are not checked: that needs the policy, and torch.
    """
    content, found = locked["protocol"]["content"], locked.get(FIELD)
    policies = locked.get("policies", {})
    if not needed(content["budgets"], policies):
        if found is not None:
            yield f"{FIELD}: every slot is as computed and no budget is in bytes, so nothing belongs there"
        return
    if found is None:
        yield f"{FIELD}: missing, and a budget is in bytes or an arm stores its slots otherwise than computed"
        return
    if found.keys() != set(content["models"]):
        yield f"{FIELD}: is not about the registered models"
        return
    for model, one in found.items():
        yield from _entry_faults(locked, one, f"{FIELD}.{model!a}")


def _entry_faults(locked: Mapping[str, Any], one: Mapping[str, Any], at: str) -> Iterator[str]:
    content, policies = locked["protocol"]["content"], locked["policies"]
    if one["arms"].keys() != policies.keys():
        yield f"{at}.arms: is not about the registered arms"
        return
    dtype, own = content["generation"]["dtype"], {arm: had["bytes"] for arm, had in one["arms"].items()}
    widths = Widths(one["heads"], one["width"])
    computed = widths.slot(1, dtype).computed
    due = entry(widths, dtype, own, content["budgets"], policies)["arms"]
    for arm, had in one["arms"].items():
        if _as_computed(policies[arm]) and had["bytes"] != computed:
            yield f"{at}.arms.{arm!a}.bytes: {had['bytes']}, and a slot as computed takes {computed}"
        for name in ("slots", "interval"):
            if had.get(name) != due[arm].get(name):
                gives = f"where the bytes of a slot give {due[arm].get(name)!a}"
                yield f"{at}.arms.{arm!a}.{name}: {had.get(name)!a}, {gives}"
