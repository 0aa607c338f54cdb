"""Who shares a keep set, and how the budget is split."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from policies.contract import Scores

__all__ = ["PerHead", "Shared"]


@dataclass(frozen=True)
class Shared:
    """One keep set, chosen by the mean score, for all layers and heads."""

    def route(self, scores: Scores, layers: int, kv_heads: int) -> Scores:
        return scores._replace(slots=scores.slots.mean((0, 1), keepdim=True))

    def allocate(self, slots: Tensor, protected: Tensor, budget: int) -> Tensor:
        return uniform(slots, budget)


@dataclass(frozen=True)
class PerHead:
    """Each layer and KV head keeps a set of its own; all of one size."""

    def route(self, scores: Scores, layers: int, kv_heads: int) -> Scores:
        return scores._replace(slots=scores.slots.expand(layers, kv_heads, -1))

    def allocate(self, slots: Tensor, protected: Tensor, budget: int) -> Tensor:
        return uniform(slots, budget)


def uniform(slots: Tensor, budget: int) -> Tensor:
    """slots [layer, kv_head, n] -> the budget for each [layer, kv_head]."""
    return torch.full(slots.shape[:2], budget, device=slots.device)
