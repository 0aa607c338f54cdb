"""S1: salience of tokens and co-attention edges, from the first layer (CrystalCache, section 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from policies.contract import AttentionRows
from policies.signals import BLOCK

TOP_HEADS = 3  # Eq. 11, Table 14
EPSILON = 1e-8  # Eq. 12; the paper gives its value for Eq. 27 only
PART = 64  # columns per block whose maximum is computed first


class Edges(NamedTuple):
    """Entries (i, j, weight) of E, each tensor [edge]; i and j are slots.

    E is directed, as in Eq. 24. An intra-chunk entry (i, j) means that j is among the top-k of i, so a mutual
    pair has two entries; a cross-chunk entry has the earlier key as i and the query as j.
    """

    i: Tensor
    j: Tensor
    weight: Tensor


class FirstLayerState(NamedTuple):
    """The running state of S1."""

    origin: int
    """Number of slots older than the first row; chunks are counted from here."""
    masses: tuple[Tensor, ...] = ()
    """[chunk length] for each complete chunk: `FirstLayerResult.mass`."""
    edges: tuple[Edges, ...] = ()
    received: Tensor | None = None
    """[head, key of the chunk so far], while a chunk is incomplete."""
    patterns: tuple[Tensor, ...] = ()
    """[row, key of the chunk so far] each, the mean over heads, while a chunk is incomplete."""


class FirstLayerResult(NamedTuple):
    """The result of S1 for the slots from `origin` on."""

    origin: int
    mass: Tensor
    """[n - origin], Eq. 11 before clipping: attention from queries of the same chunk, sum of the three
    highest heads.
    """
    edges: Edges


@dataclass(frozen=True)
class CoAttention:
    """Signal of the first layer; the others are not read.

    Stores [BLOCK, n] and a few [chunk, chunk], averaged over heads. Chunks are counted from the first row
    that is added, so while decoding the older slots count only as "earlier chunks" in Eq. 14.
    """

    chunk: int = 1024
    intra_k: int = 8
    intra_threshold: float = 0.3
    cross_k: int = 4
    cross_threshold: float = 0.02

    window: ClassVar[None] = None
    carried: ClassVar[bool] = True
    afresh: ClassVar[bool] = True  # earlier measurements persist in the policy's memory
    raw: ClassVar[bool] = False
    of_tokens: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if min(self.chunk, self.intra_k, self.cross_k) < 1:
            raise ValueError(
                f"chunk, intra_k and cross_k must be 1 or more, not {self.chunk}, {self.intra_k} and {self.cross_k}"
            )

    def reads(self, layer: int) -> bool:
        return layer == 0

    def attend(self, rows: AttentionRows, before: FirstLayerState | None) -> FirstLayerState:
        """Add rows.attention [q_head, row, slot] or [1, q_head, row, slot], whose last slots are the rows'.

        A block of rows is split at the boundaries of the paper's chunks.
        """
        attention = rows.attention.flatten(0, -3)
        count, slots = attention.shape[1:]
        state, start = before or FirstLayerState(slots - count), slots - count
        mean = mean_head(attention)
        while start < slots:
            chunk_start = start - (start - state.origin) % self.chunk
            stop = min(slots, chunk_start + self.chunk)
            piece = slice(start + count - slots, stop + count - slots)
            state = self.add_rows(attention[:, piece, chunk_start:stop], mean[piece, :stop], chunk_start, state)
            start = stop
        return state

    def add_rows(
        self, chunk_attention: Tensor, mean: Tensor, chunk_start: int, state: FirstLayerState
    ) -> FirstLayerState:
        """Add rows of one chunk, which begins at slot `chunk_start`.

        chunk_attention [head, row, slot of the chunk so far]; mean [row, slot], over heads.
        """
        received = chunk_attention.sum(1)
        if state.received is not None:
            received[:, : state.received.shape[1]] += state.received
        edges = state.edges
        if chunk_start:
            edges += (self.cross_edges(mean[:, :chunk_start], mean.shape[1] - len(mean)),)
        patterns = (*state.patterns, mean[:, chunk_start:].clone())
        state = FirstLayerState(state.origin, state.masses, edges, received, patterns)
        return self.close_chunk(state) if received.shape[1] == self.chunk else state

    def close_chunk(self, state: FirstLayerState) -> FirstLayerState:
        """Return the state with its incomplete chunk closed."""
        if state.received is None:
            return state
        chunk_start = state.origin + sum(map(len, state.masses))
        mass = strongest_heads(state.received)
        edges = self.intra_edges(stack_patterns(state.patterns), chunk_start)
        return FirstLayerState(state.origin, (*state.masses, mass), (*state.edges, edges))

    def result(self, state: FirstLayerState) -> FirstLayerResult:
        """Return the result of the rows so far, without changing the state."""
        closed_state = self.close_chunk(state)
        edges = Edges(*(torch.cat(column) for column in zip(*closed_state.edges, strict=True)))
        return FirstLayerResult(closed_state.origin, torch.cat(closed_state.masses), edges)

    def intra_edges(self, patterns: Tensor, start: int) -> Edges:
        """Eq. 12-13: the most similar rows of each token except itself. patterns [query, key] of one chunk."""
        unit = patterns.div_(patterns.norm(dim=-1, keepdim=True) + EPSILON)
        i, j, cosine = top_entries(cosines(unit), self.intra_k, self.intra_threshold)
        return Edges(start + i, start + j, cosine)

    def cross_edges(self, attention: Tensor, first: int) -> Edges:
        """Eq. 14: the strongest keys of each query. attention [query, key] to earlier chunks, head mean."""
        query, key, weight = top_entries(attention, self.cross_k, self.cross_threshold)
        return Edges(key, first + query, weight)


def mean_head(attention: Tensor) -> Tensor:
    """Average over heads, [head, row, slot] -> [row, slot]; twice as fast as torch's mean."""
    total = attention[0].clone()
    for head in attention[1:]:
        total += head
    return total.div_(len(attention))


def top_entries(values: Tensor, count: int, threshold: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return row, column and value of the `count` highest entries of each row that exceed the threshold.

    values [row, column]. Ties keep the lower column. The result equals that of a stable sort of every row,
    but each row is read only once, for the maximum of each block, and then only the relevant blocks.
    """
    if padding := -values.shape[1] % PART:
        values = functional.pad(values, (0, padding), value=-torch.inf)
    parts = values.view(len(values), -1, PART)
    peaks = parts.amax(-1)
    # The `count` highest values of a row lie within the `count` blocks with the highest peaks.
    highest = peaks.topk(min(count, peaks.shape[1]), sorted=False).indices
    near = parts[torch.arange(len(values), device=values.device)[:, None], highest].flatten(1)
    last = near.topk(min(count, near.shape[1])).values[:, -1:]
    # Other blocks may hold values equal to the last of these, in a lower column.
    row, part = ((peaks >= last) & (peaks > threshold)).nonzero(as_tuple=True)
    near = parts[row, part]
    hit, column = ((near >= last[row]) & (near > threshold)).nonzero(as_tuple=True)
    row, column, value = row[hit], column + part[hit] * PART, near[hit, column]
    counts = torch.bincount(row, minlength=len(values))
    if int(counts.max()) <= count:
        return row, column, value
    order = value.argsort(stable=True, descending=True)
    order = order[row[order].argsort(stable=True)]
    rank = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    order = order[rank < count]
    return row[order], column[order], value[order]


def cosines(unit: Tensor) -> Tensor:
    """Eq. 13: the cosines [row, row], -inf on the diagonal. unit [row, key], rows of length one.

    Row i is 0 after key i, so the product of rows i and j can stop at the lower index, and only one of (i, j)
    and (j, i) is computed: a quarter of the work.
    """
    cosine = unit.new_empty(len(unit), len(unit))
    for start in range(0, len(unit), BLOCK):
        stop = min(start + BLOCK, len(unit))
        cosine[start:, start:stop] = unit[start:, :stop] @ unit[start:stop, :stop].T
        cosine[start:stop, stop:] = cosine[stop:, start:stop].T
    return cosine.fill_diagonal_(-torch.inf)


def strongest_heads(received: Tensor) -> Tensor:
    """received [head, key] -> [key], the sum of the three highest heads (all heads if there are fewer)."""
    return received.topk(min(TOP_HEADS, received.shape[0]), dim=0).values.sum(0)


def stack_patterns(patterns: tuple[Tensor, ...]) -> Tensor:
    """Stack causal row blocks of increasing width into a matrix [row, key]."""
    size = patterns[-1].shape[1]
    matrix = patterns[-1].new_zeros(size, size)
    start = 0
    for piece in patterns:
        matrix[start : start + len(piece), : piece.shape[1]] = piece
        start += len(piece)
    return matrix
