"""What a slot takes, by model and arm: what budgets in bytes are divided by.

An arm that stores its slots otherwise than the model computes them, coded or with a weight, has more or fewer
of them in the same bytes. So is the room between two events, in which a lane grows beyond its budget by one
interval: in a cell whose budget is in bytes, an interval is so many slots as computed, and an arm waits for
as many tokens as fit into their bytes. The lock holds what follows; this file has the arithmetic.
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

FIELD = "slot_bytes"  # of a lock
ITEM: Mapping[str, int] = {"float32": 4, "bfloat16": 2}  # bytes of a number, by the registered dtype
PLAIN = "policies.cadence.Cadence()"


class Widths(NamedTuple):
    """Of the cache of one model."""

    heads: int  # layers times KV heads
    width: int  # numbers of a key, and of a value, of one head in one layer

    def slot(self, own: int, dtype: str) -> Slot:
        """own: bytes of a slot of one head in one layer, as an arm stores it."""
        return Slot(self.heads, 2 * self.width * ITEM[dtype], own)


def slot_of(protocol: Design, arm: str, one: Widths) -> Slot:
    """What a slot of an arm takes. Raises ValueError for a state that does not fit these widths."""
    dtype = protocol.generation.dtype
    return one.slot(protocol.policy(arm).state.slot_bytes(one.width, ITEM[dtype]), dtype)


def in_bytes(budgets: Iterable[str]) -> dict[str, Budget]:
    """Those of the budgets that are in bytes, by their text."""
    found = ((text, of_bytes(text)) for text in budgets)
    return {text: budget for text, budget in found if budget is not None}


def needed(budgets: Iterable[str], policies: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether a lock has the field. policies: the settings of every arm, by path."""
    return bool(in_bytes(budgets)) or not all(map(_as_computed, policies.values()))


def _as_computed(settings: Mapping[str, str]) -> bool:
    return settings.get("state", AS_COMPUTED[0]) in AS_COMPUTED


def buffered(policy: "Policy", slot: Slot) -> "Policy":
    """The policy of a cell whose budget is in bytes. A cadence of another kind than the plain one keeps its
    interval, which may mean more than room: ThinKV's is a segment of the text.
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
    """What a lock says of one model. own: bytes of a slot of one head in one layer, by arm. budgets and
    policies as the lock has them.
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
    """By model; None of a lock without the field."""
    if (found := locked.get(FIELD)) is None:
        return None
    return {model: Widths(one["heads"], one["width"]) for model, one in found.items()}


def faults(locked: Mapping[str, Any]) -> Iterator[str]:
    """One line for each thing in this field of a lock that the rest of the lock contradicts. What a slot of a
    state takes that does not store it as computed, its policy says, with torch.
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
