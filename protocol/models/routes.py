"""Routes of heads: which heads keep slots by their scores; their measurement on answers and the file format.

The paper of the gate `static_route` (arXiv:2605.14292) says "offline-calibrated". Here, at the end of a
prompt and every STEP tokens of the answer, a head gets each of BUDGETS slots twice: by its scores and at
equal distances. The criterion is the attention that the next HORIZON queries of the full cache give to these
slots, mean over queries, cuts, budgets and texts, and over the query heads of the KV head. A tie goes to the
scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from policies import Routes, Signal, Statistics, View
from policies.signals import Keys, attention_rows
from policies.static_route import static_route
from protocol.formats.refusals import BadInput
from protocol.layers.layer_kinds import evictable

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BUDGETS = (64, 128)
"""Slots of a head: those of the paper."""
STEP = 32
HORIZON = 128
"""The number of queries processed at once, so that no [n, n] tensor is stored."""


class CapturedAttention(NamedTuple):
    """Attention retained, summed over `queries` queries: [layer, kv_head] float64 each."""

    by_score: Tensor
    evenly: Tensor
    queries: int


def cuts(prompt: int, n: int) -> Iterator[tuple[int, int]]:
    """Yield positions where a text of n tokens is cut, and budgets, always below the number of tokens."""
    return ((position, budget) for position in range(prompt, n, STEP) for budget in BUDGETS if budget < position)


def capture_attention(
    queries: Sequence[Tensor],
    keys: Sequence[Tensor],
    scale: float,
    prompt: int,
    statistics: Statistics,
    sinks: Mapping[int, Tensor] = MappingProxyType({}),
) -> CapturedAttention:
    """Measure one text: queries [q_head, n, d] and keys [kv_head, n, d] of each layer, with RoPE. prompt:
    tokens before the answer; statistics: those that the scores read; sinks: by layer, if a model has them.
    """
    layers, kv_heads, n = len(keys), *keys[0].shape[:2]
    total = torch.zeros(2, layers, kv_heads, dtype=torch.float64)
    count = 0
    for start, budget in cuts(prompt, n):
        for route, attention in enumerate((True, False)):
            masks = retained_mask(keys, start, budget, statistics, attention=attention)
            for layer in range(layers):
                total[route, layer] += retained_attention(
                    queries[layer], keys[layer], masks[layer], scale, sinks.get(layer)
                ).cpu()
        count += min(HORIZON, n - start)
    return CapturedAttention(total[0], total[1], count)


def retained_mask(
    keys: Sequence[Tensor], start: int, budget: int, statistics: Statistics, *, attention: bool
) -> Tensor:
    """Return [layer, kv_head, start] bool: what `static_route` keeps of `start` tokens with one route for all heads."""
    layers, kv_heads, device = len(keys), len(keys[0]), keys[0].device
    policy = static_route()
    known = {Statistics: statistics, Routes: Routes(torch.full((layers, kv_heads), attention, device=device))}
    signals: dict[Signal, Any] = {signal: known[signal.kind] for signal in policy.calibrated}
    signals[Keys()] = tuple(layer_keys[:, :start] for layer_keys in keys)
    token_ids = torch.zeros(start, dtype=torch.int64, device=device)
    return policy.keep(View(token_ids, layers, kv_heads, frozenset(), 0, signals), budget)


def retained_attention(
    queries: Tensor, keys: Tensor, mask: Tensor, scale: float, sinks: Tensor | None = None
) -> Tensor:
    """Return [kv_head] float64: attention of the HORIZON queries after the slots of mask [kv_head, start] to
    the retained ones, summed over queries, mean over the query heads of a group.
    """
    start = mask.shape[1]
    stop = min(start + HORIZON, keys.shape[1])
    rows = attention_rows(queries[:, start:stop], keys[:, :stop], scale, start, sinks=sinks)[..., :start]
    group_rows = rows.reshape(len(keys), -1, *rows.shape[1:]).mean(1)
    return (group_rows.double() * mask[:, None]).sum((1, 2))


def choose_routes(by_score: Tensor, evenly: Tensor) -> Routes:
    """Choose the route by score where its captured attention [layer, kv_head] is no less."""
    return Routes(by_score >= evenly)


def pack(value: Routes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of the file."""
    return {"attention": value.attention}, {}


def unpack(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Routes:
    """Read what `pack` wrote; raises KeyError or ValueError for anything else."""
    attention = tensors["attention"]
    if attention.dtype != torch.bool or attention.dim() != 2:
        raise ValueError("attention must be bool [layer, kv_head]")
    return Routes(attention)


def explain_misfit(value: Routes, network: PreTrainedModel) -> str:
    """Return why this value does not fit the network; empty if it does."""
    config = network.config
    actual, expected = list(value.attention.shape), [evictable(config), config.num_key_value_heads]
    return "" if actual == expected else f"has the shape {actual} (layers, KV heads), but the model needs {expected}"


def check_queries(queries: int) -> None:
    if not queries:
        raise BadInput(
            f"tokens: no measured answer is longer than {min(BUDGETS) + 1} tokens; raise --tokens, or choose "
            "a task with longer answers"
        )
