"""Evictions while decoding: which lanes are due, what each policy keeps, and how the kept slots are moved.

Lanes of one policy and pool whose heads all store the same number of slots are evaluated in one batched
tensor operation (`policies.batched`). All decisions are made before any slot is moved, and lanes move in
their order, so that nothing depends on the batching.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from policies import AttentionRows, AttentionSignal, CacheSignal, Cadence, Calibrated, Eviction, Policy, Signal, View
from policies.batched import NotBatchable, can_batch, select_batch
from policies.contract import BatchCounts
from protocol.engine import merging, prefill_fan_out
from protocol.engine.attention.kernels import PADDED, Attention
from protocol.engine.batch_rows import BatchRow, cached_layers, decoded_layers, slot_weights
from protocol.engine.device_numbers import upload
from protocol.engine.extra_prompts import measure_extra_prompts
from protocol.engine.lane_memory import (
    Memory,
    column_selector,
    extend_positions,
    layers_read_by,
    measure_signals,
    recent_attention,
    recent_span,
    stack_states,
)
from protocol.engine.output_projection import measure_output_signals
from protocol.engine.own_parts import copy_for, copy_view, map_tensors
from protocol.engine.rotation import rotation_of
from protocol.engine.run_types import Lane, LaneFailure, Model, Outcome
from protocol.engine.sliding_windows import Windows
from protocol.engine.slots import CachedSlots, SlotPools, lane_shapes
from protocol.engine.storage_formats import VERBATIM
from protocol.layers.layer_kinds import layers_of as kinds_of

COPY_BYTES = 2**26
"""Bytes of slots that are copied for one batched operation; at least one lane is."""


class DueEviction(NamedTuple):
    """A lane that is due for eviction."""

    row: BatchRow
    memory: Memory
    budget: int


class LaneEviction(NamedTuple):
    """The eviction decision of a lane. positions [layer, kv_head, n]: positions of its slots before it."""

    event: Eviction
    positions: Tensor


class GroupEviction(NamedTuple):
    """The eviction decisions of several lanes of one pool, with equally many kept slots in every head.

    positions [lane, layer, kv_head, n]: positions of the slots before it. order [lane, layer, kv_head, k]:
    indices of the kept ones. sums: states of attention signals, with a column for each kept slot.
    """

    due: Sequence[DueEviction]
    indices: Tensor
    masks: Tensor
    positions: Tensor
    order: Tensor
    sums: Mapping[AttentionSignal, Any]

    def lane_evictions(self) -> Iterator[tuple[BatchRow, LaneEviction]]:
        for due, mask, positions in zip(self.due, self.masks, self.positions, strict=True):
            yield due.row, LaneEviction(Eviction(mask, None), positions)


class EvictingBatch:
    """The part of a batch that evicts."""

    def __init__(
        self, model: Model, max_new_tokens: int, first_event: int, marks: frozenset[int], attention: Attention = PADDED
    ) -> None:
        self.model = model
        self.max_new_tokens = max_new_tokens
        self.first_event = first_event
        self.marks = marks
        self.rotation = rotation_of(model.network)
        self.slots: SlotPools[BatchRow] = SlotPools(attention)
        self.windows: Windows[BatchRow] = Windows(kinds_of(model.network.config).window)
        self.peak_bytes = 0
        self.event_seconds = 0.0
        self.shared_policies: dict[int, tuple[Policy, Policy | None]] = {}
        self.predicting: dict[type[Cadence], bool] = {}

    def room(self, lane: Lane, counts: Tensor, query: int = 0, wait: int = 0) -> int:
        raise NotImplementedError

    def remove(self, leaving: Mapping[BatchRow, Outcome | LaneFailure]) -> None:
        raise NotImplementedError

    def evict_due(self, rows: Sequence[BatchRow]) -> None:
        """Run the evictions that are due."""
        start = perf_counter()
        due = dict[BatchRow, DueEviction | LaneFailure | None]()
        for row in rows:
            if row.memory is None or row.lane.budget is None:
                continue
            if self.marks and row.step and row.token_ids[row.step - 1] in self.marks:
                due[row] = None
            elif row.n_fed >= row.next_event and (eviction := self.find_due(row, row.memory, row.lane.budget)):
                due[row] = eviction
        if due:
            self.run_evictions(due)
        self.event_seconds += perf_counter() - start

    def find_due(self, row: BatchRow, memory: Memory, budget: int) -> DueEviction | LaneFailure | None:
        """Return the eviction of a lane if it is due; otherwise record until when it cannot be."""
        cadence, step = row.lane.policy.cadence, row.step
        if step < self.first_event:
            row.next_event = row.n_fed + self.first_event - step
            return None
        mean_slots = int(row.pool.lengths.numpy()[:, row.pool_index].sum()) / (len(row.pool.shape) * row.pool.heads)
        try:
            granted = prefill_fan_out.granted_budget(cadence, budget, step)
            if cadence.due(step, mean_slots, granted):
                row.count_state()
                return DueEviction(row, memory, granted)
            if type(cadence) not in self.predicting:
                self.predicting[type(cadence)] = predicts_next_due(type(cadence))
            if self.predicting[type(cadence)]:
                row.next_event = row.n_fed + cadence.next_due(step, mean_slots, budget) - step
        except ValueError as refusal:
            return prefill_fan_out.lane_failure(refusal)
        return None

    def run_evictions(self, due: Mapping[BatchRow, DueEviction | LaneFailure | None]) -> None:
        """Decide for all due lanes, then move their kept slots; None means `stop_evicting`."""
        decisions = dict[BatchRow, LaneEviction | LaneFailure]()
        in_place = list[GroupEviction]()
        for group in self.group_lanes([eviction for eviction in due.values() if isinstance(eviction, DueEviction)]):
            group_eviction = self.try_group(group) if len(group) > 1 else None
            if group_eviction is None:
                decisions |= {eviction.row: self.decide_lane(eviction) for eviction in group}
            elif self.fits_pool(group_eviction):
                in_place.append(group_eviction)
            else:
                decisions |= group_eviction.lane_evictions()
        for group_eviction in in_place:
            compact_group(group_eviction)
        for row, eviction in due.items():
            if eviction is None:
                self.stop_evicting(row)
            elif isinstance(eviction, LaneFailure):
                self.remove({row: eviction})
            elif row in decisions:
                self.apply_eviction(eviction, decisions[row])

    def group_lanes(self, due: Sequence[DueEviction]) -> Iterator[Sequence[DueEviction]]:
        """Yield lanes that can be evaluated together, and each of the others alone."""
        groups = dict[object, list[DueEviction]]()
        for number, eviction in enumerate(due):
            row, pool = eviction.row, eviction.row.pool
            policy = self.shareable_policy(row.lane.policy)
            lengths = pool.lengths.numpy()[:, row.pool_index]
            n = int(lengths[0, 0])
            memory = eviction.memory
            is_alone = policy is None or any(shape.masked for shape in pool.shape)
            is_alone |= pool.storage is not VERBATIM and (pool.storage.packing is None or pool.storage.in_groups)
            is_alone |= memory.remembered is not None or memory.routed is not None
            if is_alone or n <= eviction.budget or bool((lengths != n).any()):
                groups[number] = [eviction]
            else:
                budgets = (row.lane.budget, eviction.budget)
                rows = 0 if memory.recent is None else min(row.n_fed, memory.recent.shape[2])
                key = (id(policy), *budgets, id(pool), n, memory.positions.shape, rows)
                groups.setdefault(key, []).append(eviction)
        for group in groups.values():
            pool = group[0].row.pool
            limit = max(1, COPY_BYTES * pool.size // pool.bytes())
            for first in range(0, len(group), limit):
                yield group[first : first + limit]

    def shareable_policy(self, policy: Policy) -> Policy | None:
        """Return the first known policy equal to this one; None if its lanes are evaluated alone."""
        if id(policy) not in self.shared_policies:
            first = None
            if can_batch(policy):
                firsts = (first for _, first in self.shared_policies.values() if first == policy)
                first = next(firsts, policy)
            self.shared_policies[id(policy)] = (policy, first)  # keeps the policy alive, so that its id is not reused
        return self.shared_policies[id(policy)][1]

    def try_group(self, due: Sequence[DueEviction]) -> GroupEviction | None:
        """Return the decisions of these lanes; None if one might fail, so that each is evaluated alone."""
        try:
            return self.decide_group(due)
        except (ValueError, NotBatchable):
            return None

    def decide_group(self, due: Sequence[DueEviction]) -> GroupEviction:
        rows, memories = [eviction.row for eviction in due], [eviction.memory for eviction in due]
        pool, budget, policy = rows[0].pool, due[0].budget, rows[0].lane.policy
        device, n = self.model.network.device, int(pool.lengths[0, rows[0].pool_index, 0])
        numbers = np.array(
            [
                (row.pool_index, row.n_fed, min(row.n_fed, row.request.prompt.prompt_tokens), memory.evicted_at)
                for row, memory in zip(rows, memories, strict=True)
            ]
        )
        indices, n_fed, prompt, evicted_at = upload(device, [*numbers.T[..., None, None, None]])
        indices = indices.flatten()
        last_positions = torch.stack([memory.positions for memory in memories])
        positions = extend_positions(last_positions, evicted_at, n_fed, n)
        carried = (signal for signal in policy.needs if signal in memories[0].sums)
        sums = {signal: stack_states([memory.sums[signal] for memory in memories]) for signal in carried}
        view = View(
            token_ids=torch.empty(len(rows), 0, dtype=torch.int64, device=device),
            layers=len(pool.shape),
            kv_heads=pool.heads,
            sentence_ends=self.model.sentence_ends,
            seed=0,
            signals=self.measure_group(due, indices, positions, sums),
            # Positions that all heads share are evaluated once.
            stored=positions[:, :1, :1] if (positions == positions[:, :1, :1]).all() else positions,
            rotation=self.rotation,
            batch=BatchCounts(n_fed, prompt),
        )
        mask = select_batch(policy, copy_view(policy, view), budget)
        size = math.prod(mask.shape[:-1]) * budget
        order = mask.nonzero_static(size=size)[:, -1].view(*mask.shape[:-1], budget)
        is_stored, columns = torch.ones_like(order, dtype=torch.bool), dict[AttentionSignal, Any]()
        for signal, state in sums.items():
            layers = layers_read_by(signal, len(pool.shape))
            own = (order, is_stored) if len(layers) == len(pool.shape) else (order[:, layers], is_stored[:, layers])
            columns[signal] = map_tensors(column_selector(*own), state)
        return GroupEviction(due, indices, mask, positions, order, columns)

    def measure_group(
        self, due: Sequence[DueEviction], indices: Tensor, positions: Tensor, sums: Mapping[AttentionSignal, Any]
    ) -> dict[Signal, Any]:
        """Measure as `lane_memory.measure_signals` does, for several lanes with batchable signals."""
        pool, needs = due[0].row.pool, due[0].row.lane.policy.needs
        layers, n, results = range(len(pool.shape)), positions.shape[-1], dict[Signal, Any]()
        cached: list[CachedSlots] = []
        if any(isinstance(entry, CacheSignal | AttentionSignal) and entry not in sums for entry in needs):
            cached = [pool.gather_lanes(indices, layer, n) for layer in layers]
        for signal in needs:
            if isinstance(signal, CacheSignal):
                results[signal] = tuple(
                    signal.summarise(layer, *copy_for(signal, (entry.keys, entry.values)), positions[:, layer] >= 0)
                    for layer, entry in enumerate(cached)
                )
            elif isinstance(signal, AttentionSignal):
                of_layer = dict[int, Any]()
                for index, layer in enumerate(layers_read_by(signal, len(layers))):
                    if signal in sums:
                        state = map_tensors(itemgetter((slice(None), index)), sums[signal])
                    else:
                        state = signal.attend(
                            recent_group_rows(due, signal, layer, positions, cached[layer].keys), None
                        )
                    of_layer[layer] = signal.result(state)
                results[signal] = tuple(map(of_layer.get, layers))
            elif isinstance(signal, Calibrated):
                results[signal] = self.model.statistics[signal.name]
        return results

    def fits_pool(self, group_eviction: GroupEviction) -> bool:
        """Return whether these lanes can keep their places in the pool."""
        row, counts = (
            group_eviction.due[0].row,
            torch.full(group_eviction.order.shape[1:3], group_eviction.order.shape[-1]),
        )
        sizes = row.pool.storage.sizes(row.pool.like[0])
        return lane_shapes(counts, self.room(row.lane, counts), sizes=sizes) == row.pool.shape

    def decide_lane(self, due: DueEviction) -> LaneEviction | LaneFailure:
        """Return the decision of a lane's policy on its current slots."""
        row, memory, budget = due
        lengths = row.pool.lengths[:, row.pool_index]
        positions = memory.slot_positions(row.n_fed, int(lengths.max()))
        cached, weighs_logits = decoded_layers(row, cached_layers(row)), row.pool.storage.weighs_logits
        prompt, policy = row.request.prompt, row.lane.policy
        tokens = [*prompt.context, *prompt.query, *row.token_ids][: row.n_fed]
        (token_ids,) = upload(self.model.network.device, [np.array(tokens)])
        windows = self.windows.windows_of(row, row.n_fed)
        try:
            signals = measure_signals(memory, policy, positions, row.n_fed, cached, weighs_logits)
            pairs = ((slots.keys, slots.values) for slots in cached)
            signals |= measure_output_signals(self.model, policy.needs, pairs, positions >= 0)
            view = prefill_fan_out.build_view(
                self.model,
                row.request,
                row.lane,
                token_ids,
                signals
                | measure_extra_prompts(
                    self.model, policy.needs, token_ids, cached, weighs_logits, positions >= 0, windows
                ),
                row.pool.heads,
                self.rotation,
                step=row.n_fed,
                stored=positions,
                remembered=memory.remembered,
                routed=memory.routed,
                weights=slot_weights(cached, positions >= 0),
            )
            return LaneEviction(prefill_fan_out.run_policy(policy, view, budget), positions)
        except ValueError as refusal:
            return prefill_fan_out.lane_failure(refusal)

    def apply_eviction(self, due: DueEviction, decision: LaneEviction | LaneFailure) -> None:
        """Compact the slots that a lane keeps."""
        row, memory, budget = due
        if isinstance(decision, LaneFailure):
            self.remove({row: decision})
            return
        event, positions = decision
        slots_before = int(row.pool.lengths[:, row.pool_index].sum())
        try:
            cached = [
                merging.merge_layer(event.merging, layer, slots, positions[layer], self.rotation)
                for layer, slots in enumerate(cached_layers(row))
            ]
            counts = event.retained.sum(-1).cpu()
            self.move_slots(row, cached, event.retained, counts, self.room(row.lane, counts))
            memory.compact(event, positions, row.n_fed, counts)
        except ValueError as refusal:
            self.remove({row: prefill_fan_out.lane_failure(refusal)})
            return
        row.events.append((row.step, slots_before, int(counts.sum())))
        row.granted.append(budget)

    def stop_evicting(self, row: BatchRow) -> None:
        """Stop evicting after the thinking: drop the policy's state, and reserve slots for the rest of the answer."""
        row.count_state()
        row.memory = None
        lengths = row.pool.lengths[:, row.pool_index].clone()
        is_filled = torch.arange(int(lengths.max())) < lengths[..., None]
        mask = is_filled.to(self.model.network.device, non_blocking=True)
        self.move_slots(row, cached_layers(row), mask, lengths, self.max_new_tokens - row.step)

    def move_slots(self, row: BatchRow, cached: Sequence[CachedSlots], mask: Tensor, counts: Tensor, room: int) -> None:
        """Compact the kept slots of a lane into a place with `room` more slots.

        cached: as from `cached_layers`; mask [layer, kv_head, n]; counts [layer, kv_head], its sums, on the CPU.
        """
        pool, index = row.pool, row.pool_index
        shape = lane_shapes(counts, room, sizes=pool.storage.sizes(pool.like[0]))
        if shape != pool.shape:
            row.pool = self.slots.pool(shape, pool.like, pool.storage)
            (target,) = row.pool.admit([row])
            self.peak_bytes = max(self.peak_bytes, self.slots.bytes() + self.windows.bytes())  # both pools
        else:
            target = index
        for layer, slots in enumerate(cached):
            row.pool.fill(target, layer, slots, mask[layer], counts[layer])
        if shape != pool.shape:
            self.slots.remove_from_pool(pool, (row,))


def predicts_next_due(kind: type[Cadence]) -> bool:
    """Return whether `next_due` is of the class that decides when an eviction is due, or of a subclass of it."""
    ranks = [
        next(rank for rank, base in enumerate(kind.__mro__) if name in vars(base))
        for name in ("next_due", "due", "budget", "budgets", "smallest_budget")
    ]
    return ranks[0] <= min(ranks)


def recent_group_rows(
    due: Sequence[DueEviction], signal: AttentionSignal, layer: int, stored: Tensor, keys: Tensor
) -> AttentionRows:
    """Return the attention of the last tokens of several lanes over their slots, [lane, q_head, row, n]."""
    assert signal.window is not None
    recent = torch.stack([require_recent(eviction.memory)[layer] for eviction in due])
    spans = [recent_span(eviction.row.n_fed, signal.window, recent) for eviction in due]
    if len({span.start >= eviction.memory.prompt for span, eviction in zip(spans, due, strict=True)}) > 1:
        raise NotBatchable
    first = due[0]
    (positions,) = upload(recent.device, [np.array(spans)])
    return recent_attention(first.memory, layer, recent, positions, first.row.n_fed, stored[:, layer], keys)


def require_recent(memory: Memory) -> Tensor:
    assert memory.recent is not None
    return memory.recent


def compact_group(group_eviction: GroupEviction) -> None:
    """Compact the kept slots of several lanes within their places."""
    pool, order = group_eviction.due[0].row.pool, group_eviction.order
    slots_before, slots_after = (part[0].numel() for part in (group_eviction.positions, order))
    positions = group_eviction.positions.gather(-1, order)
    pool.compact(group_eviction.indices, order)
    pool.lengths[:, [due.row.pool_index for due in group_eviction.due]] = order.shape[-1]
    for lane, (row, memory, budget) in enumerate(group_eviction.due):
        # A copy: a view would keep the tensors of all lanes alive.
        memory.positions = positions[lane].clone()
        memory.evicted_at, memory.remembered, memory.routed = row.n_fed, None, None
        for signal, state in group_eviction.sums.items():
            memory.sums[signal] = map_tensors(torch.clone, map_tensors(itemgetter(lane), state))
        row.events.append((row.step, slots_before, slots_after))
        row.granted.append(budget)
