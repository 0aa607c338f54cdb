"""Evictions while decoding: which lanes are due, what each policy keeps, and how the kept slots are moved.

Lanes of one policy and pool whose heads all store the same number of slots are evaluated in one batched
tensor operation (`policies.together`). All decisions are made before any slot is moved, and lanes move in
their order, so that nothing depends on the batching.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from policies import AttentionSignal, CacheSignal, Cadence, Calibrated, Event, Policy, Rows, Signal, View
from policies.contract import Several
from policies.together import Asunder, kept, together
from protocol.engine import forking, merging
from protocol.engine.asking import asked
from protocol.engine.attention.kernels import PADDED, Attention
from protocol.engine.forms import VERBATIM
from protocol.engine.lane_memory import (
    Memory,
    columns_of,
    every,
    grown,
    layers_of,
    measured,
    positions_of,
    recent_rows,
    stacked,
)
from protocol.engine.lanes import Lane, LaneFailure, Model, Outcome
from protocol.engine.projecting import projected
from protocol.engine.rotation import rotation_of
from protocol.engine.rows import Row, cached_of, weights_of
from protocol.engine.slots import Cached, Slots, shapes
from protocol.engine.windows import Windows
from protocol.layers.kinds import layers_of as kinds_of

__all__ = ["Events"]

AT_ONCE = 2**26
"""Bytes of slots that are copied for one batched operation; at least one lane is."""


class Due(NamedTuple):
    """A lane that is due for eviction."""

    row: Row
    memory: Memory
    budget: int


class Kept(NamedTuple):
    """The eviction decision of a lane. positions [layer, kv_head, n]: positions of its slots before it."""

    event: Event
    stored: Tensor


class Gathered(NamedTuple):
    """The eviction decisions of several lanes of one pool, with equally many kept slots in every head.

    positions [lane, layer, kv_head, n]: positions of the slots before it. order [lane, layer, kv_head, k]:
    indices of the kept ones. sums: states of attention signals, with a column for each kept slot.
    """

    due: Sequence[Due]
    places: Sequence[int]
    kept: Tensor
    stored: Tensor
    order: Tensor
    sums: Mapping[AttentionSignal, Any]

    def each(self) -> Iterator[tuple[Row, Kept]]:
        for due, own, stored in zip(self.due, self.kept, self.stored, strict=True):
            yield due.row, Kept(Event(own, None), stored)


class Events:
    """The part of a batch that evicts."""

    def __init__(
        self,
        model: Model,
        max_new_tokens: int,
        first_event: int,
        marks: frozenset[int],
        attention: Attention = PADDED,
    ) -> None:
        self.model = model
        self.max_new_tokens = max_new_tokens
        self.first_event = first_event
        self.marks = marks
        self.rotation = rotation_of(model.network)
        self.slots: Slots[Row] = Slots(attention)
        self.windows: Windows[Row] = Windows(kinds_of(model.network.config).window)
        self.peak_bytes = 0
        self.event_seconds = 0.0
        self.known: dict[int, tuple[Policy, Policy | None]] = {}

    def room(self, lane: Lane, counts: Tensor, query: int = 0, wait: int = 0) -> int:
        raise NotImplementedError

    def dismiss(self, leaving: Mapping[Row, Outcome | LaneFailure]) -> None:
        raise NotImplementedError

    def fire(self, rows: Sequence[Row]) -> None:
        """Run the evictions that are due."""
        start = perf_counter()
        due = dict[Row, Due | LaneFailure | None]()
        for row in rows:
            if row.memory is None or row.lane.budget is None:
                continue
            if self.marks and row.step and row.token_ids[row.step - 1] in self.marks:
                due[row] = None
            elif row.seen >= row.next_event and (found := self.event_of(row, row.memory, row.lane.budget)):
                due[row] = found
        if due:
            self.act(due)
        self.event_seconds += perf_counter() - start

    def event_of(self, row: Row, memory: Memory, budget: int) -> Due | LaneFailure | None:
        """Return the eviction of a lane if it is due; otherwise record until when it cannot be."""
        cadence, step = row.lane.policy.cadence, row.step
        if step < self.first_event:
            row.next_event = row.seen + self.first_event - step
            return None
        held = int(row.pool.lengths[:, row.place].sum()) / (len(row.pool.shape) * row.pool.heads)
        try:
            granted = forking.granted(cadence, budget, step)
            if cadence.due(step, held, granted):
                row.count_state()
                return Due(row, memory, granted)
            if foretold(type(cadence)):
                row.next_event = row.seen + cadence.next_due(step, held, budget) - step
        except ValueError as refusal:
            return forking.failure(refusal)
        return None

    def act(self, due: Mapping[Row, Due | LaneFailure | None]) -> None:
        """Decide for all due lanes, then move their kept slots; None means `stop_evicting`."""
        found = dict[Row, Kept | LaneFailure]()
        gathered = list[Gathered]()
        for group in self.groups([each for each in due.values() if isinstance(each, Due)]):
            several = self.several(group) if len(group) > 1 else None
            if several is None:
                found |= {each.row: self.alone(each) for each in group}
            elif self.stays(several):
                gathered.append(several)
            else:
                found |= several.each()
        for several in gathered:
            compact(several)
        for row, each in due.items():
            if each is None:
                self.answer(row)
            elif isinstance(each, LaneFailure):
                self.dismiss({row: each})
            elif row in found:
                self.evict(each, found[row])

    def groups(self, due: Sequence[Due]) -> Iterator[Sequence[Due]]:
        """Yield lanes that can be evaluated together, and each of the others alone."""
        groups = dict[object, list[Due]]()
        for number, each in enumerate(due):
            row, pool = each.row, each.row.pool
            policy = self.alike(row.lane.policy)
            lengths = pool.lengths[:, row.place]
            n = int(lengths[0, 0])
            memory = each.memory
            apart = policy is None or pool.form is not VERBATIM or any(own.masked for own in pool.shape)
            apart |= memory.remembered is not None or memory.routed is not None
            if apart or n <= each.budget or bool((lengths != n).any()):
                groups[number] = [each]
            else:
                budgets = (row.lane.budget, each.budget)
                rows = 0 if memory.recent is None else min(row.seen, memory.recent.shape[2])
                key = (id(policy), *budgets, id(pool), n, memory.positions.shape, rows)
                groups.setdefault(key, []).append(each)
        for group in groups.values():
            pool = group[0].row.pool
            most = max(1, AT_ONCE * pool.places // pool.bytes())
            for first in range(0, len(group), most):
                yield group[first : first + most]

    def alike(self, policy: Policy) -> Policy | None:
        """Return the first known policy equal to this one; None if its lanes are evaluated alone."""
        if id(policy) not in self.known:
            first = None
            if together(policy):
                firsts = (first for _, first in self.known.values() if first == policy)
                first = next(firsts, policy)
            self.known[id(policy)] = (policy, first)  # keeps the policy alive, so that its id is not reused
        return self.known[id(policy)][1]

    def several(self, due: Sequence[Due]) -> Gathered | None:
        """Return the decisions of these lanes; None if one might fail, so that each is evaluated alone."""
        try:
            return self.gathered(due)
        except (ValueError, Asunder):
            return None

    def gathered(self, due: Sequence[Due]) -> Gathered:
        rows, memories = [each.row for each in due], [each.memory for each in due]
        pool, budget, policy = rows[0].pool, due[0].budget, rows[0].lane.policy
        places, device = [row.place for row in rows], self.model.network.device
        n = int(pool.lengths[0, places[0], 0])

        def of_each(numbers: Sequence[int]) -> Tensor:
            return torch.tensor(numbers, device=device).view(-1, 1, 1, 1)

        seen = of_each([row.seen for row in rows])
        prompt = of_each([min(row.seen, row.request.prompt.asked) for row in rows])
        before = torch.stack([memory.positions for memory in memories])
        stored = grown(before, of_each([memory.fed for memory in memories]), seen, n)
        carried = (signal for signal in policy.needs if signal in memories[0].sums)
        sums = {signal: stacked([memory.sums[signal] for memory in memories]) for signal in carried}
        view = View(
            token_ids=torch.empty(len(rows), 0, dtype=torch.int64, device=device),
            layers=len(pool.shape),
            kv_heads=pool.heads,
            sentence_ends=self.model.sentence_ends,
            seed=0,
            signals=self.measured(due, places, stored, sums),
            # Positions that all heads share are evaluated once.
            stored=stored[:, :1, :1] if (stored == stored[:, :1, :1]).all() else stored,
            rotation=self.rotation,
            several=Several(seen, prompt),
        )
        mask = kept(policy, view, budget)
        order = mask.nonzero()[:, -1].view(*mask.shape[:-1], budget)
        within, columns = torch.ones_like(order, dtype=torch.bool), dict[AttentionSignal, Any]()
        for signal, state in sums.items():
            read = layers_of(signal, len(pool.shape))
            columns[signal] = every(columns_of(order[:, read], within[:, read]), state)
        return Gathered(due, places, mask, stored, order, columns)

    def measured(
        self, due: Sequence[Due], places: Sequence[int], stored: Tensor, sums: Mapping[AttentionSignal, Any]
    ) -> dict[Signal, Any]:
        """Measure as `lane_memory.measure_signals` does, for several lanes with batchable signals."""
        pool, needs = due[0].row.pool, due[0].row.lane.policy.needs
        layers, n, found = range(len(pool.shape)), stored.shape[-1], dict[Signal, Any]()
        cached: list[Cached] = []
        if any(isinstance(own, CacheSignal | AttentionSignal) and own not in sums for own in needs):
            cached = [pool.several(places, layer, n) for layer in layers]
        for signal in needs:
            if isinstance(signal, CacheSignal):
                found[signal] = tuple(
                    signal.summarise(layer, own.keys, own.values, stored[:, layer] >= 0)
                    for layer, own in enumerate(cached)
                )
            elif isinstance(signal, AttentionSignal):
                of_layer = dict[int, Any]()
                for index, layer in enumerate(layers_of(signal, len(layers))):
                    if signal in sums:
                        state = every(itemgetter((slice(None), index)), sums[signal])
                    else:
                        state = signal.attend(last_rows(due, signal, layer, stored, cached[layer].keys), None)
                    of_layer[layer] = signal.result(state)
                found[signal] = tuple(map(of_layer.get, layers))
            elif isinstance(signal, Calibrated):
                found[signal] = self.model.statistics[signal.name]
        return found

    def stays(self, several: Gathered) -> bool:
        """Return whether these lanes can keep their places in the pool."""
        row, counts = several.due[0].row, torch.full(several.order.shape[1:3], several.order.shape[-1])
        sizes = row.pool.form.sizes(row.pool.keys[0])
        return shapes(counts, self.room(row.lane, counts), sizes=sizes) == row.pool.shape

    def alone(self, due: Due) -> Kept | LaneFailure:
        """Return the decision of a lane's policy on its current slots."""
        row, memory, budget = due
        lengths = row.pool.lengths[:, row.place]
        stored = memory.stored(row.seen, int(lengths.max()))
        cached, form = cached_of(row), row.pool.form
        prompt, policy = row.request.prompt, row.lane.policy
        tokens = [*prompt.context, *prompt.query, *row.token_ids][: row.seen]
        seen = torch.tensor(tokens, device=self.model.network.device)
        windows = self.windows.of(row, row.seen)
        decoded = ((own.keys, form.decoded(layer, own.values)) for layer, own in enumerate(cached))
        try:
            signals = measured(memory, policy, stored, row.seen, cached, form)
            signals |= projected(self.model, policy.needs, decoded, stored >= 0)
            view = forking.view_of(
                self.model,
                row.request,
                row.lane,
                seen,
                signals | asked(self.model, policy.needs, seen, cached, form, stored >= 0, windows),
                row.pool.heads,
                self.rotation,
                step=row.seen,
                stored=stored,
                remembered=memory.remembered,
                routed=memory.routed,
                weights=weights_of(cached, stored >= 0),
            )
            return Kept(forking.compressed(policy, view, budget), stored)
        except ValueError as refusal:
            return forking.failure(refusal)

    def evict(self, due: Due, found: Kept | LaneFailure) -> None:
        """Compact the slots that a lane keeps."""
        row, memory, budget = due
        if isinstance(found, LaneFailure):
            self.dismiss({row: found})
            return
        event, stored = found
        before = int(row.pool.lengths[:, row.place].sum())
        try:
            cached = [
                merging.of_layer(event.merging, layer, own, stored[layer], self.rotation)
                for layer, own in enumerate(cached_of(row))
            ]
            counts = self.move(row, cached, event.kept, self.room(row.lane, event.kept.sum(-1).cpu()))
            memory.compact(event, stored, row.seen)
        except ValueError as refusal:
            self.dismiss({row: forking.failure(refusal)})
            return
        row.events.append((row.step, before, int(counts.sum())))
        row.granted.append(budget)

    def answer(self, row: Row) -> None:
        """Stop evicting after the thinking: drop the state of the policy, and reserve slots for the rest of
        the answer.
        """
        row.count_state()
        row.memory = None
        lengths = row.pool.lengths[:, row.place].clone()
        held = torch.arange(int(lengths.max())) < lengths[..., None]
        kept = held.to(self.model.network.device)
        self.move(row, cached_of(row), kept, self.max_new_tokens - row.step)

    def move(self, row: Row, cached: Sequence[Cached], kept: Tensor, room: int) -> Tensor:
        """Compact the kept slots of a lane into a place with `room` more slots; return their counts.

        cached: as from `cached_layers`; mask [layer, kv_head, n].
        """
        pool, place = row.pool, row.place
        counts = kept.sum(-1).cpu()
        shape = shapes(counts, room, sizes=pool.form.sizes(cached[0].keys))
        if shape != pool.shape:
            row.pool = self.slots.pool(shape, [own.keys for own in cached], pool.form)
            (target,) = row.pool.admit([row])
            self.peak_bytes = max(self.peak_bytes, self.slots.bytes() + self.windows.bytes())  # both pools
        else:
            target = place
        for layer, own in enumerate(cached):
            row.pool.fill(target, layer, own, kept[layer], counts[layer])
        if shape != pool.shape:
            self.slots.vacate(pool, (row,))
        return counts


def foretold(kind: type[Cadence]) -> bool:
    """Return whether `next_due` is defined in the same class as the methods that decide when an eviction is
    due, or in a subclass of it.
    """
    said = [
        next(place for place, each in enumerate(kind.__mro__) if name in vars(each))
        for name in ("next_due", "due", "budget", "budgets", "least")
    ]
    return said[0] <= min(said)


def last_rows(due: Sequence[Due], signal: AttentionSignal, layer: int, stored: Tensor, keys: Tensor) -> Rows:
    """Return the attention of the last tokens of several lanes over their slots, [lane, q_head, row, n]."""
    assert signal.window is not None
    recent = torch.stack([recent_of(each.memory)[layer] for each in due])
    last = [positions_of(each.row.seen, signal.window, recent) for each in due]
    if len({int(own[0]) >= each.memory.prompt for own, each in zip(last, due, strict=True)}) > 1:
        raise Asunder
    first = due[0]
    return recent_rows(first.memory, layer, recent, torch.stack(last), first.row.seen, stored[:, layer], keys)


def recent_of(memory: Memory) -> Tensor:
    assert memory.recent is not None
    return memory.recent


def compact(several: Gathered) -> None:
    """Compact the kept slots of several lanes within their places."""
    pool, order = several.due[0].row.pool, several.order
    before, after = (part[0].numel() for part in (several.stored, order))
    positions = several.stored.gather(-1, order)
    pool.compact(several.places, order)
    for lane, (row, memory, budget) in enumerate(several.due):
        # A copy: a view would keep the tensors of all lanes alive.
        memory.positions = positions[lane].clone()
        memory.fed, memory.remembered, memory.routed = row.seen, None, None
        for signal, state in several.sums.items():
            memory.sums[signal] = every(torch.clone, every(itemgetter(lane), state))
        row.events.append((row.step, before, after))
        row.granted.append(budget)
