"""The slot cache: every lane holds its own slots, in tensors no larger than it needs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from protocol.engine.forms import ALIKE, VERBATIM, Form, Sizes

QUANTUM = 16
"""Capacities are multiples of it, so that lanes of nearly equal capacity share a pool; of slots that are not
stored as computed, as many as fit into the bytes of such a multiple, so that equal bytes stay equal.
"""


class Shape(NamedTuple):
    """Room of one lane in one layer.

    flat False: a row per KV head, each of `capacity` slots. flat True: one row for all heads, one after the
    other, of `capacity` slots in all; what heads of different numbers of slots take. masked: some slots, of
    a shape that is not flat, are held and not attended to.
    """

    flat: bool
    capacity: int
    masked: bool = False


def shapes(counts: Tensor, room: int, *, masked: bool = False, sizes: Sizes = ALIKE) -> tuple[Shape, ...]:
    """The room of a lane, layer by layer. counts: slots held now, [layer, kv_head]; room: slots to come."""
    layers = []
    for heads in counts.tolist():
        if len(set(heads)) > 1:
            layers.append(Shape(True, sum(heads) + room * len(heads)))
        else:
            layers.append(Shape(False, rounded(heads[0] + room, sizes), masked))
    return tuple(layers)


def rounded(slots: int, sizes: Sizes) -> int:
    """The capacity of a head that needs room for so many slots."""
    whole = QUANTUM * sizes.computed
    return -(-slots * sizes.own // whole) * whole // sizes.own


class Layout(NamedTuple):
    """Where the slots of some lanes lie in one layer, int64 [lane, kv_head] each."""

    starts: NDArray[np.int64]
    """First slot of each head in its row."""
    lengths: NDArray[np.int64]


class Plan(NamedTuple):
    """Where the new slots of a forward go and what a new token sees, the same for layers of one layout."""

    at: Tensor
    """[lane x kv_head x t], counted through all rows of these lanes."""
    end: int
    """No slot at or beyond it is in use."""
    visible: Tensor | None
    """[lane, row, query rows, end], 1 in place of what rows share; None where all is visible."""
    mask: Tensor | None
    """What the attention function is given to add to the logits, of that shape: 0, the bias, or -inf of what
    is not visible; None where it would be 0.
    """
    bias: Tensor | None = None
    """[lane, row, 1, end], what is added to the logits of slots that stand for several tokens; None where
    none may.
    """


class Cached(NamedTuple):
    """Slots of one lane in one layer, as they are stored.

    keys [kv_head, n, d], values [kv_head, n, width], n the slots of the fullest head. weights [kv_head, n]
    float32: how many tokens each stands for; None where that is one, or not stored.
    """

    keys: Tensor
    values: Tensor
    weights: Tensor | None = None

    def padded(self, slots: int) -> Cached:
        """With zeros up to so many slots."""
        more = slots - self.keys.shape[1]
        if not more:
            return self
        weights = None if self.weights is None else pad(self.weights, (0, more))
        return Cached(pad(self.keys, (0, 0, 0, more)), pad(self.values, (0, 0, 0, more)), weights)


Member = TypeVar("Member")


class Pool(Generic[Member]):
    """Lanes of equal shape and form, the first `len(members)` places of each tensor.

    keys, values: one tensor per layer, [place, row, capacity, d or the width of a coded value]. A head's
        slots lie in position order from its start; what is not in use is finite, since a masked NaN would
        still spoil the sum.
    weights: of a form that weighs its slots, float32 [place, row, capacity], 1 where no slot was merged;
        else None, layer by layer.
    hidden: what no token sees of the layers whose shape is masked, bool [place, row, capacity], or
        None.
    starts, lengths: [layer, place, kv_head] int64, on the CPU: reading them never waits for an accelerator.
    """

    def __init__(self, shape: tuple[Shape, ...], keys: Sequence[Tensor], form: Form = VERBATIM) -> None:
        """keys: one tensor per layer, [kv_head, n, d], of any lane: its heads, width, dtype and device."""
        self.shape = shape
        self.form = form
        self.heads = keys[0].shape[0]
        self.members: list[Member] = []
        self.keys = [self.rows_for(0, keys[layer], shape[layer]) for layer in range(len(shape))]
        width = form.width(keys[0].shape[-1])
        self.values = [rows.new_zeros(*rows.shape[:-1], width) for rows in self.keys]
        self.weights = [
            torch.zeros_like(rows[..., 0], dtype=torch.float32) if form.weighed else None
            for rows in self.keys
        ]
        self.hidden = [
            torch.zeros_like(rows[..., 0], dtype=torch.bool) if own.masked else None
            for rows, own in zip(self.keys, shape, strict=True)
        ]
        self.starts = torch.zeros(len(shape), 0, self.heads, dtype=torch.int64)
        self.lengths = self.starts.clone()

    def rows_for(self, places: int, like: Tensor, shape: Shape) -> Tensor:
        return like.new_zeros(places, 1 if shape.flat else self.heads, shape.capacity, like.shape[-1])

    @property
    def places(self) -> int:
        return self.lengths.shape[1]

    def held(self) -> list[int]:
        """Slots in use, lane by lane, summed over layers and KV heads."""
        totals: list[int] = self.lengths[:, : len(self.members)].sum((0, 2)).tolist()
        return totals

    def means(self) -> Iterator[tuple[Member, float]]:
        """Slots in use per KV head and layer, lane by lane."""
        heads = len(self.shape) * self.heads
        return ((member, slots / heads) for member, slots in zip(self.members, self.held(), strict=True))

    def resize(self, places: int) -> None:
        """More places, or fewer; the lanes stay where they are."""
        used = min(len(self.members), places)
        for tensors in (self.keys, self.values):
            for layer, old in enumerate(tensors):
                tensors[layer] = self.rows_for(places, old, self.shape[layer])
                tensors[layer][:used] = old[:used]
        for beside in (self.weights, self.hidden):
            for layer, rows in enumerate(beside):
                if rows is not None:
                    beside[layer] = pad(rows[:used], (0, 0, 0, 0, 0, places - used))
        change = (0, 0, 0, places - self.places)
        self.starts, self.lengths = pad(self.starts, change), pad(self.lengths, change)

    def admit(self, members: Sequence[Member]) -> range:
        """Places for more lanes, at the end; it is for `fill` to put slots there."""
        first, last = len(self.members), len(self.members) + len(members)
        if last > self.places:
            self.resize(last)
        self.members.extend(members)
        return range(first, last)

    def dismiss(self, leaving: Collection[Member]) -> None:
        """Free the places of some lanes; others move into them. Where half are free, they are given back."""
        for place in reversed(range(len(self.members))):  # from the end: the last lane need not move
            if self.members[place] not in leaving:
                continue
            member, last = self.members.pop(), len(self.members)
            beside = (each for each in (*self.weights, *self.hidden) if each is not None)
            for tensor in (*self.keys, *self.values, *beside):
                # The next to come does not fill its place, and this one may have left because of a NaN.
                tensor[place] = 0 if place == last else tensor[last]
            if place != last:
                self.starts[:, place], self.lengths[:, place] = self.starts[:, last], self.lengths[:, last]
                self.members[place] = member
        if self.members and 2 * len(self.members) <= self.places:
            self.resize(len(self.members))

    def fill(
        self,
        place: int,
        layer: int,
        cached: Cached,
        kept: Tensor,
        counts: Tensor,
        hidden: Tensor | None = None,
    ) -> None:
        """Store the kept slots of one layer.

        cached: in the form of this pool. kept [kv_head, n] bool; counts [kv_head] on the CPU, its sums.
        hidden [kv_head, n] bool, of a layer all of whose slots are kept: those that no token sees.
        """
        sizes = counts.tolist()
        capacity = self.shape[layer].capacity
        if self.shape[layer].flat:
            spare = (capacity - sum(sizes)) // len(sizes)
            starts = [sum(sizes[:head]) + spare * head for head in range(len(sizes))]
        else:
            starts = [0] * len(sizes)
        self.starts[layer, place] = torch.tensor(starts)
        self.lengths[layer, place] = counts
        sources = [(self.keys[layer][place], cached.keys), (self.values[layer][place], cached.values)]
        weights = self.weights[layer]
        if weights is not None:
            own = torch.ones_like(kept, dtype=torch.float32) if cached.weights is None else cached.weights
            # A copy, since it may lie where it goes; the new tokens to come stand for one each.
            sources.append((weights[place].unsqueeze(-1), own.unsqueeze(-1).clone()))
            weights[place] = 1
        for row, source in sources:
            chosen = source[kept]  # head by head, in position order
            if self.shape[layer].flat:
                for start, part in zip(starts, torch.split(chosen, sizes), strict=True):
                    row[0, start : start + len(part)] = part
            else:
                row[:, : sizes[0]] = chosen.view(len(sizes), sizes[0], -1)
        mask = self.hidden[layer]
        if mask is not None:
            mask[place] = False  # of a lane that was here before
            if hidden is not None:
                mask[place, :, : hidden.shape[1]] = hidden

    def compact(self, places: Sequence[int], order: Tensor) -> None:
        """Move slots of several lanes to the front of their heads, which are of no flat shape.

        order [lane, layer, kv_head, k] int64: the slots that stay, ascending; all others are dropped.
        """
        _, layers, heads, k = order.shape
        at = torch.tensor(places)
        self.lengths[:, at] = k
        row = at.to(order.device)[:, None, None] * heads + torch.arange(heads, device=order.device)[:, None]
        to = torch.arange(k, device=order.device)
        for layer in range(layers):
            first = row * self.shape[layer].capacity
            source, target = (first + order[:, layer]).flatten(), (first + to).flatten()
            weights = self.weights[layer]
            for rows in (self.keys[layer], self.values[layer]):
                flat = rows.view(-1, rows.shape[-1])
                flat.index_copy_(0, target, flat.index_select(0, source))
            assert weights is None

    def several(self, places: Sequence[int], layer: int, n: int) -> Cached:
        """The first n slots of each head of several lanes, as computed, which are of no flat shape: keys and
        values [lane, kv_head, n, d].
        """
        at = torch.tensor(places, device=self.keys[layer].device)
        return Cached(
            *(rows[:, :, :n].index_select(0, at) for rows in (self.keys[layer], self.values[layer]))
        )

    def stored(self, place: int, layer: int) -> Cached:
        """The slots of one lane."""
        starts, lengths = self.starts[layer, place], self.lengths[layer, place]
        n = int(lengths.max())
        weights = self.weights[layer]
        own = (self.keys[layer], self.values[layer], *(() if weights is None else (weights,)))
        if not self.shape[layer].flat:
            return Cached(*(rows[place, :, :n] for rows in own))
        slot = (starts[:, None] + torch.arange(n)).clamp_(max=self.shape[layer].capacity - 1)
        slot = slot.to(self.keys[layer].device)
        return Cached(*(rows[place, 0][slot] for rows in own))

    def plans(self, places: slice, new: int, queries: int) -> list[Plan]:
        """One plan per layer for `new` tokens of the lanes at these places.

        queries: query heads. Layers of one layout share one plan, but for what is hidden in them.
        """
        starts, lengths = self.starts[:, places].numpy(), self.lengths[:, places].numpy()
        made: dict[tuple[bytes, bytes, Shape], Plan] = {}
        plans = []
        for layer, shape in enumerate(self.shape):
            layout = Layout(starts[layer], lengths[layer])
            key = (layout.starts.tobytes(), layout.lengths.tobytes(), shape)
            if key not in made:
                made[key] = plan(layout, shape, new, queries, self.keys[layer])
            own, hidden, weights = made[key], self.hidden[layer], self.weights[layer]
            if hidden is not None and own.visible is not None:
                visible = own.visible & ~hidden[places, :, None, : own.end]
                own = own._replace(visible=visible, mask=added(visible, self.keys[layer]))
            if self.form.mass and weights is not None:
                bias = weights[places, :, None, : own.end]
                bias = bias.to(torch.promote_types(self.keys[layer].dtype, torch.float32)).log()
                mask = bias if own.visible is None else torch.where(own.visible, bias, -torch.inf)
                own = own._replace(bias=bias, mask=mask)
            plans.append(own)
        return plans

    def bytes(self) -> int:
        """Memory behind the tensors."""
        weights = (each for each in self.weights if each is not None)
        return sum(tensor.untyped_storage().nbytes() for tensor in (*self.keys, *self.values, *weights))


def plan(layout: Layout, shape: Shape, new: int, queries: int, keys: Tensor) -> Plan:
    """keys: of the layer, for their dtype and device."""
    starts, lengths = layout
    lanes, heads = lengths.shape
    slot = (starts + lengths)[..., None] + np.arange(new)
    end = int(slot.max()) + 1
    rows = 1 if shape.flat else heads
    row = np.arange(lanes * rows).reshape(lanes, rows, 1)  # of a flat shape, the same for all heads
    at = torch.from_numpy((row * shape.capacity + slot).ravel()).to(keys.device)
    if new == 1 and not shape.flat:
        if not shape.masked and (slot == slot[0, 0]).all():
            return Plan(at, end, None, None)
        slot, group = slot[:, :1], 1  # heads in rows of their own hold equally many
    else:
        group = queries // heads
    column = torch.arange(end, device=keys.device)
    visible = column <= torch.from_numpy(slot).to(keys.device)[..., None]  # [lane, kv_head, t, end]
    if shape.flat:
        visible &= column >= torch.from_numpy(starts).to(keys.device)[..., None, None]
    if group > 1:
        visible = visible.repeat_interleave(group, 1)  # [lane, q_head, t, end]
    if new > 1 or shape.flat:
        visible = visible.reshape(lanes, rows, -1, end)
    return Plan(at, end, visible, added(visible, keys))


def added(visible: Tensor, keys: Tensor) -> Tensor:
    """What leaves the logits of what is visible as they are, and no other."""
    return keys.new_zeros(visible.shape).masked_fill_(~visible, -torch.inf)


class Slots(Generic[Member]):
    """All pools. A lane's row in a batch is its place, counted through the pools in their order."""

    def __init__(self) -> None:
        self.pools: dict[tuple[tuple[Shape, ...], Form], Pool[Member]] = {}

    def pool(self, shape: tuple[Shape, ...], keys: Sequence[Tensor], form: Form = VERBATIM) -> Pool[Member]:
        if (shape, form) not in self.pools:
            self.pools[shape, form] = Pool(shape, keys, form)
        return self.pools[shape, form]

    def dismiss(self, leaving: Collection[Member]) -> None:
        for pool in list(self.pools.values()):
            self.vacate(pool, leaving)

    def vacate(self, pool: Pool[Member], leaving: Collection[Member]) -> None:
        """Lanes leave this pool, for another one or for good."""
        pool.dismiss(leaving)
        if not pool.members:
            del self.pools[pool.shape, pool.form]

    def bytes(self) -> int:
        return sum(pool.bytes() for pool in self.pools.values())
