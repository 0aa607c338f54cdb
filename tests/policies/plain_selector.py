"""Algorithm 1 of "Minimal-Intervention KV Retention via Set-Conditioned Diversity", line by line.

The authors' code is not public. It forms the matrix of all cosines first; here too, in one product.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["plain_diverse"]


def plain_diverse(scores: Tensor, signatures: Tensor, k: int, weight: float) -> Tensor:
    """The k kept slots, ascending. scores [n], signatures [n, d] of unit length; ties: the lowest slot."""
    if weight == 0:
        return scores.argsort(stable=True, descending=True)[:k].sort().values
    cosines = signatures @ signatures.T
    nearest = torch.zeros_like(scores)
    kept: list[int] = []
    gains = scores
    for _ in range(k):
        pick = int(gains.argmax())
        kept.append(pick)
        nearest = nearest.maximum(cosines[pick])
        gains = scores - weight * nearest
        gains[kept] = -torch.inf
    return torch.tensor(sorted(kept))
