"""Check that arms fit the layers of the models, with a network without weights, on the meta device."""

from typing import Any, NamedTuple

import torch
import transformers

from policies import Statistics
from protocol.engine.decode import refuse_native, refuse_sinks
from protocol.engine.native import library
from protocol.engine.observation import observe_forward, probe_attention
from protocol.engine.output_projection import check_projection
from protocol.engine.rotation import check_rotation
from protocol.engine.storage_formats import refuse_unmergeable
from protocol.formats.refusals import BadInput
from protocol.layers import unsupported
from protocol.layers.layer_kinds import evictable, head_width, layers_of
from protocol.models import sources
from protocol.preflight import model_trial
from protocol.preflight.model_trial import UNSUPPORTED_CALL
from protocol.run.captured_queries import are_captured
from protocol.workspace.planned_study import PlannedStudy

# Errors of transformers for a broken configuration or for a model that needs custom code.
UNREADABLE_CONFIG = (*UNSUPPORTED_CALL, OSError, ArithmeticError)


class MetaModel(NamedTuple):
    """A model without its weights."""

    name: str
    network: Any


def refuse_unsupported(planned: PlannedStudy) -> None:
    """Refuse models that do not support eviction, and arms that need something that a model lacks: layers by
    number, the width of a value, an output projection, a rotation. Raises BadInput.
    """
    protocol = planned.protocol
    for model in protocol.models:
        config = _read_config(planned, model)
        unsupported.refuse(model, config)
        if (bare := _build_meta_model(model, config)) is None:
            model_trial.refuse_unlike(model, config)
            continue
        _refuse_attention(bare)
        for arm in protocol.arms:
            policy, arm_text = protocol.policy(arm.name), f"arm {arm.name!r}"
            refuse_sinks(bare, policy, arm_text)
            check_projection(bare, policy)
            check_rotation(bare, policy, arm_text)
            refuse_unmergeable(bare, policy.state, arm_text)
        model_trial.refuse_unlike(model, config)
        _refuse_other_queries(planned, model, config)
    refuse_unfit_layers(planned)


def _refuse_other_queries(planned: PlannedStudy, model: str, config: Any) -> None:
    """Refuse arms that predict logits from query statistics where the model's attention has other queries."""
    policies_by_arm = {arm.name: planned.protocol.policy(arm.name) for arm in planned.protocol.arms}
    readers = [
        name
        for name, policy in policies_by_arm.items()
        if any(signal.kind is Statistics for signal in policy.calibrated)
    ]
    if readers and not are_captured(model_trial.small_network(config)):
        raise BadInput(
            f"arms: {readers[0]!r} predicts logits from queries before their rotation, but the attention of "
            f"{model} changes queries in between; leave out the arm or the model"
        )


def refuse_unfit_layers(planned: PlannedStudy) -> None:
    """Refuse arms that do not fit a model according to its configuration alone."""
    protocol = planned.protocol
    for model in protocol.models:
        config = _read_config(planned, model)
        width = head_width(config)
        for arm in protocol.arms:
            policy = protocol.policy(arm.name)
            if protocol.generation.kernel == "native":
                refuse_native(model, config, policy, f"arm {arm.name!r}")
            if arm.press is not None and layers_of(config).window is not None:
                message = f"arms: {arm.name!r} is a press, which {unsupported.PRESS_REASON}"
                raise BadInput(f"{message}; leave the arm or {model} out")
            try:
                policy.refuse_depth(evictable(config))
                policy.refuse_width(width)
            except ValueError as refusal:
                raise BadInput(f"arms: {arm.name!r} does not fit {model}: {refusal}") from None


def could_be_native(planned: PlannedStudy) -> bool:
    """Return whether the native kernel would decode every model and arm on this machine, where all models are, and the
    protocol chooses no kernel.
    """
    protocol = planned.protocol
    generation = protocol.generation
    if generation.kernel is not None or (generation.device, generation.dtype) != ("cpu", "float32"):
        return False
    try:
        library.find_compiler()
        for model in protocol.models:
            for arm in protocol.arms:
                refuse_native(model, _read_config(planned, model), protocol.policy(arm.name), arm.name)
    except BadInput:
        return False
    return True


def read_layers(planned: PlannedStudy) -> dict[str, Any]:
    """Return the field `layers` of a lock, for the models that have sliding layers."""
    entries = {}
    for model in planned.protocol.models:
        layers = layers_of(_read_config(planned, model))
        if layers.window is not None:
            entries[model] = {"evictable": len(layers.evictable), "sliding": layers.sliding, "window": layers.window}
    return entries


def _read_config(planned: PlannedStudy, model: str) -> Any:
    folder = sources.locate(model, planned.home)
    try:
        # Code in a model's files is never run, and the user is not asked to allow it.
        return transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except UNREADABLE_CONFIG as error:
        message = " ".join(str(error).split())
        raise BadInput(f"model {model}: transformers cannot read its configuration: {message}") from None


def _build_meta_model(model: str, config: Any) -> MetaModel | None:
    """Return None for a model that cannot be built in the usual way."""
    try:
        with torch.device("meta"):
            return MetaModel(model, transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager"))
    except UNSUPPORTED_CALL:
        return None


def _refuse_attention(bare: MetaModel) -> None:
    """Check how the layers call attention, with one token each; raise BadInput for what the engine refuses."""
    unsupported.refuse_network(bare.name, bare.network)
    config = bare.network.config
    shape = (config.num_key_value_heads, getattr(config, "head_dim", None))
    with observe_forward(bare.network):
        for block in getattr(bare.network.base_model, "layers", ()):
            try:
                calls = probe_attention(bare.network, block.self_attn).calls
            except UNSUPPORTED_CALL:
                return
            if len(calls) != 1:
                raise BadInput(
                    f"model {bare.name}: calls attention {len(calls)} times in a layer; choose another model"
                )
            _, keys, values = calls[0]
            if keys != values or keys[1] != shape[0] or keys[3] != (shape[1] or keys[3]):
                raise BadInput(
                    f"model {bare.name}: has keys {list(keys)} and values {list(values)} in a layer, as "
                    "[text, head, token, number], which contradicts its configuration; choose another model"
                )
