"""Head budgets: which heads share a keep set, and how the budget is allocated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from policies.contract import Allocation, Scores, View
from policies.selection import select_highest


class Equal:
    """Every keep set gets the budget."""

    bounds: ClassVar[bool] = False

    def allocate(self, view: View, scores: Scores, protected: Tensor, budget: int) -> Allocation:
        return Allocation(uniform_counts(scores.slots, budget))


@dataclass(frozen=True)
class Shared(Equal):
    """One keep set, chosen by the mean score, for all layers and heads."""

    stacks: ClassVar[bool] = True

    def route(self, scores: Scores, layers: int, kv_heads: int) -> Scores:
        return scores._replace(slots=scores.slots.mean((-3, -2), keepdim=True))


@dataclass(frozen=True)
class PerLayer(Equal):
    """One keep set per layer, chosen by the mean score of its heads."""

    stacks: ClassVar[bool] = True

    def route(self, scores: Scores, layers: int, kv_heads: int) -> Scores:
        return scores._replace(slots=expand_heads(scores.slots.mean(-2, keepdim=True), layers, 1))


@dataclass(frozen=True)
class PerHead(Equal):
    """A separate keep set for each layer and KV head, all of one size."""

    stacks: ClassVar[bool] = True

    def route(self, scores: Scores, layers: int, kv_heads: int) -> Scores:
        return scores._replace(slots=expand_heads(scores.slots, layers, kv_heads))


@dataclass(frozen=True)
class Pyramid(PerHead):
    """A set for each layer and KV head, smaller by equal steps from the first layer to the last.

    In addition to the protected slots, which every layer holds, the last layer gets 1 / beta of the mean and
    the first layer as much above the mean as the last is below it (PyramidKV, arXiv:2406.02069); if the first
    layer would get more slots than it has, the steps shrink until it gets all of them.
    """

    beta: float = 20

    def __post_init__(self) -> None:
        if self.beta < 1:
            raise ValueError(f"beta must be 1 (equal layers) or more, not {self.beta}")

    def allocate(self, view: View, scores: Scores, protected: Tensor, budget: int) -> Allocation:
        return Allocation(self.counts(scores.slots, protected, budget))

    def counts(self, slots: Tensor, protected: Tensor, budget: int) -> Tensor:
        layers, kv_heads, n = slots.shape
        window = int(protected.sum(-1).max())
        mean = budget - window
        above = min(mean - mean / self.beta, n - budget)
        step = 2 * above / max(1, layers - 1)
        layer = torch.arange(layers, dtype=torch.float64, device=slots.device)
        shares = budget + step * ((layers - 1) / 2 - layer)
        return round_counts(shares, slots_per_head(slots).amin(-1))[:, None].expand(-1, kv_heads)


@dataclass(frozen=True)
class Adaptive(PerHead):
    """A set for each layer and KV head; the heads of a layer share its budget by their scores.

    A head gets `floor` of an equal split; the rest is split by its number of the layer's highest scores
    (Ada-KV, arXiv:2407.11550), protected slots first.
    """

    floor: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.floor <= 1:
            raise ValueError(f"floor must be between 0 and 1, not {self.floor}")

    def allocate(self, view: View, scores: Scores, protected: Tensor, budget: int) -> Allocation:
        return Allocation(self.counts(scores.slots, protected, budget))

    def counts(self, slots: Tensor, protected: Tensor, budget: int) -> Tensor:
        kv_heads = slots.shape[1]
        # The heads of a layer form one row, so that they compete.
        row, protected_row = slots.flatten(1)[:, None], protected.expand(slots.shape).flatten(1)[:, None]
        joint = select_highest(row, protected_row, uniform_counts(row, kv_heads * budget)).view(slots.shape).sum(-1)
        return round_counts((1 - self.floor) * joint.double() + self.floor * budget, slots_per_head(slots))


def expand_heads(slots: Tensor, layers: int, kv_heads: int) -> Tensor:
    """slots [..., layer | 1, kv_head | 1, n] -> [..., layer, kv_head, n]"""
    return slots.expand(*slots.shape[:-3], layers, kv_heads, -1)


def uniform_counts(slots: Tensor, budget: int) -> Tensor:
    """slots [..., layer, kv_head, n] -> the same budget for each set [..., layer, kv_head]."""
    return torch.full(slots.shape[:-1], budget, device=slots.device)


def slots_per_head(slots: Tensor) -> Tensor:
    """slots [layer, kv_head, n], -inf for padding -> the number of filled slots [layer, kv_head]."""
    return (slots > -torch.inf).sum(-1)


def round_counts(shares: Tensor, most: Tensor) -> Tensor:
    """Round `shares` [..., entry] to integers of the same sum, by largest remainder, none above `most`.

    The excess of an entry goes in equal parts to those that have room. Equal remainders: the lower entry.
    """
    total = shares.sum(-1, keepdim=True).round()
    while (shares > most).any():
        shares = shares.minimum(most.double())
        room = shares < most
        missing = total - shares.sum(-1, keepdim=True)
        shares = shares + room * missing / room.sum(-1, keepdim=True).clamp(min=1)
    floors = shares.floor()
    # Rounded, so that ties do not depend on the order of summation.
    remainder = (shares - floors).round(decimals=6)
    rank = remainder.argsort(dim=-1, stable=True, descending=True).argsort(dim=-1)
    return (floors + (rank < total - floors.sum(-1, keepdim=True))).long()
