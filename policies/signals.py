"""What policies measure in a prefill, one layer at a time, in blocks of query rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from policies.contract import Signal, View

__all__ = ["BLOCK", "AttentionSums", "attention_rows", "group_mean", "of_all_layers"]

BLOCK = 128
"""Query rows worked on at once: [q_head, BLOCK, n] is the largest block of attention ever held."""


def attention_rows(queries: Tensor, keys: Tensor, scale: float, start: int, stop: int) -> Tensor:
    """Causal softmax of query rows start..stop-1 over the keys they may see: [q_head, stop - start, stop].

    queries [q_head, n, d] and keys [kv_head, n, d], both with RoPE; query head h reads KV head h // group.
    float32 or better, whatever the inputs.
    """
    wide = torch.promote_types(queries.dtype, torch.float32)
    rows = queries[:, start:stop].to(wide).reshape(keys.shape[0], -1, stop - start, keys.shape[-1])
    logits = scale * (rows @ keys[:, None, :stop].to(wide).transpose(-1, -2))
    position = torch.arange(stop, device=queries.device)
    future = position > position[start:, None]
    return logits.masked_fill(future, -torch.inf).softmax(-1).flatten(0, 1)


@dataclass(frozen=True)
class AttentionSums:
    """Attention that each key receives, summed over query rows: [q_head, n].

    last: how many query rows, counted from the end (SnapKV's window); None sums all of them (H2O), which is
    n - i addends for key i.
    """

    last: int | None = None

    def measure(self, layer: int, queries: Tensor, keys: Tensor, scale: float) -> Tensor:
        heads, n, _ = queries.shape
        sums = torch.zeros(
            heads, n, dtype=torch.promote_types(queries.dtype, torch.float32), device=queries.device
        )
        first = 0 if self.last is None else max(0, n - self.last)
        for start in range(first, n, BLOCK):
            stop = min(start + BLOCK, n)
            sums[:, :stop] += attention_rows(queries, keys, scale, start, stop).sum(1)
        return sums


def of_all_layers(view: View, signal: Signal) -> tuple[Any, ...]:
    """One entry a layer; a signal that the engine did not bring is refused by name."""
    measured = view.signals.get(signal)
    if measured is None or len(measured) != view.layers:
        raise ValueError(f"view.signals must hold {signal} with one entry for each of {view.layers} layers")
    return measured


def group_mean(values: Tensor, kv_heads: int) -> Tensor:
    """[q_head, ...] -> [kv_head, ...], the mean over the query heads that share a KV head."""
    return values.reshape(kv_heads, -1, *values.shape[1:]).mean(1)
