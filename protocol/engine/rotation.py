"""How a model turns queries and keys from position to position, as policies are told."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

from policies import Rotation, Statistics, Turning
from protocol.engine.lanes import Lane, Model
from protocol.evidence.refusals import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["by_halves", "refuse_unturned", "rotation_of"]

VARYING = frozenset({"dynamic", "longrope"})
"""Kinds of rotary embeddings of transformers whose frequencies depend on the length of the text."""


def rotation_of(network: PreTrainedModel) -> Rotation | None:
    """None where it does not turn every pair of a head, or not by one rule in all layers at all lengths."""
    config = network.config
    rotary: Any = getattr(network.base_model, "rotary_emb", None)
    frequencies = getattr(rotary, "inv_freq", None)
    if getattr(rotary, "rope_type", "default") in VARYING:
        return None
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if frequencies is None or 2 * len(frequencies) != head or not by_halves(network):
        return None
    return Rotation(frequencies.double(), float(rotary.attention_scaling))


def by_halves(network: PreTrainedModel) -> bool:
    """Whether every layer turns number i of a head with number i + d/2, as policies take it.

    Cohere, Helium and Ernie 4.5 turn neighbours, and some layers of SmolLM3 turn nothing; all of them have
    frequencies like the others. Asked of the function that the model itself turns with.
    """
    half = getattr(sys.modules[type(network.base_model).__module__], "rotate_half", None)
    probe = torch.arange(4.0)
    if half is None or half(probe).tolist() != [-2.0, -3.0, 0.0, 1.0]:
        return False
    blocks: Any = getattr(network.base_model, "layers", ())
    return all(getattr(getattr(block, "self_attn", None), "use_rope", True) for block in blocks)


def refuse_unturned(model: Model, lane: Lane) -> None:
    """A policy that turns queries or keys, of a model whose rotation is not the one that it knows."""
    turns = any(isinstance(signal, Turning) for signal in lane.policy.needs)
    scores = any(signal.kind is Statistics for signal in lane.policy.calibrated)
    if (turns and rotation_of(model.network) is None) or (scores and not by_halves(model.network)):
        raise BadInput(
            f"policy of lane {lane.key}: turns queries by the rotary embedding of model {model.name}, which "
            "is not one rule for the halves of a head in all layers; choose another model or policy"
        )
