"""How a model turns queries and keys from position to position, as policies are told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from policies import Policy, Rotation, Statistics, Turning
from protocol.engine.lanes import Architecture
from protocol.engine.observation import asked_of, observed
from protocol.evidence.refusals import BadInput
from protocol.layers.kinds import FULL, layers_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["by_halves", "refuse_unturned", "rotation_of"]

VARYING = frozenset({"dynamic", "longrope"})
"""Kinds of rotary embeddings of transformers whose frequencies depend on the length of the text."""


def rotation_of(network: PreTrainedModel) -> Rotation | None:
    """Of the layers of full attention. None where it does not turn every pair of a head, or not by one rule
    in all of these layers at all lengths.
    """
    config = network.config
    rotary: Any = getattr(network.base_model, "rotary_emb", None)
    own = f"{FULL}_" if hasattr(rotary, f"{FULL}_inv_freq") else ""  # one rule for each kind of layer
    frequencies = getattr(rotary, f"{own}inv_freq", None)
    kind = getattr(rotary, "rope_type", "default")
    if (kind.get(FULL) if isinstance(kind, dict) else kind) in VARYING:
        return None
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if frequencies is None or 2 * len(frequencies) != head or not by_halves(network):
        return None
    return Rotation(frequencies.double(), float(getattr(rotary, f"{own}attention_scaling")))


def by_halves(network: PreTrainedModel) -> bool:
    """Whether every layer of full attention turns number i of a head with number i + d/2, as policies do.

    Cohere, Helium and Ernie 4.5 turn neighbours; some layers of SmolLM3, and those of full attention of
    Cohere 2 and EXAONE 4, turn nothing; all of them have frequencies like the others. Asked of the function
    that the model itself turns with.
    """
    module = sys.modules[type(network.base_model).__module__]
    half = getattr(module, "rotate_half", None)
    probe = torch.arange(4.0)
    turned = half(probe).tolist() == [-2.0, -3.0, 0.0, 1.0] if half else turns_halves(module)
    blocks: Any = getattr(network.base_model, "layers", ())
    layers = layers_of(network.config)
    own = [blocks[layer] for layer in layers.evictable] if len(blocks) == len(layers.kinds) else blocks
    if not turned or not all(getattr(getattr(block, "self_attn", None), "use_rope", True) for block in own):
        return False
    if getattr(network.config, "layer_rope_theta", None):  # angles of each layer's own
        return False
    if layers.window is None:
        return True
    with observed(network):
        return all(asked_of(network, block.self_attn).turned for block in own)


def turns_halves(module: Any) -> bool:
    """The same of a model without `rotate_half` (gpt-oss), of what it applies to queries and keys."""
    apply: Callable[..., tuple[Tensor, Tensor]] | None = getattr(module, "apply_rotary_pos_emb", None)
    probe, angles = torch.arange(4.0).view(1, 1, 1, 4), torch.tensor([0.3, 0.7]).view(1, 1, 2)
    if apply is None:
        return False
    try:
        found = apply(probe, probe, angles.cos(), angles.sin())[1].flatten()
    except (TypeError, RuntimeError):
        return False
    first, second, turn = probe[..., :2].flatten(), probe[..., 2:].flatten(), angles.flatten()
    due = [first * turn.cos() - second * turn.sin(), second * turn.cos() + first * turn.sin()]
    return torch.allclose(found, torch.cat(due), atol=1e-6)


def refuse_unturned(model: Architecture, policy: Policy, of: str) -> None:
    """A policy that turns queries or keys, of a model whose rotation is not the one that it knows. of: whose
    policy it is.
    """
    turns = any(isinstance(signal, Turning) for signal in policy.needs)
    scores = any(signal.kind is Statistics for signal in policy.calibrated)
    if (turns and rotation_of(model.network) is None) or (scores and not by_halves(model.network)):
        raise BadInput(
            f"policy of {of}: turns queries by the rotary embedding of model {model.name}, which "
            "is not one rule for the halves of a head in all layers; choose another model or policy"
        )
