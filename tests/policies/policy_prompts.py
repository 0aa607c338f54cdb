"""Prompts without a model: random queries and keys, and the view that a policy would get of them."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from policies import AttentionSignal, CacheSignal, Calibrated, Event, Policy, Rows, Signal, Statistics, View
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
    signals = {signal: of_model(signal, prompt) for policy in policies for signal in policy.needs}
    return View(
        token_ids=prompt.token_ids,
        layers=prompt.keys.shape[0],
        kv_heads=prompt.keys.shape[1],
        sentence_ends=frozenset(sentence_ends),
        seed=seed,
        signals=signals,
        prompt=len(prompt.token_ids),
    )


def of_model(signal: Signal, prompt: Prompt) -> Any:
    """What a View holds of a signal."""
    if isinstance(signal, Calibrated):
        return random_statistics(prompt, seed=len(signal.name))
    return tuple(measured(signal, prompt, layer) for layer in range(prompt.keys.shape[0]))


def random_statistics(prompt: Prompt, *, seed: int = 0) -> Statistics:
    """Of a model with the heads of this prompt, whose rotation has the angles of RoPE with base 10,000."""
    random = torch.Generator().manual_seed(seed)
    layers, q_heads, _, dim = prompt.queries.shape
    mean = torch.randn(layers, q_heads, dim // 2, dtype=torch.complex64, generator=random, device="cpu")
    direction = torch.randn(dim, generator=random, device="cpu")
    pair = torch.arange(dim // 2, dtype=torch.float64, device="cpu")
    return Statistics(mean, 1.5 * mean.abs(), direction / direction.norm(), 10000 ** (-2 * pair / dim), 1.0)


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
            state = signal.attend(Rows(attention, layer, first, n, len(keys)), state)
    return None if state is None else signal.result(state)


def up_to(prompt: Prompt, stop: int) -> Prompt:
    """The first tokens of a prompt."""
    return Prompt(prompt.token_ids[:stop], *(part[:, :, :stop] for part in prompt[1:4]), prompt.scale)


def a_later_view(prompt: Prompt, policy: Policy, before: View, event: Event, stop: int) -> View:
    """What the engine shows at the next event, once the tokens up to `stop` have been fed one by one.

    For policies with one keep set and signals that begin afresh. before: the view of the last event.
    """
    kept = before.positions[0, 0][event.kept[0, 0]]
    positions = torch.cat([kept, torch.arange(len(before.token_ids), stop)])
    layers = range(before.layers)
    return before._replace(
        token_ids=prompt.token_ids[:stop],
        signals={
            signal: tuple(decoded(signal, prompt, positions, len(kept), layer) for layer in layers)
            for signal in policy.needs
        },
        stored=positions.expand(before.layers, before.kv_heads, -1),
        memory=event.memory,
    )


def decoded(signal: Signal, prompt: Prompt, positions: Tensor, origin: int, layer: int) -> Any:
    """A signal of the slots at these positions, of which those from `origin` on were fed one by one."""
    keys, values = (part[layer][:, positions] for part in (prompt.keys, prompt.values))
    if isinstance(signal, CacheSignal):
        return signal.summarise(layer, keys, values, torch.ones(keys.shape[:2], dtype=torch.bool))
    assert isinstance(signal, AttentionSignal)
    assert signal.afresh
    state = None
    for slot in range(origin, len(positions) if signal.reads(layer) else origin):
        position = int(positions[slot])
        query = prompt.queries[layer][:, position : position + 1]
        row = attention_rows(query, keys[:, : slot + 1], prompt.scale, slot)
        # While decoding the engine stacks the layers that a signal reads.
        state = signal.attend(Rows(row[None], layer, position, position + 1, len(keys), decoded=True), state)
    return None if state is None else signal.result(state)


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
