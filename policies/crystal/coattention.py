"""S1: salience of tokens and co-attention edges, from the first layer (CrystalCache, section 3.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from policies.selection import highest
from policies.signals import BLOCK, attention_rows

__all__ = ["CoAttention", "Edges", "FirstLayer"]

TOP_HEADS = 3  # Eq. 11, Table 14
EPSILON = 1e-8  # Eq. 12; the paper gives its value for Eq. 27 only


class Edges(NamedTuple):
    """Entries (i, j, weight) of E, each tensor [edge].

    E is directed, as Eq. 24 reads it. An intra-chunk entry (i, j) means that j is among the top-k of i, so
    a pair that chose each other has two entries; a cross-chunk entry has the earlier key as i and the query
    as j.
    """

    i: Tensor
    j: Tensor
    weight: Tensor


class FirstLayer(NamedTuple):
    """What S1 leaves behind."""

    mass: Tensor
    """[n], Eq. 11 before clipping: attention from queries of the key's own chunk, its three highest heads."""
    edges: Edges


@dataclass(frozen=True)
class CoAttention:
    """Signal of the first layer; the others are not read."""

    chunk: int = 1024
    intra_k: int = 8
    intra_threshold: float = 0.3
    cross_k: int = 4
    cross_threshold: float = 0.02

    def __post_init__(self) -> None:
        if min(self.chunk, self.intra_k, self.cross_k) < 1:
            raise ValueError(
                "chunk, intra_k and cross_k must be 1 or more, "
                f"not {self.chunk}, {self.intra_k} and {self.cross_k}"
            )

    def measure(self, layer: int, queries: Tensor, keys: Tensor, scale: float) -> FirstLayer | None:
        if layer > 0:
            return None
        return self.read(
            lambda start, stop: attention_rows(queries, keys, scale, start, stop), queries.shape[1]
        )

    def read(self, rows: Callable[[int, int], Tensor], n: int) -> FirstLayer:
        """S1 from rows(start, stop), the causal attention of these queries: [head, stop - start, stop].

        Holds [head, BLOCK, n] and one [chunk, chunk] averaged over heads.
        """
        masses: list[Tensor] = []
        found: list[Edges] = []
        for start in range(0, n, self.chunk):
            chunk = range(start, min(start + self.chunk, n))
            received, patterns = [], []
            for first in range(start, chunk.stop, BLOCK):
                attention = rows(first, min(first + BLOCK, chunk.stop))
                own = torch.nn.functional.pad(attention[..., start:], (0, chunk.stop - attention.shape[-1]))
                received.append(own.sum(1))
                patterns.append(own.mean(0))
                if start:
                    found.append(self.cross_edges(attention[..., :start].mean(0), first))
            masses.append(strongest_heads(torch.stack(received).sum(0)))
            found.append(self.intra_edges(torch.cat(patterns), start))
        i, j, weight = (torch.cat(column) for column in zip(*found, strict=True))
        return FirstLayer(torch.cat(masses), Edges(i, j, weight))

    def intra_edges(self, patterns: Tensor, start: int) -> Edges:
        """Eq. 12-13. patterns [query, key] of one chunk: each token's most similar rows, itself excluded."""
        unit = patterns / (patterns.norm(dim=-1, keepdim=True) + EPSILON)
        cosine = (unit @ unit.T).fill_diagonal_(-torch.inf)
        chosen = highest(cosine, self.intra_k) & (cosine > self.intra_threshold)
        i, j = chosen.nonzero(as_tuple=True)
        return Edges(start + i, start + j, cosine[chosen])

    def cross_edges(self, attention: Tensor, first: int) -> Edges:
        """Eq. 14. attention [query, key] to earlier chunks, head mean: the strongest keys of each query."""
        chosen = highest(attention, self.cross_k) & (attention > self.cross_threshold)
        query, key = chosen.nonzero(as_tuple=True)
        return Edges(key, first + query, attention[chosen])


def strongest_heads(received: Tensor) -> Tensor:
    """received [head, key] -> [key], the sum of the three highest heads (of all, where there are fewer)."""
    return received.topk(min(TOP_HEADS, received.shape[0]), dim=0).values.sum(0)
