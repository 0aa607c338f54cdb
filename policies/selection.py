"""Scores and an allocation to kept slots. Ties are decided here, once: the lower position is kept."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from policies.contract import Scores

__all__ = ["Chunks", "TopK"]


@dataclass(frozen=True)
class TopK:
    """The protected slots, then the highest scores."""

    @property
    def slack(self) -> int:
        return 0

    def select(self, scores: Scores, protected: Tensor, allocation: Tensor) -> Tensor:
        # Scores are finite by now, so infinity puts the protected slots above every other.
        ranked = scores.slots.masked_fill(protected, torch.inf).argsort(stable=True, descending=True)
        return first(ranked, allocation)


@dataclass(frozen=True)
class Chunks:
    """The protected slots, then chunks of `size` neighbouring slots, the highest mean score first.

    Chunks are counted from the first slot of a head. Only slots that compete count in the mean, so a chunk
    that the protected slots or the end cut short is weighed like a whole one. The last chunk taken is cut to
    its highest scores: no slot of the allocation stays unused.
    """

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size of a chunk must be 1 or more, not {self.size}")

    @property
    def slack(self) -> int:
        return 0

    def select(self, scores: Scores, protected: Tensor, allocation: Tensor) -> Tensor:
        slots = scores.slots
        filled = slots > -torch.inf
        worth = self.means(slots, filled & ~protected)
        rank = worth.argsort(stable=True, descending=True).argsort()
        chunk = torch.arange(slots.shape[-1], device=slots.device) // self.size
        turn = rank[..., chunk].masked_fill(~filled, len(chunk)).masked_fill(protected, -1)
        by_score = slots.argsort(stable=True, descending=True)
        by_turn = turn.gather(-1, by_score).argsort(stable=True)
        return first(by_score.gather(-1, by_turn), allocation)

    def means(self, slots: Tensor, compete: Tensor) -> Tensor:
        """[layer, kv_head, chunk]; 0 of a chunk in which no slot competes."""
        short = -slots.shape[-1] % self.size

        def summed(values: Tensor) -> Tensor:
            return functional.pad(values, (0, short)).reshape(*values.shape[:2], -1, self.size).sum(-1)

        counts = summed(compete.to(slots.dtype))
        return summed(slots.masked_fill(~compete, 0)) / counts.clamp(min=1)


def first(ranked: Tensor, allocation: Tensor) -> Tensor:
    """Mask of the first `allocation` [layer, kv_head] slots of those `ranked` [layer, kv_head, n]."""
    place = torch.arange(ranked.shape[-1], device=ranked.device)
    within = place < allocation[..., None]
    return torch.zeros_like(within).scatter(-1, ranked, within)
