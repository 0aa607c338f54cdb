"""Prompts without a model: random queries and keys, and the view that a policy would get of them."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from policies import AttentionSignal, CacheSignal, Policy, Rows, Signal, View
from policies.signals import BLOCK, attention_rows


class Prompt(NamedTuple):
    token_ids: Tensor  # [n]
    queries: Tensor  # [layer, q_head, n, d]
    keys: Tensor  # [layer, kv_head, n, d]
    values: Tensor  # [layer, kv_head, n, d]
    scale: float


def a_prompt(
    n: int = 300,
    *,
    layers: int = 2,
    q_heads: int = 4,
    kv_heads: int = 2,
    dim: int = 8,
    vocabulary: int = 40,
    sharpness: float = 2.0,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Prompt:
    """sharpness scales the queries: 0 is uniform attention, 2 has clear favourites."""
    random = torch.Generator().manual_seed(seed)
    return Prompt(
        token_ids=torch.randint(vocabulary, (n,), generator=random),
        queries=(sharpness * torch.randn(layers, q_heads, n, dim, generator=random)).to(dtype),
        keys=torch.randn(layers, kv_heads, n, dim, generator=random).to(dtype),
        values=torch.randn(layers, kv_heads, n, dim, generator=random).to(dtype),
        scale=dim**-0.5,
    )


def a_view(
    prompt: Prompt, policies: Iterable[Policy], *, sentence_ends: Iterable[int] = (0, 1, 2), seed: int = 5
) -> View:
    layers = range(prompt.keys.shape[0])
    signals = {
        signal: tuple(measured(signal, prompt, layer) for layer in layers)
        for policy in policies
        for signal in policy.needs
    }
    return View(
        token_ids=prompt.token_ids,
        layers=prompt.keys.shape[0],
        kv_heads=prompt.keys.shape[1],
        sentence_ends=frozenset(sentence_ends),
        seed=seed,
        signals=signals,
    )


def measured(signal: Signal, prompt: Prompt, layer: int = 0, block: int = BLOCK) -> Any:
    """What the engine would hand to a policy; None of a layer that an attention signal does not read."""
    queries, keys = prompt.queries[layer], prompt.keys[layer]
    n = keys.shape[1]
    if isinstance(signal, CacheSignal):
        filled = torch.ones(keys.shape[:2], dtype=torch.bool, device=keys.device)
        return signal.summarise(layer, keys, prompt.values[layer], filled)
    assert isinstance(signal, AttentionSignal)
    state = None
    for first in range(0, n if signal.reads(layer) else 0, block):
        stop = min(first + block, n)
        attention = attention_rows(queries[:, first:stop], keys[:, :stop], prompt.scale, first)
        if signal.window is None or stop > n - signal.window:
            state = signal.attend(Rows(attention, layer, first, n), state)
    return state


def plain_attention(queries: Tensor, keys: Tensor, scale: float) -> Tensor:
    """[q_head, n, n], one row at a time, in float64."""
    q_heads, n, _ = queries.shape
    group = q_heads // keys.shape[0]
    attention = torch.zeros(q_heads, n, n, dtype=torch.float64)
    for head in range(q_heads):
        for row in range(n):
            logits = scale * (keys[head // group, : row + 1].double() @ queries[head, row].double())
            attention[head, row, : row + 1] = logits.softmax(0)
    return attention
