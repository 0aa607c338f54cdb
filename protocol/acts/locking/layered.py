"""Check that arms fit the layers of the models, with a network without weights, on the meta device."""

from typing import Any, NamedTuple

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError

from protocol.engine.decode import refuse_sinks
from protocol.engine.forms import refuse_unmergeable
from protocol.engine.observation import asked_of, observed
from protocol.engine.projecting import refuse_unprojected
from protocol.engine.rotation import refuse_unturned
from protocol.evidence.refusals import BadInput
from protocol.layers import refused
from protocol.layers.kinds import evictable, layers_of
from protocol.locked.planned import Planned
from protocol.models import sources

__all__ = ["FIELD", "field", "refuse", "refuse_depths"]

FIELD = "layers"  # field of a lock
# Errors of an architecture that is built or called in an unknown way; the engine checks it later.
UNASKED = (ValueError, TypeError, KeyError, AttributeError, RuntimeError, NotImplementedError, IndexError)

# Errors of transformers for a broken configuration or for a model that needs custom code.
UNREAD = (ValueError, TypeError, KeyError, AttributeError, OSError, StrictDataclassError, ArithmeticError)


class Bare(NamedTuple):
    """A model without its weights."""

    name: str
    network: Any


def refuse(planned: Planned) -> None:
    """Refuse models that do not support eviction, and arms that need something that a model lacks: layers by
    number, the width of a value, an output projection, a rotation. Raises BadInput.
    """
    protocol = planned.protocol
    for model in protocol.models:
        config = _config(planned, model)
        refused.refuse(model, config)
        if (bare := _bare(model, config)) is None:
            continue
        _refuse_attention(bare)
        for arm in protocol.arms:
            policy, of = protocol.policy(arm.name), f"arm {arm.name!r}"
            refuse_sinks(bare, policy, of)
            refuse_unprojected(bare, policy)
            refuse_unturned(bare, policy, of)
            refuse_unmergeable(bare, policy.state, of)
    refuse_depths(planned)


def refuse_depths(planned: Planned) -> None:
    """Refuse arms that do not fit a model according to its configuration alone."""
    protocol = planned.protocol
    for model in protocol.models:
        config = _config(planned, model)
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        for arm in protocol.arms:
            policy = protocol.policy(arm.name)
            if arm.press is not None and layers_of(config).window is not None:
                said = f"arms: {arm.name!r} is a press, which {refused.PRESSED}"
                raise BadInput(f"{said}; leave the arm or {model} out")
            try:
                policy.refuse_depth(evictable(config))
                policy.refuse_width(width)
            except ValueError as refusal:
                raise BadInput(f"arms: {arm.name!r} does not fit {model}: {refusal}") from None


def field(planned: Planned) -> dict[str, Any]:
    """Return the field `layers` of a lock, for the models that have sliding layers; empty if none has."""
    found = {}
    for model in planned.protocol.models:
        layers = layers_of(_config(planned, model))
        if layers.window is not None:
            found[model] = {
                "evictable": len(layers.evictable),
                "sliding": layers.sliding,
                "window": layers.window,
            }
    return {FIELD: found} if found else {}


def _config(planned: Planned, model: str) -> Any:
    folder = sources.locate(model, planned.home)
    try:
        # Code in a model's files is never run, and the user is not asked to allow it.
        return transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except UNREAD as unread:
        said = " ".join(str(unread).split())
        raise BadInput(f"model {model}: transformers reads no configuration of it: {said}") from None


def _bare(model: str, config: Any) -> Bare | None:
    """Return None for a model that cannot be built in the usual way."""
    try:
        with torch.device("meta"):
            return Bare(
                model, transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
            )
    except UNASKED:
        return None


def _refuse_attention(bare: Bare) -> None:
    """Check how the layers call attention, with one token each; raise BadInput for what the engine refuses.
    """
    refused.refuse_network(bare.name, bare.network)
    config = bare.network.config
    shape = (config.num_key_value_heads, getattr(config, "head_dim", None))
    with observed(bare.network):
        for block in getattr(bare.network.base_model, "layers", ()):
            try:
                calls = asked_of(bare.network, block.self_attn).calls
            except UNASKED:
                return
            if len(calls) != 1:
                raise BadInput(
                    f"model {bare.name}: asks for attention {len(calls)} times in a layer; choose another"
                )
            _, keys, values = calls[0]
            if keys != values or keys[1] != shape[0] or keys[3] != (shape[1] or keys[3]):
                raise BadInput(
                    f"model {bare.name}: has keys {list(keys)} and values {list(values)} in a layer, [text, "
                    "head, token, number], and not those of its configuration; choose another"
                )
