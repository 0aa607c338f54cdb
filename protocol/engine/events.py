"""Events while decoding: who is due, what each policy keeps, and where the kept slots go.

Lanes of one policy and pool whose heads all hold one number of slots are asked together, as one tensor
operation (`policies.together`). What each lane keeps is found before any slot is moved, and lanes change
their places in their order, so that nothing depends on who was asked with whom.
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
"""Bytes of slots that are copied for one tensor operation, or one lane."""


class Due(NamedTuple):
    """A lane that has an event now."""

    row: Row
    memory: Memory
    budget: int


class Kept(NamedTuple):
    """What a lane keeps. stored [layer, kv_head, n]: positions of the slots that it held."""

    event: Event
    stored: Tensor


class Gathered(NamedTuple):
    """What several lanes of one pool keep, all of them as many slots in every head.

    stored [lane, layer, kv_head, n]: positions of the slots that they held. order [lane, layer, kv_head, k]:
    of the kept ones. sums: states of attention signals, with a column for each of these.
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
        """The events that are due."""
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
        """The event of a lane, if it has one now; notes until when it has none."""
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
        """Ask the policies of the lanes that are due, then move what they keep; None: `answer`."""
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
        """Lanes that can be asked together, and each of the others alone."""
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
        """The first of the policies equal to this one; None of one whose lanes are asked alone."""
        if id(policy) not in self.known:
            first = None
            if together(policy):
                firsts = (first for _, first in self.known.values() if first == policy)
                first = next(firsts, policy)
            self.known[id(policy)] = (policy, first)  # which keeps it, and so its id
        return self.known[id(policy)][1]

    def several(self, due: Sequence[Due]) -> Gathered | None:
        """What these lanes keep; None where some might fail, which each does alone and in its own words."""
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
            # What all heads share is looked at once.
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
        """As `lane_memory.measured`, of several lanes whose signals are all `measurable`."""
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
        """Whether what these lanes keep has its place where it is."""
        row, counts = several.due[0].row, torch.full(several.order.shape[1:3], several.order.shape[-1])
        sizes = row.pool.form.sizes(row.pool.keys[0])
        return shapes(counts, self.room(row.lane, counts), sizes=sizes) == row.pool.shape

    def alone(self, due: Due) -> Kept | LaneFailure:
        """What the policy of a lane keeps of the slots of today."""
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
        """Move the slots together that a lane keeps."""
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
        """The thinking is over: nothing is evicted any more, so that what the policy carries is dropped and
        the slots get room for all that may still be said.
        """
        row.count_state()
        row.memory = None
        lengths = row.pool.lengths[:, row.place].clone()
        held = torch.arange(int(lengths.max())) < lengths[..., None]
        kept = held.to(self.model.network.device)
        self.move(row, cached_of(row), kept, self.max_new_tokens - row.step)

    def move(self, row: Row, cached: Sequence[Cached], kept: Tensor, room: int) -> Tensor:
        """Move the kept slots of a lane together, into a place with so much room; returns their counts.

        cached: as of `cached_of`; kept [layer, kv_head, n].
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
    """Whether what a cadence says of its next event is said of all that decides when it fires."""
    said = [
        next(place for place, each in enumerate(kind.__mro__) if name in vars(each))
        for name in ("next_due", "due", "budget", "budgets", "least")
    ]
    return said[0] <= min(said)


def last_rows(due: Sequence[Due], signal: AttentionSignal, layer: int, stored: Tensor, keys: Tensor) -> Rows:
    """Attention of the last tokens of several lanes over their slots, [lane, q_head, row, n]."""
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
    """Move the kept slots of several lanes together, in the places that they have."""
    pool, order = several.due[0].row.pool, several.order
    before, after = (part[0].numel() for part in (several.stored, order))
    positions = several.stored.gather(-1, order)
    pool.compact(several.places, order)
    for lane, (row, memory, budget) in enumerate(several.due):
        # Of its own, or the lane that stays longest would hold what all of them had.
        memory.positions = positions[lane].clone()
        memory.fed, memory.remembered, memory.routed = row.seen, None, None
        for signal, state in several.sums.items():
            memory.sums[signal] = every(torch.clone, every(itemgetter(lane), state))
        row.events.append((row.step, before, after))
        row.granted.append(budget)
