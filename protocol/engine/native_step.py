"""One forward pass of the native kernel over the slots of several pools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from protocol.engine.forward_step import LaneAttention, Step, WatchedAttention
from protocol.engine.native.network import NativeNetwork, NativeRows, Numbers
from protocol.engine.slots import Pool

Member = TypeVar("Member")
FLOAT = 4
"""Bytes of a number."""


class NativeStep(Step[Member]):
    """The lanes at some indices of a pool, in a forward pass of the native kernel.

    Unlike the weights of a padded pool, those of a lane lie in tensors of their own, so that no fold depends on how
    long other lanes are.
    """

    def __init__(
        self,
        pool: Pool[Member],
        indices: range,
        new: int,
        queries: int,
        watched: Mapping[WatchedAttention, Sequence[int]],
        query_lanes: Sequence[int],
        fed_lanes: Sequence[int],
    ) -> None:
        super().__init__(pool, indices, new, watched, query_lanes, fed_lanes)
        self.query_heads = queries
        self.projections = torch.empty(0)
        self.attention: list[LaneAttention] = []
        for kind, lanes in watched.items():
            for lane in lanes:
                slots = int(pool.lengths[:, indices[lane]].max()) + new
                weights = torch.zeros(len(kind.layers), queries, new, slots)
                logits = torch.full_like(weights, -torch.inf) if kind.raw else None
                self.attention.append(LaneAttention(lane, kind.layers, weights, logits))

    def rows(self, token_ids: Tensor, starts: Tensor) -> NativeRows:
        """Return the rows of these lanes: token_ids [lane, t], and the position of the first token, starts [lane]."""
        pool, new = self.pool, self.new
        layers, lanes = len(pool.shape), len(self.indices)
        shared = np.array([shape.flat for shape in pool.shape])[:, None, None]
        capacity = np.array([shape.capacity for shape in pool.shape])[:, None, None]
        lane, head = np.arange(self.indices.start, self.indices.stop)[:, None], np.arange(pool.heads)
        slot = (lane * np.where(shared, 1, pool.heads) + np.where(shared, 0, head)) * capacity
        slot += pool.starts[:, self.pool_slice].numpy()
        size = pool.keys[0].shape[-1] * FLOAT
        keys, values = (
            np.array([tensor.data_ptr() for tensor in tensors])[:, None, None] + slot * size
            for tensors in (pool.keys, pool.values)
        )
        lengths = pool.lengths[:, self.pool_slice].numpy().repeat(new, 1)
        lengths += np.tile(np.arange(new), lanes)[:, None]
        if (lengths + pool.starts[:, self.pool_slice].numpy().repeat(new, 1) >= capacity).any():
            raise ValueError("a lane has more slots than its pool has room for")
        weights, raw = np.zeros((2, layers, lanes, new), np.int64)
        strides = np.zeros((lanes, new), np.int64)
        for entry in self.attention:
            heads, _, slots = entry.weights.shape[1:]
            strides[entry.lane] = new * slots
            row = (np.arange(len(entry.layers))[:, None] * heads * new + np.arange(new)) * slots * FLOAT
            weights[list(entry.layers), entry.lane] = entry.weights.data_ptr() + row
            if entry.logits is not None:
                raw[list(entry.layers), entry.lane] = entry.logits.data_ptr() + row
        return NativeRows(
            new,
            token_ids.flatten().numpy(),
            (starts[:, None] + torch.arange(new)).flatten().numpy(),
            keys.repeat(new, 1),
            values.repeat(new, 1),
            lengths,
            weights.reshape(layers, -1),
            raw.reshape(layers, -1),
            strides.ravel(),
        )

    def watched_attention(self) -> Iterator[LaneAttention]:
        return iter(self.attention)

    def heads(self, lanes: Sequence[int], first: int, count: int) -> Tensor:
        """Return [layer, lane, head, t, d], these heads of the projections of the new tokens."""
        dim = self.pool.keys[0].shape[-1]
        tokens = self.projections.view(len(self.projections), len(self.indices), self.new, -1, dim)
        return tokens[:, lanes, :, first : first + count].transpose(2, 3)

    def stack_queries(self) -> Tensor:
        return self.heads(self.query_lanes, 0, self.query_heads)

    def stack_fed(self) -> tuple[Tensor, Tensor, Tensor]:
        queries, heads = self.query_heads, self.pool.heads
        return (
            self.heads(self.fed_lanes, queries, heads),
            self.heads(self.fed_lanes, queries + heads, heads),
            self.heads(self.fed_lanes, 0, queries),
        )


def feed_rows(
    network: NativeNetwork,
    steps: Sequence[NativeStep[Member]],
    token_ids: Tensor,
    starts: Tensor,
    hidden: Sequence[int],
    owners: Numbers,
    places: Numbers,
) -> tuple[Tensor, dict[int, Tensor]]:
    """Feed token_ids [lane, t] to the lanes of these steps, the first at the positions `starts` [lane].

    owners, places: as `find_equal_lanes` returns them. Returns logits [owner, vocabulary] after the last token, and
    the output [lane, t, width] of the `hidden` layers.
    """
    ends = np.cumsum([len(step.indices) for step in steps])
    parts = [
        step.rows(token_ids[end - len(step.indices) : end], starts[end - len(step.indices) : end])
        for step, end in zip(steps, ends, strict=True)
    ]
    columns = zip(*(part[1:] for part in parts), strict=True)
    tables = (np.concatenate(column, axis=min(1, column[0].ndim - 1)) for column in columns)
    new, rows = parts[0].new, NativeRows(parts[0].new, *tables)
    needs_projections = any(step.query_lanes or step.fed_lanes for step in steps)
    if len(owners) == len(places):
        output = network.forward(rows, projections=needs_projections, hidden=hidden)
    else:
        of_lane = np.arange(new)
        sources = (owners[places][:, None] * new + of_lane).ravel()
        stored = rows.store_for(sources)
        computed = stored.part((owners[:, None] * new + of_lane).ravel())
        output = network.forward(computed, projections=needs_projections, hidden=hidden)
        network.share(rows, stored, sources)
        taken = torch.from_numpy((places[:, None] * new + of_lane).ravel())
        output = output._replace(
            projections=output.projections[:, taken] if needs_projections else output.projections,
            hidden={layer: states[taken] for layer, states in output.hidden.items()},
        )
    if needs_projections:
        for step, end in zip(steps, ends * new, strict=True):
            step.projections = output.projections[:, end - len(step.indices) * new : end].contiguous()
    return output.logits, {
        layer: states.view(*token_ids.shape, states.shape[-1]) for layer, states in output.hidden.items()
    }
