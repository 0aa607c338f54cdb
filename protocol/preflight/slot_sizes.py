"""The bytes of a slot of each arm in each model, and what registering refuses of them."""

from collections.abc import Iterator
from typing import Any

import transformers

from analysis.rules.rule import arm_pairs
from policies import Calibrated
from protocol.engine import max_concurrent
from protocol.formats.refusals import BadInput
from protocol.formats.vocabulary import READS
from protocol.layers.layer_kinds import evictable
from protocol.models import calibration, calibration_paths, load, sources
from protocol.plan import slot_bytes
from protocol.plan.design import Design
from protocol.plan.slot_bytes import Widths
from protocol.workspace.planned_study import PlannedStudy


def with_widths(planned: PlannedStudy) -> PlannedStudy:
    """Return the study with the widths of its models, if its lock needs the bytes of a slot."""
    protocol = planned.protocol
    if not slot_bytes.is_needed(map(str, protocol.all_budgets), protocol.promises(), protocol.decision.memory):
        return planned._replace(widths=None)
    return planned._replace(widths={model: _read_widths(planned, model) for model in protocol.models})


def measure_slots(planned: PlannedStudy) -> dict[str, Any]:
    """Return what the field `slot_bytes` of a lock is derived from, read from the models; empty if it is not needed."""
    planned = with_widths(planned)
    arms = [arm.name for arm in planned.protocol.arms]
    return {
        model: {**widths._asdict(), "arms": {arm: _slot_facts(planned, model, arm) for arm in arms}}
        for model, widths in (planned.widths or {}).items()
    }


def refuse_unfit_states(planned: PlannedStudy) -> None:
    """Refuse a state that does not fit the heads of a model or its calibration, such as a rank that is too high."""
    for model, widths in (planned.widths or {}).items():
        paths = calibration_paths.statistics_paths(model, planned.home)
        for arm in planned.protocol.arms:
            policy = planned.protocol.policy(arm.name)
            calibrated = [signal for signal in policy.state.needs if isinstance(signal, Calibrated)]
            try:
                policy.refuse_width(widths.width)
                statistics = {
                    signal_entry.name: calibration.read_value(paths[signal_entry.name], signal_entry.kind)
                    for signal_entry in calibrated
                }
                policy.state.codec(statistics)
            except (ValueError, KeyError) as refusal:
                raise BadInput(f"arms: {arm.name!r} does not fit {model}: {refusal}") from None


def refuse_unequal_slots(planned: PlannedStudy) -> None:
    """Refuse arms that are compared by slots of different bytes: equal slots are then no equal memory."""
    protocol = planned.protocol
    if planned.widths is None or protocol.decision.memory not in (None, "slots", READS):
        return
    for model in protocol.models:
        slot_sizes = {arm: _slot_facts(planned, model, arm)["bytes"] for arm in _compared_arms(protocol)}
        smallest, largest = min(slot_sizes, key=slot_sizes.__getitem__), max(slot_sizes, key=slot_sizes.__getitem__)
        if slot_sizes[smallest] != slot_sizes[largest]:
            raise BadInput(
                f"decision.memory: a slot of {smallest!r} takes {slot_sizes[smallest]} bytes in each head of "
                f"{model}, but one of {largest!r} takes {slot_sizes[largest]}, so equal slots are not equal "
                'memory; write "bytes" or "total"'
            )


def _compared_arms(protocol: Design) -> Iterator[str]:
    """Yield the arms of the family, the extra arms and those of claims; for the subject of a sweep its candidates."""
    decision, sweep = protocol.decision, protocol.sweep
    names = [name for side in arm_pairs(protocol.content()["decision"]) for name in side]
    names += [*(decision.beside or ())]
    names += [name for claim in protocol.claims for name in (claim.arm, claim.parent) if name is not None]
    for name in dict.fromkeys(names):
        yield from sweep.candidates if sweep is not None and name == sweep.name else [name]


def _slot_facts(planned: PlannedStudy, model: str, arm: str) -> dict[str, int]:
    try:
        slot = planned.slot(model, arm)
    except ValueError as refusal:
        raise BadInput(f"arms: {arm!r} does not fit {model}: {refusal}") from None
    assert slot is not None
    return {"bytes": slot.stored, **({"recent": slot.recent} if slot.recent else {})}


def _read_widths(planned: PlannedStudy, model: str) -> Widths:
    config = transformers.AutoConfig.from_pretrained(sources.locate(model, planned.home))
    dtype = load.DTYPES[planned.protocol.generation.dtype]
    heads = evictable(config) * config.num_key_value_heads
    return Widths(heads, max_concurrent.slot_bytes(config, dtype) // (2 * heads * dtype.itemsize))
