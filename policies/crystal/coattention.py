"""S1: salience of tokens and co-attention edges, from the first layer (CrystalCache, section 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from policies.contract import Rows
from policies.selection import highest

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
    """What S1 leaves behind, and what it holds on the way."""

    masses: tuple[Tensor, ...] = ()
    """[chunk length] each, Eq. 11 before clipping: attention from queries of the key's own chunk, its three
    highest heads.
    """
    found: tuple[Edges, ...] = ()
    received: Tensor | None = None
    """[head, key of the chunk so far], while a chunk is not complete."""
    patterns: tuple[Tensor, ...] = ()
    """[row, key of the chunk] each, the head mean, while a chunk is not complete."""

    @property
    def mass(self) -> Tensor:
        """[n]"""
        return torch.cat(self.masses)

    @property
    def edges(self) -> Edges:
        i, j, weight = (torch.cat(column) for column in zip(*self.found, strict=True))
        return Edges(i, j, weight)


@dataclass(frozen=True)
class CoAttention:
    """Signal of the first layer; the others are not read.

    Holds [head, BLOCK, n] and one [chunk, chunk] averaged over heads.
    """

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

    @property
    def window(self) -> None:
        return None

    @property
    def carried(self) -> bool:
        return False

    def reads(self, layer: int) -> bool:
        return layer == 0

    def attend(self, rows: Rows, before: FirstLayer | None) -> FirstLayer:
        """A block of rows is cut at the borders of the paper's chunks."""
        state, start = before or FirstLayer(), rows.start
        end = start + rows.attention.shape[-2]
        while start < end:
            stop = min(end, start - start % self.chunk + self.chunk)
            piece = rows.attention[:, start - rows.start : stop - rows.start, :stop]
            state, start = self.take(piece, start, rows.total, state), stop
        return state

    def take(self, attention: Tensor, first: int, total: int, state: FirstLayer) -> FirstLayer:
        """attention [head, row, key] of rows from `first` on, all of one chunk."""
        start = first - first % self.chunk
        chunk = range(start, min(start + self.chunk, total))
        stop = attention.shape[-1]
        own = torch.nn.functional.pad(attention[..., start:], (0, chunk.stop - stop))
        received = own.sum(1) if state.received is None else state.received + own.sum(1)
        patterns = (*state.patterns, own.mean(0))
        found = state.found
        if start:
            found += (self.cross_edges(attention[..., :start].mean(0), first),)
        if stop < chunk.stop:
            return FirstLayer(state.masses, found, received, patterns)
        found += (self.intra_edges(torch.cat(patterns), start),)
        return FirstLayer((*state.masses, strongest_heads(received)), found)

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
