"""A custom attention function that passes queries, keys and values to the observer of the forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from protocol.formats.refusals import BadInput
from protocol.layers.layer_kinds import FULL, SLIDING, does_slide, layer_position, layers_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ATTENTION_NAME = "kv_prereg"

# Keyword arguments of layers whose attention is not a causal softmax over their slots.
REFUSED_ARGUMENTS = ("softcap", "position_bias")
KNOWN_TENSORS = frozenset({"s_aux", "position_ids", "cache_position", "position_embeddings"})
"""Tensors that a layer may pass: attention sinks, and token positions, which the observer already has."""


class Observer:
    """Computes the attention of every layer; passed through a forward pass as the keyword argument `observer`."""

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float, sinks: Tensor | None = None
    ) -> Tensor:
        """Return the attention output [lane, q_head, t, d] of a layer of full attention.

        layer: index among the layers of full attention. queries [lane, q_head, t, d], keys and values [lane,
        kv_head, t, d] of the tokens fed, after RoPE. sinks [q_head]: an additional logit for each row of a
        head, whose share of the softmax goes to no slot.
        """
        raise NotImplementedError

    def slide(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float, sinks: Tensor | None = None
    ) -> Tensor:
        """Return the attention output as `attend` does, for a sliding layer; layer: index among these."""
        raise NotImplementedError

    def see(self, layer: int, hidden: Tensor) -> None:
        """Receive hidden [lane, t, width], the output of a decoder layer of full attention; by default do nothing.

        layer: index among these layers; only those given to `observe_forward` are reported.
        """


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    observer: Observer,
    **rest: Any,
) -> tuple[Tensor, None]:
    """The attention function with the signature of transformers; the output is [lane, t, q_head, d]."""
    for name, argument in rest.items():
        if argument is not None and (
            name in REFUSED_ARGUMENTS or (isinstance(argument, Tensor) and name not in KNOWN_TENSORS)
        ):
            raise BadInput(f"the model's attention uses {name}; choose a model with plain causal attention")
    if attention_mask is not None or not getattr(module, "is_causal", True):
        raise BadInput("the model's attention builds its own mask; choose a model with plain causal attention")
    index: Any = module.layer_idx
    config: Any = getattr(module, "config", None)
    kind, number = (FULL, index) if config is None else layer_position(config, index)
    window = rest.get("sliding_window")
    if kind == FULL and not does_slide(config, window):
        window = None
    if kind not in (FULL, SLIDING) or window not in (None, layers_of(config).window if kind == SLIDING else None):
        raise BadInput(
            f"layer {index} is {kind} according to the model's configuration, but attends to a window of "
            f"{window}; choose another model"
        )
    attend = observer.slide if kind == SLIDING else observer.attend
    output = attend(number, query, key, value, scaling, rest.get("s_aux"))
    return output.transpose(1, 2).contiguous(), None


@contextmanager
def observe_forward(network: PreTrainedModel, hidden: Iterable[int] = ()) -> Iterator[None]:
    """Make the network's layers call `attention` within this block, and restore the network afterwards.

    hidden: layers of full attention, by index among these, whose output is passed to the observer. The name
    is registered in addition to the implementations of transformers and replaces none of them.
    """
    from transformers import AttentionInterface  # slow: imports the modules of all models

    AttentionInterface.register(ATTENTION_NAME, attention)
    implementation = network.config._attn_implementation
    with ExitStack() as hooks:
        for layer in hidden:
            hooks.enter_context(observe_layer(network, layer))
        network.set_attn_implementation(ATTENTION_NAME)
        try:
            yield
        finally:
            network.set_attn_implementation(implementation)


@contextmanager
def observe_layer(network: PreTrainedModel, layer: int) -> Iterator[None]:
    blocks: Any = getattr(network.base_model, "layers", ())
    layers = layers_of(network.config).evictable[: len(blocks)]
    if layer >= len(layers):
        raise BadInput(f"a policy reads the output of layer {layer}, but the model has only {len(layers)} layers")
    handle = blocks[layers[layer]].register_forward_hook(hidden_hook(layer), with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def hidden_hook(layer: int) -> Callable[..., None]:
    def hook(module: nn.Module, inputs: Any, arguments: dict[str, Any], output: Any) -> None:
        if "observer" in arguments:  # absent if a press runs the model
            arguments["observer"].see(layer, output[0] if isinstance(output, tuple) else output)

    return hook


class AttentionProbe(NamedTuple):
    """The result of running an attention layer on one token. uses_rotation: whether it uses the rotary angles. calls:
    shapes of the queries, keys and values of each attention that it computes, [lane, head, t, d].
    """

    uses_rotation: bool
    calls: tuple[tuple[torch.Size, ...], ...]


class ProbeObserver(Observer, TorchFunctionMode):
    """The observer of a single attention layer; records whether `angles` are used."""

    def __init__(self, angles: Tensor) -> None:
        super().__init__()
        self.angles, self.uses_rotation = angles, False
        self.calls: list[tuple[torch.Size, ...]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.uses_rotation |= any(argument is self.angles for argument in args)
        return func(*args, **(kwargs or {}))

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float, sinks: Tensor | None = None
    ) -> Tensor:
        self.calls.append((queries.shape, keys.shape, values.shape))
        return torch.zeros_like(queries)

    slide = attend


def probe_attention(network: PreTrainedModel, layer: Any) -> AttentionProbe:
    """Run an attention layer on one token, inside `observe_forward`; the network may be on the meta device.

    Raises the layer's exception if its signature differs from that of Llama's layers, and BadInput for a
    refused attention.
    """
    parameter = next(layer.parameters())
    hidden = parameter.new_zeros(1, 1, network.config.hidden_size)
    rotary: Any = network.base_model.rotary_emb
    position = torch.zeros(1, 1, dtype=torch.int64, device=parameter.device)
    kinds = [layer_position(network.config, layer.layer_idx).kind] if hasattr(rotary, f"{FULL}_inv_freq") else []
    with torch.no_grad():
        cos, sin = rotary(hidden, position, *kinds)
        with ProbeObserver(cos) as probe:
            layer(
                hidden_states=hidden,
                position_embeddings=(cos, sin),
                attention_mask=None,
                position_ids=position,
                observer=probe,
            )
    return AttentionProbe(probe.uses_rotation, tuple(probe.calls))
