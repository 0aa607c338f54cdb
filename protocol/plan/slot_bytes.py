"""Bytes of a slot by model and arm, by which budgets in bytes are divided.

An arm that stores slots in another form than the model computes them, quantized or with a weight, gets more
or fewer slots for the same bytes. The same holds for the growth between two evictions, by one interval: in a
cell with a budget in bytes, the interval counts slots as computed, and an arm evicts after as many tokens as
fit into their bytes. The lock stores the results; this file has the arithmetic.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.plan.budget import Budget, Slot, parse_bytes
from protocol.plan.design import Design

if TYPE_CHECKING:
    from policies import Policy

__all__ = [
    "FIELD",
    "Widths",
    "is_needed",
    "lock_entry",
    "parse_byte_budgets",
    "read_widths",
    "scale_interval",
    "slot_of",
]

FIELD = "slot_bytes"  # the field of a lock
ITEM_BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2}  # bytes per number, by registered dtype


class Widths(NamedTuple):
    """Dimensions of the cache of one model."""

    heads: int  # layers times KV heads
    width: int  # numbers in a key, and in a value, of one head in one layer

    def slot(self, stored: int, dtype: str, recent: int = 0) -> Slot:
        """Return the size of a slot. stored: its bytes for one head in one layer, as an arm stores it. recent: those
        of one head that an arm takes besides its slots.
        """
        return Slot(self.heads, 2 * self.width * ITEM_BYTES[dtype], stored, recent)


def slot_of(protocol: Design, arm: str, widths: Widths) -> Slot:
    """Return the slot size of an arm. Raises ValueError for a state that does not fit these widths."""
    dtype = protocol.generation.dtype
    policy, width = protocol.policy(arm), widths.width
    return widths.slot(policy.state.slot_bytes(width, ITEM_BYTES[dtype]), dtype, policy.recent_bytes(width))


def parse_byte_budgets(budgets: Iterable[str]) -> dict[str, Budget]:
    """Return those budgets that are in bytes, by their text."""
    parsed = ((text, parse_bytes(text)) for text in budgets)
    return {text: budget for text, budget in parsed if budget is not None}


def is_needed(budgets: Iterable[str], promises: Mapping[str, Mapping[str, Any]], memory: str | None = None) -> bool:
    """Return whether a lock needs this field. promises: of every arm. memory: `decision.memory`; the bytes of
    a policy's state are added to those of the slots held.
    """
    stores_as_computed = all(arm["stores_as_computed"] for arm in promises.values())
    return bool(parse_byte_budgets(budgets)) or not stores_as_computed or memory == "total"


def scale_interval(policy: "Policy", slot: Slot) -> "Policy":
    """Return the policy with its interval scaled, for a cell with a budget in bytes. Other eviction schedules
    than the plain one keep their interval, which may mean more than memory: ThinKV's is a segment of text.
    """
    if policy.cadence.interval is None or not _has_plain_interval(policy.promises._asdict()):
        return policy
    return replace(policy, cadence=replace(policy.cadence, interval=_scaled_interval(policy.cadence.interval, slot)))


def _has_plain_interval(promises: Mapping[str, Any]) -> bool:
    return promises["fires"] in ("interval", "slack") and bool(promises["grants_budget"])


def _scaled_interval(interval: int, slot: Slot) -> int:
    return max(1, slot.as_many(interval))


def lock_entry(
    widths: Widths,
    dtype: str,
    stored: Mapping[str, Mapping[str, int]],
    budgets: Iterable[str],
    promises: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the entry of one model in a lock. stored: bytes of a slot of one head in one layer, and of what is
    stored apart, by arm; those of an arm that stores slots as computed follow. budgets, promises: as in the lock.
    """
    sizes = parse_byte_budgets(budgets)
    arms: dict[str, Any] = {}
    computed = widths.slot(1, dtype).computed
    for arm, promise in promises.items():
        own = {} if promise["stores_as_computed"] else stored.get(arm, {})
        slot = widths.slot(own.get("bytes", computed), dtype, own.get("recent", 0))
        arms[arm] = {"bytes": slot.stored, **({"recent": slot.recent} if slot.recent else {})}
        if not sizes or promise["fires"] == "never":
            continue
        arms[arm]["slots"] = {text: budget.count_slots(0, None, slot) for text, budget in sizes.items()}
        if _has_plain_interval(promise):
            arms[arm]["interval"] = _scaled_interval(promise["interval"], slot)
    return {"heads": widths.heads, "width": widths.width, "arms": arms}


def read_widths(locked: Mapping[str, Any]) -> dict[str, Widths] | None:
    """Return the widths by model; None for a lock in which no model has any."""
    if not (field := locked[FIELD]):
        return None
    return {model: Widths(entry["heads"], entry["width"]) for model, entry in field.items()}
