"""Sliding-window layers: every lane has a separate window, and no policy evicts from it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from policies.signals import softmax_with_sink, upcast
from protocol.engine.device_numbers import DeviceNumbers

ROWS = 512
"""Query rows of a prefill in one kernel call: the mask of a call is [ROWS, window + ROWS]."""
QUANTUM = 16
"""Rings shorter than the window are multiples of it, so that lanes of similar length share one."""

Member = TypeVar("Member")


class Window(NamedTuple):
    """The last tokens of a text in one layer, oldest first: keys and values [kv_head, m, d]."""

    keys: Tensor
    values: Tensor

    def last(self, tokens: int) -> Window:
        """Return a copy of the last of them."""
        return Window(*(part[:, -tokens:].clone() for part in self))

    def extend(self, keys: Tensor, values: Tensor) -> Window:
        """Return the window with more tokens [kv_head, t, d] appended."""
        return Window(torch.cat([self.keys, keys], 1), torch.cat([self.values, values], 1))


def capacity_of(window: int, tokens: int) -> int:
    """Return the slots of a lane with this number of tokens, in one layer and KV head."""
    return min(window, -(-tokens // QUANTUM) * QUANTUM)


def attend_sliding(
    queries: Tensor, keys: Tensor, values: Tensor, scale: float, window: int, sinks: Tensor | None = None
) -> Tensor:
    """Return the attention of the last t of n tokens, each to the last `window` including itself: [q_head, t, d].

    queries [q_head, t, d], keys and values [kv_head, n, d], sinks [q_head].
    """
    t, n = queries.shape[1], keys.shape[1]
    if t == n <= window and sinks is None:
        grouped = len(queries) != len(keys)
        qkv = (queries[None], keys[None], values[None])
        return scaled_dot_product_attention(*qkv, is_causal=True, scale=scale, enable_gqa=grouped)[0]
    parts = []
    for first in range(0, t, ROWS):
        rows = queries[:, first : first + ROWS]
        stop = n - t + first + rows.shape[1]
        begin = max(0, n - t + first - window + 1)
        query_positions = torch.arange(stop - rows.shape[1], stop, device=keys.device)[:, None]
        key_positions = torch.arange(begin, stop, device=keys.device)
        visible = ((key_positions <= query_positions) & (key_positions > query_positions - window))[None, None]
        own_keys, own_values = keys[None, :, begin:stop], values[None, :, begin:stop]
        parts.append(attend_grouped(rows[None], own_keys, own_values, visible, scale, sinks)[0])
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def attend_grouped(
    queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None, scale: float, sinks: Tensor | None = None
) -> Tensor:
    """Attend from queries [lane, q_head, t, d] to keys and values [lane, kv_head, n, d]: [lane, q_head, t, d].

    visible: bool [lane or 1, 1, t or 1, n], None if all are. sinks [q_head].
    """
    lanes, heads, t, dim = queries.shape
    kv_heads = keys.shape[1]
    group = heads // kv_heads
    # The query heads that read a row become rows of one product, so that no key is ever repeated.
    packed = queries.reshape(lanes, kv_heads, group * t, dim)
    if visible is not None and t > 1:
        visible = visible.repeat(1, 1, group, 1)
    if sinks is None:
        output = scaled_dot_product_attention(packed, keys, values, attn_mask=visible, scale=scale)
        return output.view(lanes, heads, t, -1)
    logits = (upcast(packed) * scale) @ upcast(keys).transpose(-1, -2)
    if visible is not None:
        logits.masked_fill_(~visible, -torch.inf)
    attention = softmax_with_sink(logits, sinks.view(kv_heads, group).repeat_interleave(t, 1)[..., None])
    return (attention @ upcast(values)).to(values.dtype).view(lanes, heads, t, -1)


class Ring(Generic[Member]):
    """The windows of lanes with the same capacity: the slot of position p is p % capacity.

    keys, values: one tensor for each sliding layer, [lane, kv_head, capacity, d].
    """

    def __init__(self, capacity: int, like: Sequence[Window]) -> None:
        self.capacity = capacity
        self.members: list[Member] = []
        self.keys = [self.allocate(0, window.keys) for window in like]
        self.numbers = DeviceNumbers(self.keys[0].device)
        self.values = [self.allocate(0, window.values) for window in like]

    def allocate(self, size: int, like: Tensor) -> Tensor:
        """Allocate zeros. like [..., kv_head, any, d]."""
        return like.new_zeros(size, like.shape[-3], self.capacity, like.shape[-1])

    @property
    def size(self) -> int:
        return len(self.keys[0])

    def resize(self, size: int) -> None:
        used = min(size, len(self.members))
        for tensors in (self.keys, self.values):
            for layer, old in enumerate(tensors):
                tensors[layer] = self.allocate(size, old)
                tensors[layer][:used] = old[:used]

    def admit(self, member: Member, windows: Sequence[Window], n_fed: int) -> None:
        index = len(self.members)
        if index == self.size:
            self.resize(index + 1)
        self.members.append(member)
        for layer, window in enumerate(windows):
            recent = Window(*(part[:, -self.capacity :] for part in window))
            n_slots = recent.keys.shape[1]
            slots = torch.arange(n_fed - n_slots, n_fed, device=recent.keys.device) % self.capacity
            for tensors, part in ((self.keys, recent.keys), (self.values, recent.values)):
                tensors[layer][index] = 0  # of the previous lane
                tensors[layer][index][:, slots] = part

    def remove(self, leaving: Collection[Member]) -> None:
        """Remove lanes; others move to their indices. The ring shrinks when half of it is free."""
        for index in reversed(range(len(self.members))):
            if self.members[index] not in leaving:
                continue
            member, last = self.members.pop(), len(self.members)
            for tensor in (*self.keys, *self.values):
                tensor[index] = 0 if index == last else tensor[last]
            if index != last:
                self.members[index] = member
        if self.members and 2 * len(self.members) <= self.size:
            self.resize(len(self.members))

    def windows_of(self, index: int, n_fed: int) -> list[Window]:
        """Return the windows of a lane with this number of tokens fed, oldest first, for each layer."""
        n_slots = min(n_fed, self.capacity)
        slots = torch.arange(n_fed - n_slots, n_fed, device=self.keys[0].device) % self.capacity
        pairs = zip(self.keys, self.values, strict=True)
        return [Window(keys[index][:, slots], values[index][:, slots]) for keys, values in pairs]

    def bytes(self) -> int:
        return sum(tensor.untyped_storage().nbytes() for tensor in (*self.keys, *self.values))


class RingLanes(NamedTuple):
    """The lanes of a forward pass that share a ring.

    lanes: their rows in the forward pass, in the order of their indices. indices: in the ring; a slice if
    they are adjacent, so that attention copies nothing. n_fed [lane]: tokens before this forward pass.
    """

    lanes: Tensor
    indices: slice | Tensor
    n_fed: Tensor
    targets: Tensor
    visible: Tensor | None


class SlidingForward:
    """One forward pass of `new` tokens for each lane in the sliding-window layers."""

    def __init__(self, ring_lanes: Sequence[tuple[Ring[Member], RingLanes]], window: int, new: int) -> None:
        self.ring_lanes, self.window, self.new = ring_lanes, window, new

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float, sinks: Tensor | None = None
    ) -> Tensor:
        """Compute attention as an observer; store the new tokens and overwrite those that leave the window."""
        output, store = torch.empty_like(queries), store_token if self.new == 1 else store_tokens
        for ring, group in self.ring_lanes:
            own_keys = store(ring.keys[layer], keys[group.lanes], group)
            own_values = store(ring.values[layer], values[group.lanes], group)
            output[group.lanes] = attend_grouped(
                queries[group.lanes], own_keys, own_values, group.visible, scale, sinks
            )
        return output


def store_token(stored: Tensor, new: Tensor, group: RingLanes) -> Tensor:
    """Store a new token of each lane in the slot of the one that left the window; return the lanes' slots."""
    rows = stored[group.indices]
    rows.scatter_(2, group.targets[:, None, :, None].expand(-1, new.shape[1], -1, new.shape[-1]), new)
    if isinstance(group.indices, Tensor):  # indexing made a copy
        stored[group.indices] = rows
    return rows


def store_tokens(stored: Tensor, new: Tensor, group: RingLanes) -> Tensor:
    """Return the previous window of each lane with the new tokens after it, and store the new tokens."""
    rows = stored[group.indices]
    extended = torch.cat([rows, new], 2)
    targets = group.targets[:, None, :, None].expand(-1, new.shape[1], -1, new.shape[-1])
    stored[group.indices] = rows.scatter(2, targets, new[:, :, -group.targets.shape[1] :])
    return extended


class Windows(Generic[Member]):
    """All rings of a batch; empty for a model without sliding layers."""

    def __init__(self, window: int | None) -> None:
        self.window = window
        self.rings: dict[int, Ring[Member]] = {}

    def join(self, member: Member, windows: Sequence[Window], n_fed: int, tokens: int) -> int:
        """Add the windows of a lane with n_fed tokens fed and at most `tokens` in total; return their bytes."""
        if self.window is None:
            return 0
        capacity = capacity_of(self.window, tokens)
        ring = self.rings.setdefault(capacity, Ring(capacity, windows))
        ring.admit(member, windows, n_fed)
        return ring.bytes() // ring.size

    def remove(self, leaving: Collection[Member]) -> None:
        for capacity, ring in list(self.rings.items()):
            ring.remove(leaving)
            if not ring.members:
                del self.rings[capacity]

    def windows_of(self, member: Member, n_fed: int) -> list[Window]:
        """Return the windows of a lane, oldest token first; empty for a model without sliding layers."""
        for ring in self.rings.values():
            if member in ring.members:
                return ring.windows_of(ring.members.index(member), n_fed)
        return []

    def build_forward(self, members: Sequence[Member], n_fed: Sequence[int], new: int) -> SlidingForward | None:
        """Return the forward pass of `new` tokens of these lanes in the sliding layers."""
        if self.window is None:
            return None
        row = {member: index for index, member in enumerate(members)}
        ring_lanes = []
        for ring in self.rings.values():
            pairs = [
                (ring_index, row[ring_member])
                for ring_index, ring_member in enumerate(ring.members)
                if ring_member in row
            ]
            if pairs:
                indices, lanes = zip(*pairs, strict=True)
                ring_lanes.append(
                    (ring, self.build_ring_lanes(ring, indices, lanes, [n_fed[lane] for lane in lanes], new))
                )
        return SlidingForward(ring_lanes, self.window, new)

    def build_ring_lanes(
        self, ring: Ring[Member], indices: Sequence[int], lanes: Sequence[int], lane_tokens: Sequence[int], new: int
    ) -> RingLanes:
        """Return the lanes of a ring. lane_tokens: tokens fed to each of these lanes."""
        assert self.window is not None
        size, device = ring.capacity, ring.keys[0].device
        (n_fed,) = ring.numbers.update("fed", [np.array(lane_tokens)], growth=1)
        rows, own = ring.numbers.update("lanes", [np.array(lanes), np.array(indices)])
        stored = torch.arange(max(0, new - size), new, device=device)
        targets = (n_fed[:, None] + stored) % size
        is_contiguous = list(indices) == list(range(indices[0], indices[0] + len(indices)))
        selection = slice(indices[0], indices[0] + len(indices)) if is_contiguous else own
        slot = torch.arange(size, device=device)
        if new == 1:
            visible = None if min(lane_tokens) + 1 >= size else (slot <= n_fed[:, None])[:, None, None]
            return RingLanes(rows, selection, n_fed, targets, visible)
        # The newest position below `n_fed` in each slot of the ring; negative if the slot is empty.
        last = n_fed[:, None] - 1
        position = torch.cat([last - (last - slot) % size, n_fed[:, None] + torch.arange(new, device=device)], 1)
        query_positions = n_fed[:, None] + torch.arange(new, device=device)
        visible = (position[:, None] <= query_positions[..., None]) & (
            position[:, None] > query_positions[..., None] - self.window
        )
        visible &= (position >= 0)[:, None]
        return RingLanes(rows, selection, n_fed, targets, visible[:, None])

    def bytes(self) -> int:
        return sum(ring.bytes() for ring in self.rings.values())
