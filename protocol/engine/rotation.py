"""How a model turns queries and keys from position to position, as policies are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from policies import Rotation

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["rotation_of"]

VARYING = frozenset({"dynamic", "longrope"})
"""Kinds of rotary embeddings of transformers whose frequencies depend on the length of the text."""


def rotation_of(network: PreTrainedModel) -> Rotation | None:
    """None where it does not turn every pair of a head, or not by one rule at all lengths."""
    config = network.config
    rotary: Any = getattr(network.base_model, "rotary_emb", None)
    frequencies = getattr(rotary, "inv_freq", None)
    if getattr(rotary, "rope_type", "default") in VARYING:
        return None
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if frequencies is None or 2 * len(frequencies) != head:
        return None
    return Rotation(frequencies.double(), float(rotary.attention_scaling))
