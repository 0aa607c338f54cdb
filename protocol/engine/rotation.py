"""The rotary embedding of a model, in the form that policies use."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from policies import Policy, Rotation, Statistics, UnrotatingSignal
from protocol.engine.observation import observe_forward, probe_attention
from protocol.engine.run_types import Architecture
from protocol.formats.refusals import BadInput
from protocol.layers.layer_kinds import FULL, head_width, layers_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LENGTH_DEPENDENT = frozenset({"dynamic", "longrope"})
"""Types of rotary embeddings in transformers with frequencies that depend on the text length."""


def rotation_of(network: PreTrainedModel) -> Rotation | None:
    """Return the rotation of the layers of full attention. None if it does not rotate all pairs of a head, or
    differs between these layers or with the text length.
    """
    config = network.config
    rotary: Any = getattr(network.base_model, "rotary_emb", None)
    prefix = f"{FULL}_" if hasattr(rotary, f"{FULL}_inv_freq") else ""  # each kind of layer has its own rule
    frequencies = getattr(rotary, f"{prefix}inv_freq", None)
    kind = getattr(rotary, "rope_type", "default")
    if (kind.get(FULL) if isinstance(kind, dict) else kind) in LENGTH_DEPENDENT:
        return None
    head = head_width(config)
    if frequencies is None or 2 * len(frequencies) != head or not rotates_halves(network):
        return None
    return Rotation(frequencies.double(), float(getattr(rotary, f"{prefix}attention_scaling")))


def rotates_halves(network: PreTrainedModel) -> bool:
    """Return whether every layer of full attention rotates dimension i with i + d/2, as policies assume.

    Cohere, Helium and Ernie 4.5 rotate neighbours; some layers of SmolLM3, and those of full attention of Cohere 2 and
    EXAONE 4, rotate nothing; the frequencies of all of them look alike. The model's own function is tested.
    """
    module = sys.modules[type(network.base_model).__module__]
    half = getattr(module, "rotate_half", None)
    probe = torch.arange(4.0)
    rotates = half(probe).tolist() == [-2.0, -3.0, 0.0, 1.0] if half else applies_half_rotation(module)
    blocks: Any = getattr(network.base_model, "layers", ())
    layers = layers_of(network.config)
    evictable_blocks = [blocks[layer] for layer in layers.evictable] if len(blocks) == len(layers.kinds) else blocks
    if not rotates or not all(
        getattr(getattr(block, "self_attn", None), "use_rope", True) for block in evictable_blocks
    ):
        return False
    if getattr(network.config, "layer_rope_theta", None):  # angles differ between layers
        return False
    if layers.window is None:
        return True
    with observe_forward(network):
        return all(probe_attention(network, block.self_attn).uses_rotation for block in evictable_blocks)


def applies_half_rotation(module: Any) -> bool:
    """Test the same on `apply_rotary_pos_emb`, for a model without `rotate_half` (gpt-oss)."""
    apply: Callable[..., tuple[Tensor, Tensor]] | None = getattr(module, "apply_rotary_pos_emb", None)
    probe, angles = torch.arange(4.0).view(1, 1, 1, 4), torch.tensor([0.3, 0.7]).view(1, 1, 2)
    if apply is None:
        return False
    try:
        rotated = apply(probe, probe, angles.cos(), angles.sin())[1].flatten()
    except (TypeError, RuntimeError):
        return False
    first, second, turn = probe[..., :2].flatten(), probe[..., 2:].flatten(), angles.flatten()
    expected = [first * turn.cos() - second * turn.sin(), second * turn.cos() + first * turn.sin()]
    return torch.allclose(rotated, torch.cat(expected), atol=1e-6)


def depends_on_company(network: PreTrainedModel, tokens: int) -> bool:
    """Return whether the angles of a token depend on the longest text of its batch, for texts of so many tokens.

    transformers chooses the frequencies of "longrope" and "dynamic" by the last position of the whole batch, so
    that a lane would get another text in company than alone, and a prompt in chunks another than a whole one.
    """
    rotary: Any = copy.deepcopy(getattr(network.base_model, "rotary_emb", None))  # it stores what a call computes
    near = torch.arange(min(tokens, 8), device=network.device)[None]
    positions = torch.cat((near, near + tokens - near.shape[1]))
    hidden = torch.zeros(1, device=network.device)
    for kinds in rotary_kinds(network, rotary) if rotary is not None else ():
        alone, company = rotary(hidden, near, *kinds), rotary(hidden, positions, *kinds)
        if any(not torch.equal(angles[0], others[0]) for angles, others in zip(alone, company, strict=True)):
            return True
    return False


def rotary_kinds(network: PreTrainedModel, rotary: Any) -> list[tuple[str, ...]]:
    """Return the last argument of a rotary embedding that has a rule for each kind of layer; else no argument."""
    kinds = sorted(set(layers_of(network.config).kinds))
    return [(kind,) for kind in kinds if hasattr(rotary, f"{kind}_inv_freq")] or [()]


def check_rotation(model: Architecture, policy: Policy, owner: str) -> None:
    """Raise BadInput if the policy of `owner`, an arm or lane, rotates, and the model's rotation is of another form."""
    needs_rotation = any(isinstance(signal, UnrotatingSignal) for signal in policy.needs)
    needs_halves = any(signal.kind is Statistics for signal in policy.calibrated)
    if (needs_rotation and rotation_of(model.network) is None) or (needs_halves and not rotates_halves(model.network)):
        raise BadInput(
            f"policy of {owner}: rotates queries by the rotary embedding of model {model.name}, which does "
            "not rotate the halves of a head alike in all layers; choose another model or policy"
        )
