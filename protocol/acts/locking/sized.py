"""The bytes of a slot of each arm in each model, and what registering refuses of them."""

from collections.abc import Iterator
from typing import Any

import transformers

from analysis.rules.rule import sides
from policies import Calibrated
from policies.structure import structure
from protocol.engine import max_concurrent
from protocol.evidence.refusals import BadInput
from protocol.layers.kinds import evictable
from protocol.locked.planned import Planned
from protocol.models import calibration, load, sources
from protocol.plan import slot_bytes
from protocol.plan.design import Design
from protocol.plan.slot_bytes import Widths

__all__ = ["field", "refuse_unfit", "refuse_unlike_slots", "sized"]


def sized(planned: Planned) -> Planned:
    """Return the study with the widths of its models, if budgets are in bytes or an arm does not store its
    slots as computed.
    """
    protocol = planned.protocol
    policies = {arm.name: structure(protocol.policy(arm.name)) for arm in protocol.arms}
    if not slot_bytes.needed(map(str, protocol.budgets), policies):
        return planned._replace(widths=None)
    return planned._replace(widths={model: _widths(planned, model) for model in protocol.models})


def field(planned: Planned) -> dict[str, Any]:
    """Return the field `slot_bytes` of a lock, read again from the models; empty if it is not needed."""
    planned = sized(planned)
    if planned.widths is None:
        return {}
    protocol = planned.protocol
    budgets = list(map(str, protocol.budgets))
    policies = {arm.name: structure(protocol.policy(arm.name)) for arm in protocol.arms}
    found = {}
    for model, one in planned.widths.items():
        own = {arm: _own(planned, model, arm) for arm in policies}
        found[model] = slot_bytes.entry(one, protocol.generation.dtype, own, budgets, policies)
    return {slot_bytes.FIELD: found}


def refuse_unfit(planned: Planned) -> None:
    """Refuse a state that does not fit the heads of a model or its calibration, such as a rank that is too
    high.
    """
    for model, one in (planned.widths or {}).items():
        paths = calibration.statistics_paths(model, planned.home)
        for arm in planned.protocol.arms:
            policy = planned.protocol.policy(arm.name)
            wanted = [signal for signal in policy.state.needs if isinstance(signal, Calibrated)]
            try:
                policy.refuse_width(one.width)
                known = {each.name: calibration.read(paths[each.name], each.kind) for each in wanted}
                policy.state.codec(known)
            except (ValueError, KeyError) as refusal:
                raise BadInput(f"arms: {arm.name!r} does not fit {model}: {refusal}") from None


def refuse_unlike_slots(planned: Planned) -> None:
    """Refuse arms that are compared by slots although their slots take different bytes: equal slots are no
    equal memory.
    """
    protocol = planned.protocol
    if planned.widths is None or protocol.decision.memory not in (None, "slots"):
        return
    for model in protocol.models:
        own = {arm: _own(planned, model, arm) for arm in _compared(protocol)}
        least, most = min(own, key=own.__getitem__), max(own, key=own.__getitem__)
        if own[least] != own[most]:
            raise BadInput(
                f"decision.memory: a slot of {least!r} takes {own[least]} bytes of a head of {model} and one "
                f'of {most!r} {own[most]}, so that equal slots are no equal memory; write "bytes" or "total"'
            )


def _compared(protocol: Design) -> Iterator[str]:
    """Yield the arms of the family, the extra arms and those of claims; for the subject of a sweep its
    candidates.
    """
    decision, sweep = protocol.decision, protocol.sweep
    named = [name for side in sides(protocol.content()["decision"]) for name in side]
    named += [*(decision.beside or ())]
    named += [name for claim in protocol.claims for name in (claim.arm, claim.parent) if name is not None]
    for name in dict.fromkeys(named):
        yield from sweep.candidates if sweep is not None and name == sweep.name else [name]


def _own(planned: Planned, model: str, arm: str) -> int:
    try:
        slot = planned.slot(model, arm)
    except ValueError as refusal:
        raise BadInput(f"arms: {arm!r} does not fit {model}: {refusal}") from None
    assert slot is not None
    return slot.own


def _widths(planned: Planned, model: str) -> Widths:
    config = transformers.AutoConfig.from_pretrained(sources.locate(model, planned.home))
    dtype = load.DTYPES[planned.protocol.generation.dtype]
    heads = evictable(config) * config.num_key_value_heads
    return Widths(heads, max_concurrent.slot_bytes(config, dtype) // (2 * heads * dtype.itemsize))
