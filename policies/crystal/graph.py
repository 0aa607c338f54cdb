"""S4: the trunk graph and the centrality of its trunks (CrystalCache, section 3.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from policies.crystal.coattention import Edges

__all__ = ["Links", "crystallization", "dense", "joined", "links_of", "sparse"]

EPSILON = 1e-8  # Eq. 27


class Links(NamedTuple):
    """The trunk graph W, each pair of trunks once: a < b, int64 [link], and weight, float64 [link]."""

    a: Tensor
    b: Tensor
    weight: Tensor


def links_of(spans: Sequence[range], edges: Edges, edge_threshold: float) -> Links:
    """Eq. 24-25: return the links whose weight exceeds the threshold.

    Entries of both directions are pooled, so a mutual pair of tokens counts twice.
    """
    sizes = edges.i.new_tensor([len(span) for span in spans])
    count = len(spans)
    owner = torch.arange(count, device=sizes.device).repeat_interleave(sizes)
    one, other = owner[edges.i], owner[edges.j]
    apart = one != other
    pair = torch.minimum(one, other)[apart] * count + torch.maximum(one, other)[apart]
    pairs, which, entries = torch.unique(pair, return_inverse=True, return_counts=True)
    total = summed(which, edges.weight[apart], len(pairs))
    a, b = pairs // count, pairs % count
    weight = total / entries * (entries.double() / (sizes[a] * sizes[b])).sqrt()
    kept = weight > edge_threshold
    return Links(a[kept], b[kept], weight[kept])


def crystallization(links: Links, trunks: int, steepness: float) -> Tensor:
    """Return D [trunk] float64 in [0, 1]: the logistic of the standardised weighted degree, Eq. 26-27.

    The standard deviation is that of the population (the paper's mean divides by m too).
    """
    degree = summed(torch.cat([links.a, links.b]), links.weight.repeat(2), trunks)
    deviation = degree.std(correction=0)
    scale = deviation if deviation >= EPSILON else torch.ones_like(deviation)
    return torch.sigmoid(steepness * (degree - degree.mean()) / scale)


def joined(one: Links, other: Links) -> Links:
    """Concatenate two sets of links without common pairs."""
    return Links(*(torch.cat(pair) for pair in zip(one, other, strict=True)))


def dense(links: Links, trunks: int) -> Tensor:
    """Return W as a symmetric matrix [trunk, trunk], 0 without a link."""
    weights = links.weight.new_zeros(trunks, trunks)
    weights[links.a, links.b] = links.weight
    weights[links.b, links.a] = links.weight
    return weights


def sparse(weights: Tensor) -> Links:
    """Return the links of a symmetric matrix [trunk, trunk]."""
    a, b = weights.triu(1).nonzero(as_tuple=True)
    return Links(a, b, weights[a, b])


def summed(which: Tensor, weight: Tensor, count: int) -> Tensor:
    return torch.zeros(count, dtype=torch.float64, device=weight.device).index_add(0, which, weight.double())
