"""One forward pass over the slots of a pool: append new tokens, attend, and collect what policies read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from policies.quest import Quest
from policies.signals import softmax_with_sink, upcast
from protocol.engine.attention.packing import attend_packed, pack_layers
from protocol.engine.grouped_slots import append_slots, head_slots, write_rows
from protocol.engine.slots import Plan, Pool, additive_mask

Member = TypeVar("Member")

FEW_ROWS = 64
"""The largest number of query rows of a KV head, over query groups and new tokens, at which full logits are
computed.
"""


class WatchedAttention(NamedTuple):
    """What a policy reads of the attention: which layers, and whether raw logits in addition to weights."""

    layers: tuple[int, ...]
    raw: bool


class AttentionWatch(NamedTuple):
    """The attention of the new tokens, for policies that read the same.

    lanes_there: the lanes, on the device. weights: one tensor for each of the layers, [lane, q_head, t, n] in
    float32 or better, n the slots of the fullest head of the layer; 0 beyond the slots of a head. logits: as
    `weights`, before the softmax, -inf where a row attends to nothing; empty unless `raw`.
    """

    layers: tuple[int, ...]
    raw: bool
    lanes: list[int]
    lanes_there: Tensor
    weights: list[Tensor]
    logits: list[Tensor]

    def stack_weights(self) -> Tensor:
        """Return [layer, lane, q_head, t, n], n the slots of the fullest head of these layers."""
        return stack_padded(self.weights, 0)

    def stack_logits(self) -> Tensor | None:
        """Return the logits in the shape of `stack_weights`; None unless `raw`."""
        return stack_padded(self.logits, -torch.inf) if self.raw else None


def stack_padded(layers: Sequence[Tensor], value: float) -> Tensor:
    """Stack tensors [..., n] of different n, padded with a value."""
    n = max(tensor.shape[-1] for tensor in layers)
    return torch.stack([pad(tensor, (0, n - tensor.shape[-1]), value=value) for tensor in layers])


class LaneAttention(NamedTuple):
    """The attention of the new tokens of one lane, of a step by its index there.

    weights [layer, q_head, t, n], n at most the slots of the lane's fullest head. logits: of that shape, or None.
    """

    lane: int
    layers: tuple[int, ...]
    weights: Tensor
    logits: Tensor | None


class Step(Generic[Member]):
    """One forward pass of the lanes at some indices of a pool, `new` tokens each.

    query_lanes: lanes whose policies need the queries later, for attention over the slots at that time. fed_lanes:
    lanes whose policies fold queries, keys and values of the new tokens.
    """

    def __init__(
        self,
        pool: Pool[Member],
        indices: range,
        new: int,
        watched: Mapping[WatchedAttention, Sequence[int]],
        query_lanes: Sequence[int],
        fed_lanes: Sequence[int],
    ) -> None:
        """watched: lanes by what they read."""
        self.pool, self.indices, self.new = pool, indices, new
        self.pool_slice = slice(indices.start, indices.stop)
        self.query_lanes, self.fed_lanes = list(query_lanes), list(fed_lanes)
        self.reads: Tensor | None = None
        """[lane], slots read in all layers and KV heads so far; None where they are all that the lanes hold."""

    def watched_attention(self) -> Iterator[LaneAttention]:
        """Yield the attention of the lanes whose policies read it, after `commit`."""
        raise NotImplementedError

    def stack_queries(self) -> Tensor:
        """Return [layer, query lane, q_head, t, d]."""
        raise NotImplementedError

    def stack_fed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return keys, values and queries, [layer, fed lane, head, t, d] each."""
        raise NotImplementedError

    def commit(self) -> None:
        """Add the new slots to the lengths of the pool."""
        self.pool.lengths[:, self.pool_slice] += self.new


class ForwardStep(Step[Member]):
    """A step that answers the attention of each layer of a network of transformers.

    watches: the attention of the new tokens, for lanes whose policies read it. queries: of the new tokens, one tensor
    per layer, [query lane, q_head, t, d]. fed: keys, values and queries of the fed lanes in each layer, [fed lane,
    head, t, d].
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
        self.plans = pool.plans(self.pool_slice, new, queries, needs_mask=pool.kernel is None or bool(watched))
        self.packings = []
        if pool.kernel is not None:
            layout = pool.starts[:, self.pool_slice], pool.lengths[:, self.pool_slice]
            flat, capacities = zip(*((shape.flat, shape.capacity) for shape in pool.shape), strict=True)
            self.packings = pack_layers(*layout, flat, capacities, new, pool.numbers.update)
        observed = [np.array(lanes, np.int64) for lanes in (*watched.values(), query_lanes, fed_lanes)]
        *watched_there, self.query_lanes_there, self.fed_lanes_there = pool.numbers.update("observed", observed)
        self.watches = [
            AttentionWatch(*watched_attention, list(lanes), there, [], [])
            for (watched_attention, lanes), there in zip(watched.items(), watched_there, strict=True)
        ]
        self.queries: list[Tensor] = []
        self.fed: list[tuple[Tensor, Tensor, Tensor]] = []

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float, sinks: Tensor | None = None
    ) -> Tensor:
        """Append the new slots in place; a new token attends to all older slots of its head, and to itself."""
        pool, plan, storage = self.pool, self.plans[layer], self.pool.storage
        lanes, heads, _, dim = keys.shape
        flat = pool.shape[layer].flat
        stored = pool.keys[layer][self.pool_slice], pool.values[layer][self.pool_slice]
        if storage.in_groups:
            used_keys, used_values = append_slots(pool, layer, self.pool_slice, keys, values, plan.targets, plan.end)
        else:
            for rows, coded in zip(stored, storage.encode(layer, keys, values), strict=True):
                write_rows(rows, coded, plan.targets, plan.end)
            used_keys, used_values = (rows[:, :, : plan.end] for rows in stored)
            used_keys, used_values = storage.unpack(used_keys, used_values, keys.dtype)

        # The query heads that read a row become rows of one product, so that no key is ever repeated.
        packed = queries.reshape(lanes, 1 if flat else heads, -1, dim)
        if sinks is not None:  # one for each packed row
            sinks = sinks.repeat_interleave(self.new).view(packed.shape[1], -1, 1)
        if self.query_lanes:
            self.queries.append(queries[self.query_lanes_there])
        if self.fed_lanes:
            fed_keys, fed_values, fed_queries = (part[self.fed_lanes_there] for part in (keys, values, queries))
            self.fed.append((fed_keys, fed_values, fed_queries))
        if storage.quest is not None and self.new == 1:
            plan = self.plans[layer] = self.restrict(layer, storage.quest, packed, used_keys)
        for watch in self.watches:
            if layer in watch.layers:
                own_queries, own_keys = packed[watch.lanes_there], used_keys[watch.lanes_there]
                self.watch(layer, watch, own_queries, own_keys, scale, sinks)
        if pool.kernel is not None:
            return attend_packed(pool.kernel, self.packings[layer], queries, *stored, scale)
        output = attend_masked(packed, used_keys, used_values, plan.mask, scale, sinks)
        return storage.expand(layer, output.reshape(*queries.shape[:-1], used_values.shape[-1]))

    def restrict(self, layer: int, quest: Quest, packed: Tensor, keys: Tensor) -> Plan:
        """Return the plan of a layer in which each query sees the pages that it reads, and count what is read."""
        pool, plan, (lanes, rows, _, dim) = self.pool, self.plans[layer], packed.shape
        before = pool.lengths[layer, self.pool_slice]
        lengths = (before + 1).to(keys.device, non_blocking=True)
        reads = torch.zeros_like(lengths[:, 0]) if self.reads is None else self.reads
        if layer < quest.dense_layers:
            self.reads = reads + lengths.sum(1)
            return plan
        by_head, index = keys, None
        if rows != pool.heads:  # gathered by head; unused slots lie behind the last
            slot, lane = torch.arange(int(before.max()) + 1), torch.arange(lanes, device=keys.device)
            index = head_slots(pool, layer, self.pool_slice, len(slot))
            index = index.where(slot.to(keys.device) < lengths[..., None], plan.end)
            by_head = pad(keys[:, 0], (0, 0, 0, 1))[lane[:, None, None], index]
        visible = quest.select(packed.view(lanes, pool.heads, -1, dim), by_head, lengths)
        self.reads = reads + visible.any(2).sum((1, 2)) + quest.count_pages(lengths).sum(1)
        if index is not None:
            by_row = visible.new_zeros(*visible.shape[:3], plan.end + 1)
            visible = by_row.scatter_(-1, index[:, :, None].expand(visible.shape), visible)[..., : plan.end]
            visible = visible.flatten(1, 2)[:, None]
        return plan._replace(visible=visible, mask=additive_mask(visible, keys))

    def watch(
        self, layer: int, watch: AttentionWatch, packed: Tensor, keys: Tensor, scale: float, sinks: Tensor | None
    ) -> None:
        """Record the attention of a layer that policies read, from packed queries and the keys of their lanes."""
        visible, bias = self.plans[layer].visible, self.plans[layer].bias
        logits = (upcast(packed) * scale) @ upcast(keys).transpose(-1, -2)
        if bias is not None:
            logits += bias[watch.lanes_there]
        if visible is not None:
            logits.masked_fill_(~visible[watch.lanes_there], -torch.inf)
        watch.weights.append(self.by_head(layer, watch, softmax_with_sink(logits, sinks), 0))
        if watch.raw:
            watch.logits.append(self.by_head(layer, watch, logits, -torch.inf))

    def by_head(self, layer: int, watch: AttentionWatch, rows: Tensor, value: float) -> Tensor:
        """Convert rows [lane, row, query rows, slot of row] to [lane, q_head, t, slot of head]; `value` beyond."""
        weights = rows.reshape(len(rows), -1, self.new, rows.shape[-1])
        if not self.pool.shape[layer].flat:
            return weights
        plan, lane_indices = self.plans[layer], [self.indices[lane] for lane in watch.lanes]
        assert plan.starts is not None
        assert plan.slots is not None
        starts, ends = plan.starts[watch.lanes_there], plan.slots[watch.lanes_there][..., -1] + 1
        group = weights.shape[1] // starts.shape[1]
        longest = int(self.pool.lengths[layer, lane_indices].max()) + self.new
        slot = (starts[..., None] + torch.arange(longest, device=weights.device)).repeat_interleave(group, 1)
        is_stored = (slot < ends.repeat_interleave(group, 1)[..., None])[:, :, None]
        slot = slot.clamp_(max=weights.shape[-1] - 1)[:, :, None]
        return weights.gather(-1, slot.expand(-1, -1, self.new, -1)).masked_fill(~is_stored, value)

    def watched_attention(self) -> Iterator[LaneAttention]:
        for watch in self.watches:
            weights, logits = watch.stack_weights(), watch.stack_logits()
            for index, lane in enumerate(watch.lanes):
                slots = int(self.pool.lengths[:, self.indices[lane]].max())
                lane_logits = None if logits is None else logits[:, index, ..., :slots]
                yield LaneAttention(lane, watch.layers, weights[:, index, ..., :slots], lane_logits)

    def stack_queries(self) -> Tensor:
        return torch.stack(self.queries)

    def stack_fed(self) -> tuple[Tensor, Tensor, Tensor]:
        keys, values, queries = zip(*self.fed, strict=True)
        return torch.stack(keys), torch.stack(values), torch.stack(queries)


def attend_masked(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float, sinks: Tensor | None = None
) -> Tensor:
    """Attend from [lane, row, query rows, d] to [lane, row, n, d] with values of `width` dimensions: [..., width].

    mask: added to the logits. No fused kernel of a CPU supports values narrower than keys. For few query rows
    two products are faster than its replacement, if the precision is float32; otherwise values are padded
    with zeros. sinks [row, query rows, 1]: no fused kernel supports them.
    """
    width, dim = values.shape[-1], keys.shape[-1]
    if sinks is not None:
        logits = upcast(queries * scale) @ upcast(keys).transpose(-1, -2)
        if mask is not None:
            logits = logits.masked_fill_(~mask, -torch.inf) if mask.dtype == torch.bool else logits.add_(mask)
        return (softmax_with_sink(logits, sinks) @ upcast(values)).to(values.dtype)
    if width >= dim or values.device.type != "cpu":
        return scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale)
    if values.dtype.itemsize < 4 or queries.shape[-2] > FEW_ROWS:
        values = pad(values, (0, dim - width))
        return scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale)[..., :width]
    logits = (queries * scale) @ keys.transpose(-1, -2)
    if mask is not None:
        logits += mask
    return logits.softmax(-1) @ values
