"""S4: how central a trunk is among the others (CrystalCache, section 3.5)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from policies.crystal.coattention import Edges

__all__ = ["crystallization", "degrees"]

EPSILON = 1e-8  # Eq. 27


def crystallization(spans: Sequence[range], edges: Edges, edge_threshold: float, steepness: float) -> Tensor:
    """D [trunk] float64 in [0, 1]: logistic of the standardised weighted degree, Eq. 27.

    The standard deviation is that of the population (the paper's mean divides by m too).
    """
    degree = degrees(spans, edges, edge_threshold)
    deviation = degree.std(correction=0)
    scale = deviation if deviation >= EPSILON else torch.ones_like(deviation)
    return torch.sigmoid(steepness * (degree - degree.mean()) / scale)


def degrees(spans: Sequence[range], edges: Edges, edge_threshold: float) -> Tensor:
    """Eq. 24-26: [trunk] float64, the sum of a trunk's edge weights that exceed the threshold.

    Entries of both directions are one multiset, so a pair of tokens that chose each other counts twice.
    """
    sizes = edges.i.new_tensor([len(span) for span in spans])
    count = len(spans)
    owner = torch.arange(count, device=sizes.device).repeat_interleave(sizes)
    a, b = owner[edges.i], owner[edges.j]
    apart = a != b
    pair = torch.minimum(a, b)[apart] * count + torch.maximum(a, b)[apart]
    pairs, which, entries = torch.unique(pair, return_inverse=True, return_counts=True)
    total = summed(which, edges.weight[apart], len(pairs))
    low, high = pairs // count, pairs % count
    weight = total / entries * (entries / (sizes[low] * sizes[high])).sqrt()
    kept = weight > edge_threshold
    ends = torch.cat([low[kept], high[kept]])
    return summed(ends, weight[kept].repeat(2), count)


def summed(which: Tensor, weight: Tensor, count: int) -> Tensor:
    return torch.zeros(count, dtype=torch.float64, device=weight.device).index_add(0, which, weight.double())
