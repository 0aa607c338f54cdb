"""The rotary embedding of a model, in the form that policies use."""

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
"""Types of rotary embeddings in transformers with frequencies that depend on the text length."""


def rotation_of(network: PreTrainedModel) -> Rotation | None:
    """Return the rotation of the layers of full attention. None if it does not rotate all pairs of a head, or
    differs between these layers or with the text length.
    """
    config = network.config
    rotary: Any = getattr(network.base_model, "rotary_emb", None)
    own = f"{FULL}_" if hasattr(rotary, f"{FULL}_inv_freq") else ""  # each kind of layer has its own rule
    frequencies = getattr(rotary, f"{own}inv_freq", None)
    kind = getattr(rotary, "rope_type", "default")
    if (kind.get(FULL) if isinstance(kind, dict) else kind) in VARYING:
        return None
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if frequencies is None or 2 * len(frequencies) != head or not by_halves(network):
        return None
    return Rotation(frequencies.double(), float(getattr(rotary, f"{own}attention_scaling")))


def by_halves(network: PreTrainedModel) -> bool:
    """Return whether every layer of full attention rotates dimension i with i + d/2, as policies assume.

    Cohere, Helium and Ernie 4.5 rotate neighbours; some layers of SmolLM3, and those of full attention of
    Cohere 2 and EXAONE 4, rotate nothing; the frequencies of all of them look alike. The model's own function
    is tested.
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
    if getattr(network.config, "layer_rope_theta", None):  # angles differ between layers
        return False
    if layers.window is None:
        return True
    with observed(network):
        return all(asked_of(network, block.self_attn).turned for block in own)


def turns_halves(module: Any) -> bool:
    """Test the same on `apply_rotary_pos_emb`, for a model without `rotate_half` (gpt-oss)."""
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
    """Raise BadInput for a policy that rotates queries or keys, if the model's rotation is of another form.
    owner: the arm or lane of the policy.
    """
    turns = any(isinstance(signal, Turning) for signal in policy.needs)
    scores = any(signal.kind is Statistics for signal in policy.calibrated)
    if (turns and rotation_of(model.network) is None) or (scores and not by_halves(model.network)):
        raise BadInput(
            f"policy of {of}: turns queries by the rotary embedding of model {model.name}, which "
            "is not one rule for the halves of a head in all layers; choose another model or policy"
        )
