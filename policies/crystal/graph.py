"""S4: the trunk graph and the centrality of its trunks (CrystalCache, section 3.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from policies.crystal.coattention import Edges

EPSILON = 1e-8  # Eq. 27


class Links(NamedTuple):
    """The trunk graph W, each pair of trunks once: a < b, int64 [link], and weight, float64 [link]."""

    a: Tensor
    b: Tensor
    weight: Tensor


def build_links(spans: Sequence[range], edges: Edges, edge_threshold: float) -> Links:
    """Eq. 24-25: return the links whose weight exceeds the threshold.

    Entries of both directions are pooled, so a mutual pair of tokens counts twice.
    """
    sizes = edges.i.new_tensor([len(span) for span in spans])
    count = len(spans)
    owner = torch.arange(count, device=sizes.device).repeat_interleave(sizes)
    owner_i, owner_j = owner[edges.i], owner[edges.j]
    differs = owner_i != owner_j
    pair = torch.minimum(owner_i, owner_j)[differs] * count + torch.maximum(owner_i, owner_j)[differs]
    pairs, index, entries = torch.unique(pair, return_inverse=True, return_counts=True)
    total = sum_by_index(index, edges.weight[differs], len(pairs))
    a, b = pairs // count, pairs % count
    weight = total / entries * (entries.double() / (sizes[a] * sizes[b])).sqrt()
    is_strong = weight > edge_threshold
    return Links(a[is_strong], b[is_strong], weight[is_strong])


def crystallization(links: Links, trunks: int, steepness: float) -> Tensor:
    """Return D [trunk] float64 in [0, 1]: the logistic of the standardised weighted degree, Eq. 26-27.

    The standard deviation is that of the population (the paper's mean divides by m too).
    """
    degree = sum_by_index(torch.cat([links.a, links.b]), links.weight.repeat(2), trunks)
    deviation = degree.std(correction=0)
    scale = deviation if deviation >= EPSILON else torch.ones_like(deviation)
    return torch.sigmoid(steepness * (degree - degree.mean()) / scale)


def join_links(first: Links, second: Links) -> Links:
    """Concatenate two sets of links without common pairs."""
    return Links(*(torch.cat(pair) for pair in zip(first, second, strict=True)))


def to_matrix(links: Links, trunks: int) -> Tensor:
    """Return W as a symmetric matrix [trunk, trunk], 0 without a link."""
    weights = links.weight.new_zeros(trunks, trunks)
    weights[links.a, links.b] = links.weight
    weights[links.b, links.a] = links.weight
    return weights


def to_links(weights: Tensor) -> Links:
    """Return the links of a symmetric matrix [trunk, trunk]."""
    a, b = weights.triu(1).nonzero(as_tuple=True)
    return Links(a, b, weights[a, b])


def sum_by_index(index: Tensor, weight: Tensor, count: int) -> Tensor:
    return torch.zeros(count, dtype=torch.float64, device=weight.device).index_add(0, index, weight.double())
