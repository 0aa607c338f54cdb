"""A forward pass of the native kernel over one prompt, whose attention an observer computes."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from protocol.engine.native.network import NativeNetwork
from protocol.engine.observation import Observer


def feed_prompt(
    network: NativeNetwork, token_ids: Tensor, start: int, observer: Observer, hidden: Collection[int] = ()
) -> Tensor:
    """Feed token_ids [t], the first at position `start`, and return the logits [vocabulary] after the last.

    The observer computes the attention, as in the network's own forward, and sees the output of the `hidden` layers.
    No other number of a row depends on the other rows.
    """
    count, layers, ends = len(token_ids), network.network.layers, (network.heads, network.heads + network.kv_heads)
    if token_ids.min() < 0 or token_ids.max() >= network.vocabulary or not 0 <= start <= network.positions - count:
        raise ValueError(f"tokens {token_ids.tolist()} at {start}, of {network.vocabulary} and {network.positions}")
    positions, output = torch.arange(start, start + count), network.embedding[token_ids]
    projected, logits = torch.empty(count, network.fed), torch.empty(network.vocabulary)
    for layer in range(layers):
        network.call(
            network.library.project, count * network.layer_products, layer, count, positions, output, projected
        )
        parts = projected.view(1, count, -1, network.width).transpose(1, 2).tensor_split(ends, 1)
        queries, keys, values = (part.clone(memory_format=torch.contiguous_format) for part in parts)
        attended = observer.attend(layer, queries, keys, values, network.network.scale)[0].transpose(0, 1)
        if layer + 1 == layers and layer not in hidden:
            attended, output = attended[-1:], output[-1:]  # nobody reads the others
        products = len(output) * network.layer_products
        network.call(network.library.finish, products, layer, len(output), attended.contiguous(), output)
        if layer in hidden:
            observer.see(layer, output[None].clone())
    network.call(network.library.answer, network.embedding.numel(), 1, output[-1:], logits)
    return logits
