"""The slot cache: every lane has separate slots, in tensors no larger than needed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from protocol.engine.attention.kernels import PADDED, Attention, Kernel
from protocol.engine.device_numbers import DeviceNumbers, Integers
from protocol.engine.grouped_slots import read_slots, store_slots
from protocol.engine.storage_formats import EQUAL_SIZES, VERBATIM, SlotSizes, StorageFormat

QUANTUM = 16
"""Capacities are multiples of it, so that lanes of similar capacity share a pool. For slots that are not
stored as computed, the capacity is what fits into the bytes of such a multiple, so that equal bytes stay
equal.
"""


class Shape(NamedTuple):
    """The capacity of one lane in one layer.

    flat False: a row for each KV head, each of `capacity` slots. flat True: one row for all heads, one after
    the other, of `capacity` slots in total; used where heads have different numbers of slots. masked: some
    slots, of a shape that is not flat, are stored and not attended to.
    """

    flat: bool
    capacity: int
    masked: bool = False


def lane_shapes(
    counts: Tensor, room: int, *, masked: bool = False, sizes: SlotSizes = EQUAL_SIZES
) -> tuple[Shape, ...]:
    """Return the capacity of a lane for each layer. counts: slots in use, [layer, kv_head]; room: slots to append."""
    layers = []
    for heads in counts.tolist():
        if len(set(heads)) > 1:
            layers.append(Shape(True, sum(heads) + room * len(heads)))
        else:
            layers.append(Shape(False, round_capacity(heads[0] + room, sizes), masked))
    return tuple(layers)


def round_capacity(slots: int, sizes: SlotSizes) -> int:
    """Return the capacity of a head that needs room for this number of slots."""
    quantum_bytes = QUANTUM * sizes.computed
    return -(-slots * sizes.stored // quantum_bytes) * quantum_bytes // sizes.stored


class Layout(NamedTuple):
    """Where some lanes store the new slots of a forward pass in layers of one shape.

    starts [lane, kv_head]: the first slot of each head in its row. slots [lane, kv_head, t]: the new ones. targets
    [lane, kv_head, t]: these, as indices through all rows; None if all heads of all lanes store in the same slots of a
    row each. needs_mask: whether some slots of a row are not visible.
    """

    shape: Shape
    starts: Integers
    slots: Integers
    targets: Integers | None
    needs_mask: bool

    def arrays(self) -> list[Integers]:
        """Return what a device reads that grows with every token."""
        return [part for part in (self.targets, self.slots if self.needs_mask else None) if part is not None]


class Plan(NamedTuple):
    """Where new slots of a forward pass go, and what a new token sees, shared by layers of one layout."""

    targets: Tensor | None
    """[lane x kv_head x t], indices through all rows of these lanes; None if the new slots are the last ones before
    `end` in every row, where no index is needed: a device sorts indices before it stores reproducibly.
    """
    end: int
    """No slot at or beyond this index is in use."""
    visible: Tensor | None
    """[lane, row, query rows, end], 1 for an axis that rows share; None if all slots are visible."""
    mask: Tensor | None
    """The additive attention mask, of that shape: 0, the bias, or -inf for slots that are not visible; None
    if it would be 0.
    """
    starts: Tensor | None = None
    """[lane, kv_head], the first slot of each head in its row, of a flat shape with a mask."""
    slots: Tensor | None = None
    """[lane, kv_head, t], the new slots, where a mask is needed."""
    bias: Tensor | None = None
    """[lane, row, 1, end], added to the logits of slots that represent several tokens; None if there are
    none.
    """


class CachedSlots(NamedTuple):
    """Slots of one lane in one layer, as they are stored.

    keys [kv_head, n, _], values [kv_head, n, _], n the slots of the fullest head. weights [kv_head, n]
    float32: how many tokens each slot represents; None if that is one, or not stored.
    """

    keys: Tensor
    values: Tensor
    weights: Tensor | None = None

    def pad_to(self, slots: int) -> CachedSlots:
        """Pad with zeros to this number of slots."""
        missing = slots - self.keys.shape[1]
        if not missing:
            return self
        weights = None if self.weights is None else pad(self.weights, (0, missing))
        return CachedSlots(pad(self.keys, (0, 0, 0, missing)), pad(self.values, (0, 0, 0, missing)), weights)


Member = TypeVar("Member")


class Pool(Generic[Member]):
    """Lanes of equal shape and storage format: the first `len(members)` indices of each tensor.

    indices: the index of each member.

    like: of each layer, no slots in the form that the model computes, [kv_head, 0, d].

    keys, values: one tensor for each layer, [lane, row, capacity, _], as the format stores them. A head's slots
    are in position order from its start; unused slots are finite, since a masked NaN would still spoil the sum.

    weights: for a format with weights, float32 [lane, row, capacity], 1 where no slot was merged; otherwise
    None for each layer.

    hidden: slots that no token attends to, in layers of a masked shape, bool [lane, row, capacity]; otherwise None.

    rings: of slots packed in groups, the latest of each head, float16 [lane, kv_head, R, 2 d]; no tensors otherwise.

    kernel: the variable-length kernel for new tokens; None if slots are padded, which is needed for hidden
    slots, weights in the logits, packed or coded slots and those that are read in part.

    starts, lengths: [layer, lane, kv_head] int64, on the CPU, so that reading them needs no synchronisation.

    numbers: those that the device reads in every forward pass.
    """

    def __init__(
        self,
        shape: tuple[Shape, ...],
        keys: Sequence[Tensor],
        storage: StorageFormat = VERBATIM,
        attention: Attention = PADDED,
    ) -> None:
        """keys: one tensor for each layer, [kv_head, n, d] as computed, for the heads, width, dtype and device."""
        self.shape = shape
        self.storage = storage
        is_whole = storage.codec is None and storage.packing is None and storage.quest is None
        is_plain = is_whole and not (storage.weighs_logits or any(layer_shape.masked for layer_shape in shape))
        self.kernel: Kernel | None = attention.kernel if is_plain else None
        self.heads = keys[0].shape[0]
        self.members: list[Member] = []
        self.indices: dict[Member, int] = {}
        self.like = [layer_keys.new_empty(self.heads, 0, layer_keys.shape[-1]) for layer_keys in keys]
        stored = [storage.allocate(self.empty_rows(keys[layer], shape[layer])) for layer in range(len(shape))]
        self.keys, self.values = ([rows[part] for rows in stored] for part in (0, 1))
        self.weights = [
            torch.zeros_like(rows[..., 0], dtype=torch.float32) if storage.has_weights else None for rows in self.keys
        ]
        self.hidden = [
            torch.zeros_like(rows[..., 0], dtype=torch.bool) if layer_shape.masked else None
            for rows, layer_shape in zip(self.keys, shape, strict=True)
        ]
        ring = 0 if storage.packing is None else storage.packing.recent
        self.rings = [
            torch.zeros(0, self.heads, ring, 2 * rows.shape[-1], dtype=torch.float16, device=rows.device)
            for rows in self.like
            if ring
        ]
        self.numbers = DeviceNumbers(keys[0].device)
        self.starts = torch.zeros(len(shape), 0, self.heads, dtype=torch.int64)
        self.lengths = self.starts.clone()

    def empty_rows(self, like: Tensor, shape: Shape) -> Tensor:
        return like.new_empty(0, 1 if shape.flat else self.heads, shape.capacity, like.shape[-1])

    @property
    def size(self) -> int:
        return self.lengths.shape[1]

    def slot_counts(self) -> list[int]:
        """Return the slots in use of each lane, summed over layers and KV heads."""
        totals: list[int] = self.lengths[:, : len(self.members)].sum((0, 2)).tolist()
        return totals

    def mean_slots(self) -> Iterator[tuple[Member, float]]:
        """Return the slots in use per KV head and layer, for each lane."""
        heads = len(self.shape) * self.heads
        return ((member, slots / heads) for member, slots in zip(self.members, self.slot_counts(), strict=True))

    def resize(self, size: int) -> None:
        """Change the number of lanes that fit; lanes keep their indices."""
        used = min(len(self.members), size)
        for tensors in (self.keys, self.values):
            for layer, old in enumerate(tensors):
                tensors[layer] = old.new_empty(size, *old.shape[1:])
                tensors[layer][:used], tensors[layer][used:] = old[:used], 0
        for optional_rows in (self.weights, self.hidden, self.rings):
            for layer, rows in enumerate(optional_rows):
                if rows is not None:
                    optional_rows[layer] = pad(rows[:used], (*[0] * (2 * rows.dim() - 1), size - used))
        change = (0, 0, 0, size - self.size)
        self.starts, self.lengths = pad(self.starts, change), pad(self.lengths, change)

    def admit(self, members: Sequence[Member]) -> range:
        """Add lanes at the end and return their indices; `fill` stores their slots. A full pool grows by a quarter or
        more, so that lanes that join problem by problem are moved a few times each.
        """
        first, last = len(self.members), len(self.members) + len(members)
        if last > self.size:
            self.resize(max(last, self.size * 5 // 4))
        self.members.extend(members)
        self.indices.update(zip(members, range(first, last), strict=True))
        return range(first, last)

    def remove(self, leaving: Collection[Member]) -> None:
        """Remove lanes; others move to their indices. The pool shrinks when half of it is free."""
        for index in reversed(range(len(self.members))):  # from the end: fewest moves
            if self.members[index] not in leaving:
                continue
            member, last = self.members.pop(), len(self.members)
            del self.indices[member if index == last else self.members[index]]
            optional_rows = (
                optional_tensor for optional_tensor in (*self.weights, *self.hidden) if optional_tensor is not None
            )
            for tensor in (*self.keys, *self.values, *self.rings, *optional_rows):
                # The next lane may be shorter, and this one may have left because of a NaN.
                tensor[index] = 0 if index == last else tensor[last]
            if index != last:
                self.starts[:, index], self.lengths[:, index] = self.starts[:, last], self.lengths[:, last]
                self.members[index], self.indices[member] = member, index
        if self.members and 2 * len(self.members) <= self.size:
            self.resize(len(self.members))

    def fill(
        self,
        index: int,
        layer: int,
        cached: CachedSlots,
        keep_mask: Tensor,
        counts: Tensor,
        hidden: Tensor | None = None,
    ) -> None:
        """Store the kept slots of one layer.

        cached: in the format of this pool. keep_mask [kv_head, n] bool; counts [kv_head] on the CPU, its
        sums. hidden [kv_head, n] bool, for a layer with all slots kept: those that no token attends to.
        """
        sizes = counts.tolist()
        capacity = self.shape[layer].capacity
        if self.shape[layer].flat:
            spare = (capacity - sum(sizes)) // len(sizes)
            starts = [sum(sizes[:head]) + spare * head for head in range(len(sizes))]
        else:
            starts = [0] * len(sizes)
        self.starts[layer, index] = torch.tensor(starts)
        self.lengths[layer, index] = counts
        if self.storage.in_groups:
            kept = [mask.nonzero_static(size=size).flatten() for mask, size in zip(keep_mask, sizes, strict=True)]
            keys, values = ([part[head, slots] for head, slots in enumerate(kept)] for part in cached[:2])
            store_slots(self, index, layer, keys, values, starts)
            return
        sources = [(self.keys[layer][index], cached.keys), (self.values[layer][index], cached.values)]
        weights = self.weights[layer]
        if weights is not None:
            slot_weights = torch.ones_like(keep_mask, dtype=torch.float32) if cached.weights is None else cached.weights
            # A copy, since source and target may overlap; future tokens have weight 1.
            sources.append((weights[index].unsqueeze(-1), slot_weights.unsqueeze(-1).clone()))
            weights[index] = 1
        # Head by head, in position order; their number is known, so that no device is waited for.
        retained_slots = keep_mask.flatten().nonzero_static(size=sum(sizes)).flatten()
        for row, source in sources:
            retained = source.flatten(0, 1).index_select(0, retained_slots)
            if self.shape[layer].flat:
                for start, part in zip(starts, torch.split(retained, sizes), strict=True):
                    row[0, start : start + len(part)] = part
            else:
                row[:, : sizes[0]] = retained.view(len(sizes), sizes[0], retained.shape[-1])  # not -1: may be empty
        mask = self.hidden[layer]
        if mask is not None:
            mask[index] = False  # of the previous lane
            if hidden is not None:
                mask[index, :, : hidden.shape[1]] = hidden

    def compact(self, indices: Tensor, order: Tensor) -> None:
        """Move slots of several lanes to the front of their heads; no shape may be flat.

        indices [lane]: of the lanes, on the device. order [lane, layer, kv_head, k] int64: the slots that stay,
        ascending; all others are dropped, and the caller sets the lengths.
        """
        _, layers, heads, k = order.shape
        row = indices[:, None, None] * heads + torch.arange(heads, device=order.device)[:, None]
        slots = torch.arange(k, device=order.device)
        for layer in range(layers):
            first = row * self.shape[layer].capacity
            source, target = (first + order[:, layer]).flatten(), (first + slots).flatten()
            weights = self.weights[layer]
            for rows in (self.keys[layer], self.values[layer]):
                flat = rows.view(-1, rows.shape[-1])
                flat.index_copy_(0, target, flat.index_select(0, source))
            assert weights is None

    def gather_lanes(self, indices: Tensor, layer: int, n: int) -> CachedSlots:
        """Return the first n slots of each head of several lanes, as computed, without flat shapes: keys and
        values [lane, kv_head, n, d]. indices [lane]: on the device.
        """
        keys, values = (rows[:, :, :n].index_select(0, indices) for rows in (self.keys[layer], self.values[layer]))
        return CachedSlots(*self.storage.decode(layer, keys, values, self.like[layer].dtype))

    def lane_slots(self, index: int, layer: int) -> CachedSlots:
        """Return the slots of one lane, as they are stored; of groups, as they are read."""
        starts, lengths = self.starts[layer, index], self.lengths[layer, index]
        n = int(lengths.max())
        if self.storage.in_groups:
            return CachedSlots(*(part[0] for part in read_slots(self, layer, slice(index, index + 1), n)))
        weights = self.weights[layer]
        tensors = (self.keys[layer], self.values[layer], *(() if weights is None else (weights,)))
        if not self.shape[layer].flat:
            return CachedSlots(*(rows[index, :, :n] for rows in tensors))
        slot = (starts[:, None] + torch.arange(n)).clamp_(max=self.shape[layer].capacity - 1)
        slot = slot.to(self.keys[layer].device, non_blocking=True)
        return CachedSlots(*(rows[index, 0][slot] for rows in tensors))

    def plans(self, indices: slice, new: int, queries: int, needs_mask: bool = True) -> list[Plan]:
        """Return one plan per layer for `new` tokens of the lanes at these indices.

        queries: number of query heads. needs_mask: whether the visibility is read. Layers of one layout share
        one plan, except for hidden slots.
        """
        starts, lengths = self.starts[:, indices].numpy(), self.lengths[:, indices].numpy()
        keys = [(starts[layer].tobytes(), lengths[layer].tobytes(), shape) for layer, shape in enumerate(self.shape)]
        layouts = {
            key: build_layout(self.shape[layer], starts[layer], lengths[layer], new, needs_mask)
            for key, layer in {key: layer for layer, key in enumerate(keys)}.items()
        }
        grown = iter(self.numbers.update("slots", [part for own in layouts.values() for part in own.arrays()], 1))
        fixed = iter(self.numbers.update("starts", [own.starts for own in layouts.values()]))
        plan_cache = {
            key: plan_layer(layout, next(fixed), [next(grown) for _ in layout.arrays()], queries, self.like[0])
            for key, layout in layouts.items()
        }
        plans = []
        for layer, key in enumerate(keys):
            layer_plan, hidden, weights = plan_cache[key], self.hidden[layer], self.weights[layer]
            if hidden is not None and layer_plan.visible is not None:
                visible = layer_plan.visible & ~hidden[indices, :, None, : layer_plan.end]
                layer_plan = layer_plan._replace(visible=visible, mask=additive_mask(visible, self.like[layer]))
            if self.storage.weighs_logits and weights is not None:
                bias = weights[indices, :, None, : layer_plan.end]
                bias = bias.to(torch.promote_types(self.like[layer].dtype, torch.float32)).log()
                mask = bias if layer_plan.visible is None else torch.where(layer_plan.visible, bias, -torch.inf)
                layer_plan = layer_plan._replace(bias=bias, mask=mask)
            plans.append(layer_plan)
        return plans

    def bytes(self) -> int:
        """Return the allocated memory of the tensors."""
        weights = (optional_tensor for optional_tensor in self.weights if optional_tensor is not None)
        return sum(tensor.untyped_storage().nbytes() for tensor in (*self.keys, *self.values, *self.rings, *weights))


def build_layout(shape: Shape, starts: Integers, lengths: Integers, new: int, needs_mask: bool) -> Layout:
    """Return the layout of `new` tokens. starts, lengths [lane, kv_head]: of the slots before them."""
    lanes, heads = lengths.shape
    slots = (starts + lengths)[..., None] + np.arange(new)
    rows = 1 if shape.flat else heads
    row = np.arange(lanes * rows).reshape(lanes, rows, 1)  # one row for all heads of a flat shape
    is_even = not shape.flat and bool((lengths == lengths[0, 0]).all())
    needs_mask &= new > 1 or shape.flat or shape.masked or not is_even
    return Layout(shape, starts, slots, None if is_even else row * shape.capacity + slots, needs_mask)


def plan_layer(layout: Layout, starts: Tensor, numbers: Sequence[Tensor], queries: int, keys: Tensor) -> Plan:
    """Return the plan of a layout, whose starts and other numbers are on the device. keys: for the dtype."""
    shape, end = layout.shape, int(layout.slots.max()) + 1
    targets = None if layout.targets is None else numbers[0].flatten()
    if not layout.needs_mask:
        return Plan(targets, end, None, None)
    slots = numbers[-1]
    lanes, heads, new = slots.shape
    rows, group = 1 if shape.flat else heads, queries // heads
    column = torch.arange(end, device=keys.device)
    if new == 1 and not shape.flat:
        visible = column <= slots[:, :1, :, None]  # heads in separate rows have equally many slots
    else:
        visible = column <= slots[..., None]  # [lane, kv_head, t, end]
        if shape.flat:
            visible &= column >= starts[..., None, None]
        if group > 1:
            visible = visible.repeat_interleave(group, 1)  # [lane, q_head, t, end]
        visible = visible.reshape(lanes, rows, -1, end)
    return Plan(targets, end, visible, additive_mask(visible, keys), starts, slots)


def additive_mask(visible: Tensor, keys: Tensor) -> Tensor:
    """Return a mask with 0 for visible slots and -inf for all others."""
    return torch.where(visible, 0.0, -torch.inf).to(keys.dtype)


class SlotPools(Generic[Member]):
    """All pools. A lane's row in a batch is its index, counted through the pools in their order."""

    def __init__(self, attention: Attention = PADDED) -> None:
        self.attention = attention
        self.pools: dict[tuple[tuple[Shape, ...], StorageFormat], Pool[Member]] = {}

    def pool(self, shape: tuple[Shape, ...], keys: Sequence[Tensor], storage: StorageFormat = VERBATIM) -> Pool[Member]:
        if (shape, storage) not in self.pools:
            self.pools[shape, storage] = Pool(shape, keys, storage, self.attention)
        return self.pools[shape, storage]

    def remove(self, leaving: Collection[Member]) -> None:
        for pool in list(self.pools.values()):
            self.remove_from_pool(pool, leaving)

    def remove_from_pool(self, pool: Pool[Member], leaving: Collection[Member]) -> None:
        """Remove lanes from this pool, and the pool if it is empty."""
        pool.remove(leaving)
        if not pool.members:
            del self.pools[pool.shape, pool.storage]

    def bytes(self) -> int:
        return sum(pool.bytes() for pool in self.pools.values())
