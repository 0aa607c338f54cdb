"""The output projection of a model, in the form that policies read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from policies import OutputSignal, Policy, Signal
from protocol.engine.own_parts import copy_for
from protocol.engine.run_types import Architecture, Model
from protocol.formats.refusals import BadInput
from protocol.layers.layer_kinds import head_width, layers_of


def measure_output_signals(
    model: Model, signals: Iterable[Signal], cached: Iterable[tuple[Tensor, Tensor]], filled: Tensor | None = None
) -> dict[Signal, Any]:
    """Measure the signals that read the output projection, as a View stores them.

    cached: keys and values [kv_head, n, d] of each layer. filled: [layer, kv_head, n], None if every slot is stored.
    """
    wanted = [signal for signal in signals if isinstance(signal, OutputSignal)]
    results: dict[Signal, list[Any]] = {signal: [] for signal in wanted}
    for layer, (keys, values) in enumerate(cached if wanted else ()):
        output = projection_weight(model, layer)
        is_filled = torch.ones_like(keys[..., 0], dtype=torch.bool) if filled is None else filled[layer]
        for signal in wanted:
            results[signal].append(signal.project(layer, *copy_for(signal, (keys, values)), is_filled, output))
    return {signal: tuple(layer_results) for signal, layer_results in results.items()}


def projection_weight(model: Architecture, layer: int) -> Tensor:
    """Return [q_head, d, width], a view of the projection by query head. layer: index among full-attention layers."""
    config: Any = model.network.config
    blocks: Any = getattr(model.network.base_model, "layers", ())
    decoder_layer = layers_of(config).evictable[layer]
    output = getattr(getattr(blocks[decoder_layer], "self_attn", None), "o_proj", None) if blocks else None
    heads = config.num_attention_heads
    dim = head_width(config)
    # A quantised projection has no weight to multiply with.
    if type(output) is not nn.Linear or output.weight.shape[1] != heads * dim:
        raise BadInput(
            f"model {model.name}: layer {decoder_layer} has no linear o_proj for its {heads} heads, which a "
            "policy needs; choose a model that has one, or another policy"
        )
    return output.weight.view(-1, heads, dim).permute(1, 2, 0)


def check_projection(model: Architecture, policy: Policy) -> None:
    if any(isinstance(signal, OutputSignal) for signal in policy.needs):
        for layer in range(len(layers_of(model.network.config).evictable)):
            projection_weight(model, layer)
