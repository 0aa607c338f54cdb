"""Sliding-window layers: every lane has a separate window, and no policy evicts from it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from policies.signals import shares, wide

__all__ = ["Sliding", "Window", "Windows", "attended", "capacity_of", "slid"]

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

    def grown(self, keys: Tensor, values: Tensor) -> Window:
        """Return the window with more tokens [kv_head, t, d] appended."""
        return Window(torch.cat([self.keys, keys], 1), torch.cat([self.values, values], 1))


def capacity_of(window: int, tokens: int) -> int:
    """Return the slots of a lane with this number of tokens, in one layer and KV head."""
    return min(window, -(-tokens // QUANTUM) * QUANTUM)


def slid(
    queries: Tensor, keys: Tensor, values: Tensor, scale: float, window: int, sinks: Tensor | None = None
) -> Tensor:
    """Return the attention of the last t of n tokens, each to the last `window` including itself: [q_head, t,
    d].

    queries [q_head, t, d], keys and values [kv_head, n, d], sinks [q_head].
    """
    t, n = queries.shape[1], keys.shape[1]
    if t == n <= window and sinks is None:
        grouped = len(queries) != len(keys)
        whole = (queries[None], keys[None], values[None])
        return scaled_dot_product_attention(*whole, is_causal=True, scale=scale, enable_gqa=grouped)[0]
    parts = []
    for first in range(0, t, ROWS):
        rows = queries[:, first : first + ROWS]
        stop = n - t + first + rows.shape[1]
        begin = max(0, n - t + first - window + 1)
        own = torch.arange(stop - rows.shape[1], stop, device=keys.device)[:, None]
        at = torch.arange(begin, stop, device=keys.device)
        visible = ((at <= own) & (at > own - window))[None, None]
        own_keys, own_values = keys[None, :, begin:stop], values[None, :, begin:stop]
        parts.append(attended(rows[None], own_keys, own_values, visible, scale, sinks)[0])
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def attended(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    visible: Tensor | None,
    scale: float,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attend from queries [lane, q_head, t, d] to keys and values [lane, kv_head, n, d]: [lane, q_head, t,
    d].

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
    logits = (wide(packed) * scale) @ wide(keys).transpose(-1, -2)
    if visible is not None:
        logits.masked_fill_(~visible, -torch.inf)
    attention = shares(logits, sinks.view(kv_heads, group).repeat_interleave(t, 1)[..., None])
    return (attention @ wide(values)).to(values.dtype).view(lanes, heads, t, -1)


class Ring(Generic[Member]):
    """The windows of lanes with the same capacity: the slot of position p is p % capacity.

    keys, values: one tensor for each sliding layer, [lane, kv_head, capacity, d].
    """

    def __init__(self, capacity: int, like: Sequence[Window]) -> None:
        self.capacity = capacity
        self.members: list[Member] = []
        self.keys = [self.room(0, one.keys) for one in like]
        self.values = [self.room(0, one.values) for one in like]

    def room(self, places: int, like: Tensor) -> Tensor:
        """Allocate zeros. like [..., kv_head, any, d]."""
        return like.new_zeros(places, like.shape[-3], self.capacity, like.shape[-1])

    @property
    def places(self) -> int:
        return len(self.keys[0])

    def resize(self, places: int) -> None:
        used = min(places, len(self.members))
        for tensors in (self.keys, self.values):
            for layer, old in enumerate(tensors):
                tensors[layer] = self.room(places, old)
                tensors[layer][:used] = old[:used]

    def admit(self, member: Member, windows: Sequence[Window], seen: int) -> None:
        place = len(self.members)
        if place == self.places:
            self.resize(place + 1)
        self.members.append(member)
        for layer, window in enumerate(windows):
            own = Window(*(part[:, -self.capacity :] for part in window))
            held = own.keys.shape[1]
            at = torch.arange(seen - held, seen, device=own.keys.device) % self.capacity
            for tensors, part in ((self.keys, own.keys), (self.values, own.values)):
                tensors[layer][place] = 0  # of the previous lane
                tensors[layer][place][:, at] = part

    def dismiss(self, leaving: Collection[Member]) -> None:
        """Remove lanes; others move to their indices. The ring shrinks when half of it is free."""
        for place in reversed(range(len(self.members))):
            if self.members[place] not in leaving:
                continue
            member, last = self.members.pop(), len(self.members)
            for tensor in (*self.keys, *self.values):
                tensor[place] = 0 if place == last else tensor[last]
            if place != last:
                self.members[place] = member
        if self.members and 2 * len(self.members) <= self.places:
            self.resize(len(self.members))

    def of(self, place: int, seen: int) -> list[Window]:
        """Return the windows of a lane with this number of tokens fed, oldest first, for each layer."""
        held = min(seen, self.capacity)
        at = torch.arange(seen - held, seen, device=self.keys[0].device) % self.capacity
        pairs = zip(self.keys, self.values, strict=True)
        return [Window(keys[place][:, at], values[place][:, at]) for keys, values in pairs]

    def bytes(self) -> int:
        return sum(tensor.untyped_storage().nbytes() for tensor in (*self.keys, *self.values))


class Turn(NamedTuple):
    """The lanes of a forward pass that share a ring.

    lanes: their rows in the forward pass, in the order of their indices. indices: in the ring; a slice if
    they are adjacent, so that attention copies nothing. n_fed [lane]: tokens before this forward pass.
    """

    lanes: Tensor
    places: slice | Tensor
    seen: Tensor
    at: Tensor
    visible: Tensor | None


class Sliding:
    """One forward pass of `new` tokens for each lane in the sliding-window layers."""

    def __init__(self, turns: Sequence[tuple[Ring[Member], Turn]], window: int, new: int) -> None:
        self.turns, self.window, self.new = turns, window, new

    def attend(
        self,
        layer: int,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        scale: float,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Compute attention as an observer; store the new tokens and overwrite those that leave the window.
        """
        output = torch.empty_like(queries)
        for ring, turn in self.turns:
            attend = self.one if self.new == 1 else self.several
            output[turn.lanes] = attend(
                ring, turn, layer, queries[turn.lanes], keys[turn.lanes], values[turn.lanes], scale, sinks
            )
        return output

    def one(
        self,
        ring: Ring[Member],
        turn: Turn,
        layer: int,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        scale: float,
        sinks: Tensor | None,
    ) -> Tensor:
        """Store a new token in the slot of the one that left the window, then attend."""
        stored = []
        for tensors, new in ((ring.keys, keys), (ring.values, values)):
            rows = tensors[layer][turn.places]
            at = turn.at[:, None, :, None].expand(-1, new.shape[1], -1, new.shape[-1])
            rows.scatter_(2, at, new)
            if isinstance(turn.places, Tensor):  # indexing made a copy
                tensors[layer][turn.places] = rows
            stored.append(rows)
        return attended(queries, stored[0], stored[1], turn.visible, scale, sinks)

    def several(
        self,
        ring: Ring[Member],
        turn: Turn,
        layer: int,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        scale: float,
        sinks: Tensor | None,
    ) -> Tensor:
        """Attend to the previous window and the new tokens, then store the new tokens."""
        whole = []
        for tensors, new in ((ring.keys, keys), (ring.values, values)):
            rows = tensors[layer][turn.places]
            whole.append(torch.cat([rows, new], 2))
            last = new[:, :, -turn.at.shape[1] :]
            at = turn.at[:, None, :, None].expand(-1, new.shape[1], -1, new.shape[-1])
            tensors[layer][turn.places] = rows.scatter(2, at, last)
        return attended(queries, whole[0], whole[1], turn.visible, scale, sinks)


class Windows(Generic[Member]):
    """All rings of a batch; empty for a model without sliding layers."""

    def __init__(self, window: int | None) -> None:
        self.window = window
        self.rings: dict[int, Ring[Member]] = {}

    def join(self, member: Member, windows: Sequence[Window], seen: int, tokens: int) -> int:
        """Add the windows of a lane with n_fed tokens fed and at most `tokens` in total; return their bytes.
        """
        if self.window is None:
            return 0
        capacity = capacity_of(self.window, tokens)
        ring = self.rings.setdefault(capacity, Ring(capacity, windows))
        ring.admit(member, windows, seen)
        return ring.bytes() // ring.places

    def dismiss(self, leaving: Collection[Member]) -> None:
        for capacity, ring in list(self.rings.items()):
            ring.dismiss(leaving)
            if not ring.members:
                del self.rings[capacity]

    def of(self, member: Member, seen: int) -> list[Window]:
        """Return the windows of a lane, oldest token first; empty for a model without sliding layers."""
        for ring in self.rings.values():
            if member in ring.members:
                return ring.of(ring.members.index(member), seen)
        return []

    def forward(self, members: Sequence[Member], seen: Sequence[int], new: int) -> Sliding | None:
        """Return the forward pass of `new` tokens of these lanes in the sliding layers."""
        if self.window is None:
            return None
        row = {member: index for index, member in enumerate(members)}
        turns = []
        for ring in self.rings.values():
            own = [(place, row[each]) for place, each in enumerate(ring.members) if each in row]
            if own:
                places, lanes = zip(*own, strict=True)
                turns.append((ring, self.turn(ring, places, lanes, [seen[lane] for lane in lanes], new)))
        return Sliding(turns, self.window, new)

    def turn(
        self, ring: Ring[Member], places: Sequence[int], lanes: Sequence[int], fed: Sequence[int], new: int
    ) -> Turn:
        """Return the lanes of a ring. lane_tokens: tokens fed to each of these lanes."""
        assert self.window is not None
        size, device = ring.capacity, ring.keys[0].device
        seen = torch.tensor(fed, device=device)
        stored = torch.arange(max(0, new - size), new, device=device)
        at = (seen[:, None] + stored) % size
        near = list(places) == list(range(places[0], places[0] + len(places)))
        chosen = slice(places[0], places[0] + len(places)) if near else torch.tensor(places, device=device)
        slot = torch.arange(size, device=device)
        if new == 1:
            visible = None if min(fed) + 1 >= size else (slot <= seen[:, None])[:, None, None]
            return Turn(torch.tensor(lanes, device=device), chosen, seen, at, visible)
        # The newest position below `n_fed` in each slot of the ring; negative if the slot is empty.
        last = seen[:, None] - 1
        position = torch.cat(
            [last - (last - slot) % size, seen[:, None] + torch.arange(new, device=device)], 1
        )
        own = seen[:, None] + torch.arange(new, device=device)
        visible = (position[:, None] <= own[..., None]) & (position[:, None] > own[..., None] - self.window)
        visible &= (position >= 0)[:, None]
        return Turn(torch.tensor(lanes, device=device), chosen, seen, at, visible[:, None])

    def bytes(self) -> int:
        return sum(ring.bytes() for ring in self.rings.values())
