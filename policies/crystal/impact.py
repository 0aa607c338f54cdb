"""S3: encoding impact, salience mixed with rarity (CrystalCache, section 3.4)."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest

import torch
from torch import Tensor

__all__ = ["of_tokens", "of_trunks", "rarity"]

TOP_MEMBERS = 3  # Eq. 23, Table 14


def rarity(token_ids: Tensor) -> Tensor:
    """Eq. 20-21. [n] -> [n] float64 in (0, 0.591]: the rarer a token in this prompt, the higher."""
    _, which, counts = torch.unique(token_ids, return_inverse=True, return_counts=True)
    return 1 / (1 + torch.log1p(counts[which].double()))


def of_tokens(salience: Tensor, token_ids: Tensor, lowest: float, highest: float) -> Tensor:
    """Eq. 22: M_i [n] float64, from the clipped salience [n]."""
    mixed = 0.5 * (salience.double() / highest) + 0.5 * rarity(token_ids)
    return (highest * mixed).clamp(lowest, highest)


def of_trunks(impact: Tensor, spans: Sequence[range]) -> Tensor:
    """Eq. 23: [trunk], mean of the three highest members (of all, where there are fewer)."""
    values = impact.tolist()
    means = []
    for span in spans:
        top = nlargest(TOP_MEMBERS, values[span.start : span.stop])
        means.append(sum(top) / len(top))
    return impact.new_tensor(means)
