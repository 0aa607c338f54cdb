"""Scores and an allocation to kept slots. Ties are decided here, once: the lower position is kept."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from policies.contract import Scores

__all__ = ["TopK", "highest"]


@dataclass(frozen=True)
class TopK:
    """The protected slots, then the highest scores."""

    @property
    def slack(self) -> int:
        return 0

    def select(self, scores: Scores, protected: Tensor, allocation: Tensor) -> Tensor:
        # Scores are finite by now, so infinity puts the protected slots above every other.
        ranked = scores.slots.masked_fill(protected, torch.inf).argsort(stable=True, descending=True)
        place = torch.arange(ranked.shape[-1], device=ranked.device)
        within = place < allocation[..., None]
        return torch.zeros_like(within).scatter(-1, ranked, within)


def highest(values: Tensor, count: int) -> Tensor:
    """Mask of the `count` highest values of each row [..., column]; ties go to the lower column.

    The same set as a stable sort, without sorting the row.
    """
    count = min(count, values.shape[-1])
    last = values.topk(count, dim=-1).values[..., -1:]
    above = values > last
    level = values == last
    return above | (level & (level.cumsum(-1) <= count - above.sum(-1, keepdim=True)))
