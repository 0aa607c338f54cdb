"""What a slot of each arm takes in each model, from the models' configurations."""

from typing import Any

import transformers

from policies.structure import structure
from protocol.engine import max_concurrent
from protocol.evidence.refusals import BadInput
from protocol.locked.planned import Planned
from protocol.models import load, sources
from protocol.plan import slot_bytes
from protocol.plan.slot_bytes import Widths

__all__ = ["field", "sized"]


def sized(planned: Planned) -> Planned:
    """With the widths of its models, where budgets are in bytes or an arm does not store its slots as
    computed.
    """
    protocol = planned.protocol
    policies = {arm.name: structure(protocol.policy(arm.name)) for arm in protocol.arms}
    if not slot_bytes.needed(map(str, protocol.budgets), policies):
        return planned._replace(widths=None)
    return planned._replace(widths={model: _widths(planned, model) for model in protocol.models})


def field(planned: Planned) -> dict[str, Any]:
    """The field `slot_bytes` of a lock, read anew; nothing where none is needed."""
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
    heads = config.num_hidden_layers * config.num_key_value_heads
    return Widths(heads, max_concurrent.slot_bytes(config, dtype) // (2 * heads * dtype.itemsize))
