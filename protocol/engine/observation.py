"""Attention goes through one function of our own, which hands q, k and v to the observer of the forward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor, nn

from protocol.evidence.refusals import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME = "kv_prereg"

# Keyword arguments with which a layer asks for another attention than plain causal softmax.
REFUSED = ("sliding_window", "softcap", "s_aux", "position_bias")


class Observer(Protocol):
    """Travels through a forward as the keyword argument `observer` and answers every layer's attention."""

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """queries [lane, q_head, t, d], keys and values [lane, kv_head, t, d] of the tokens fed, after RoPE.

        Returns the attention output [lane, q_head, t, d].
        """

    def see(self, layer: int, hidden: Tensor) -> None:
        """hidden [lane, t, width], the output of a decoder layer that `observed` was asked to show."""


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
    """The attention function in the form that transformers calls; the output is [lane, t, q_head, d]."""
    for name in REFUSED:
        if rest.get(name) is not None:
            raise BadInput(f"the model's attention uses {name}; choose a model of plain causal attention")
    layer: Any = module.layer_idx
    return observer.attend(layer, query, key, value, scaling).transpose(1, 2).contiguous(), None


@contextmanager
def observed(network: PreTrainedModel, hidden: Iterable[int] = ()) -> Iterator[None]:
    """Within this block the network's layers call `attention`; afterwards the network is as it was.

    hidden: layers whose output the observer is shown. The name is registered beside the implementations of
    transformers and replaces none of them.
    """
    from transformers import AttentionInterface  # with the modules of all models

    AttentionInterface.register(NAME, attention)
    before = network.config._attn_implementation
    with ExitStack() as hooks:
        for layer in hidden:
            hooks.enter_context(shown(network, layer))
        network.set_attn_implementation(NAME)
        try:
            yield
        finally:
            network.set_attn_implementation(before)


@contextmanager
def shown(network: PreTrainedModel, layer: int) -> Iterator[None]:
    blocks: Any = getattr(network.base_model, "layers", ())
    if layer >= len(blocks):
        raise BadInput(f"a policy reads the output of layer {layer}, the model has {len(blocks)} layers")
    handle = blocks[layer].register_forward_hook(shower(layer), with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def shower(layer: int) -> Callable[..., None]:
    def show(module: nn.Module, given: Any, named: dict[str, Any], output: Any) -> None:
        if "observer" in named:  # it has none where a press runs the model by itself
            named["observer"].see(layer, output[0] if isinstance(output, tuple) else output)

    return show
