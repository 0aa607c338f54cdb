"""The rows of the batch: lanes while they decode, and the observations of a forward pass."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from protocol.engine.device_numbers import DeviceNumbers
from protocol.engine.forward_step import ForwardStep, WatchedAttention
from protocol.engine.lane_memory import Memory
from protocol.engine.native.network import Numbers
from protocol.engine.observation import Observer
from protocol.engine.run_types import Divergence, Lane, Outcome, Request
from protocol.engine.sliding_windows import SlidingForward
from protocol.engine.slots import CachedSlots, Pool

if TYPE_CHECKING:
    from protocol.engine.native_step import NativeStep


@dataclass(eq=False)
class BatchRow:
    """One row of the batch: a decoding lane."""

    request: Request
    number: int
    lane: Lane
    memory: Memory | None
    pool: Pool[BatchRow]
    n_fed: int
    """Tokens fed."""
    joined: int
    start_time: float
    events: list[tuple[int, int, int]]
    granted: list[int]
    """The budget of each eviction."""
    position_lag: int = 0
    """Tokens fed less the next position: not 0 if a press renumbered its slots."""
    token_ids: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    allocated: list[int] = field(default_factory=list)
    state_bytes: int = 0
    reads: int | None = None
    """Slots read for its new tokens; None where they are all slots that it held."""
    next_event: int = 0
    """A lower bound on the tokens fed at the next eviction."""
    parked: Sequence[Tensor] = ()
    """Slots of other caches that the lane stores and nothing attends to."""
    window_bytes: int = 0
    """The part of the allocated bytes in windows, which is constant."""
    has_all_tokens: bool = False
    """Whether it still stores every token it was fed, from the prefill that lanes of its problem share on."""
    has_left: bool = False
    """Whether it has stopped decoding."""
    leader: BatchRow | None = None
    """The lane whose tokens it is fed, in the place of its own."""
    divergences: list[Divergence] = field(default_factory=list)
    prompt: int = field(init=False)
    """Tokens of the prompt, including the question and the part of the answer written before."""

    def __post_init__(self) -> None:
        self.prompt = self.request.prompt.tokens

    @property
    def pool_index(self) -> int:
        return self.pool.indices[self]

    @property
    def step(self) -> int:
        """New tokens fed."""
        return self.n_fed - self.prompt

    def count_state(self) -> None:
        """Record the most bytes of the memory since the last eviction: called before each, and at the end. It grows
        between evictions, but for pending tokens when they are folded. Parked slots are included.
        """
        size = sum(tensor.nbytes for tensor in self.parked)
        if self.memory is not None:
            size += max(self.memory.peak, self.memory.bytes())
        self.state_bytes = max(self.state_bytes, size)


StepKind = TypeVar("StepKind", "ForwardStep[BatchRow]", "NativeStep[BatchRow]")


def find_equal_lanes(rows: Sequence[BatchRow], *, is_sampled: bool) -> tuple[Numbers, Numbers]:
    """Return the indices of the rows that have to be computed, ascending, and for each row its place among these.

    Lanes of a problem and seed that hold every token that they were fed have equal slots and texts, whatever their
    arms, if no number of a lane depends on the batch. Greedy texts do not depend on the seed.
    """
    first: dict[tuple[int, int, int], int] = {}
    sources = np.arange(len(rows))
    for index, row in enumerate(rows):
        if row.has_all_tokens:
            sources[index] = first.setdefault((id(row.request), row.lane.seed if is_sampled else 0, row.n_fed), index)
    owners, places = np.unique(sources, return_inverse=True)
    return owners, places


def find_equal_sums(rows: Sequence[BatchRow], places: Numbers) -> dict[BatchRow, BatchRow]:
    """Return the lanes that need not sum their attention, each with a lane in the same place whose sums are equal.

    Equal lanes whose signals have one state go on having one, which nothing of this project changes in place.
    """
    first: dict[tuple[int, ...], BatchRow] = {}
    equal = {}
    for row, place in zip(rows, places.tolist(), strict=True):
        memory = row.memory
        if memory is None or memory.is_own or not memory.sums or not row.has_all_tokens:
            continue
        states = [id(state) for state in memory.sums.values() if state is not None]
        source = first.setdefault((place, *states), row)
        if source is not row and source.memory is not None and [*source.memory.sums] == [*memory.sums]:
            equal[row] = source
    return equal


def build_outcome(row: BatchRow, stop: str) -> Outcome:
    row.count_state()
    return Outcome(
        tuple(row.token_ids),
        stop,
        tuple(row.slots),
        tuple(row.allocated),
        row.state_bytes,
        tuple(row.events),
        tuple(row.granted),
        row.joined,
        row.window_bytes,
        perf_counter() - row.start_time,
        row.reads,
        tuple(row.divergences),
    )


def cached_layers(row: BatchRow) -> list[CachedSlots]:
    """Return the slots of a lane for each layer, padded to its fullest head in any layer."""
    slots, layers = int(row.pool.lengths[:, row.pool_index].max()), range(len(row.pool.shape))
    return [row.pool.lane_slots(row.pool_index, layer).pad_to(slots) for layer in layers]


def decoded_layers(row: BatchRow, cached: Sequence[CachedSlots]) -> list[CachedSlots]:
    """Return the slots of `cached_layers` with keys and values of width d, in the precision of the model."""
    storage, dtype = row.pool.storage, row.pool.like[0].dtype
    return [
        CachedSlots(*storage.decode(layer, slots.keys, slots.values, dtype), slots.weights)
        for layer, slots in enumerate(cached)
    ]


def slot_weights(cached: Sequence[CachedSlots], filled: Tensor) -> Tensor | None:
    """Return [layer, kv_head, n] float32, the number of tokens that each slot represents; None if not stored.

    filled [layer, kv_head, n].
    """
    weights = [slots.weights for slots in cached if slots.weights is not None]
    return torch.stack(weights).masked_fill(~filled, 0) if weights else None


def build_step(
    kind: type[StepKind],
    pool: Pool[BatchRow],
    first: int,
    last: int,
    new: int,
    queries: int,
    summed: Collection[BatchRow] = (),
) -> StepKind:
    """Return the step of this kind of the rows first..last-1 of a pool, which collects what their memories need.

    summed: those that take the sums of another lane.
    """
    watched: dict[WatchedAttention, list[int]] = {}
    query_lanes, fed_lanes = list[int](), list[int]()
    for lane, row in enumerate(pool.members[first:last]):
        memory = row.memory
        if memory is None:
            continue
        if memory.layers and row not in summed:
            watched.setdefault(WatchedAttention(memory.layers, memory.raw), []).append(lane)
        if memory.recent is not None:
            query_lanes.append(lane)
        if memory.fed_states:
            fed_lanes.append(lane)
    return kind(pool, range(first, last), new, queries, watched, query_lanes, fed_lanes)


class RecentQueries:
    """The last queries of lanes with the same window width in one tensor, updated by one operation for each
    forward pass. `Memory.recent` of each lane is a view of `stacked`, [index, layer, q_head, w, d].
    """

    def __init__(self, like: Tensor) -> None:
        self.stacked = like.new_empty(0, *like.shape)
        self.indices: dict[BatchRow, int] = {}
        self.free: list[int] = []

    def assign(self, memories: Mapping[BatchRow, Memory]) -> None:
        """Assign indices to these lanes and free those of all others. A full tensor grows by a quarter or more, and one
        of which half is free shrinks.
        """
        self.free += [self.indices.pop(row) for row in list(self.indices) if row not in memories]
        newcomers = {row: memory for row, memory in memories.items() if row not in self.indices}
        lanes, size = len(memories), len(self.stacked)
        if lanes > size or 2 * lanes <= size:
            queries = [memory.recent for memory in memories.values() if memory.recent is not None]
            self.stacked = self.stacked.new_empty(max(lanes, size * 5 // 4 if lanes > size else 0), *queries[0].shape)
            torch.stack(queries, out=self.stacked[:lanes])
            self.free, newcomers = [*range(lanes, len(self.stacked))], dict(memories)
            self.indices = {row: index for index, row in enumerate(memories)}
        else:
            for row, memory in newcomers.items():
                assert memory.recent is not None
                self.indices[row] = self.free.pop()
                self.stacked[self.indices[row]] = memory.recent
        for row, memory in newcomers.items():
            memory.recent = self.stacked[self.indices[row]]

    def add(self, members: Sequence[BatchRow], queries: Tensor, numbers: DeviceNumbers) -> None:
        """Store the queries of tokens fed to those of these lanes that are in `indices`, as `Memory.add_queries` does.

        queries [layer, lane, q_head, t, d] of all members. numbers: of the pool of the lanes.
        """
        selected = [index for index, row in enumerate(members) if row in self.indices]
        if not selected:
            return
        new, width = queries.shape[3], self.stacked.shape[3]
        count, rows = min(new, width), [members[index] for index in selected]
        lanes = np.array([[self.indices[row]] for row in rows])
        positions = np.array([row.n_fed + new for row in rows])[:, None] + np.arange(-count, 0)
        sources, targets = numbers.update(f"recent {width}", [np.array(selected), lanes])
        (column,) = numbers.update(f"recent {width} positions", [positions], growth=1)
        if len(rows) < len(members):
            queries = queries[:, sources]
        self.stacked[targets, :, :, column % width] = queries[..., new - count :, :].permute(1, 3, 0, 2, 4)


class BatchObserver(Observer):
    """The observer of a forward pass of the batch: every pool attends for its lanes, one after the other."""

    def __init__(self, steps: Sequence[ForwardStep[BatchRow]], sliding: SlidingForward | None = None) -> None:
        self.steps = steps
        self.sliding = sliding
        self.hidden: dict[int, Tensor] = {}

    def slide(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float, sinks: Tensor | None = None
    ) -> Tensor:
        assert self.sliding is not None
        return self.sliding.attend(layer, queries, keys, values, scale, sinks)

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float, sinks: Tensor | None = None
    ) -> Tensor:
        if len(self.steps) == 1:
            return self.steps[0].attend(layer, queries, keys, values, scale, sinks)
        output, first = torch.empty_like(queries), 0
        for step in self.steps:
            lanes = slice(first, first + len(step.indices))
            output[lanes] = step.attend(layer, queries[lanes], keys[lanes], values[lanes], scale, sinks)
            first = lanes.stop
        return output

    def see(self, layer: int, hidden: Tensor) -> None:
        self.hidden[layer] = hidden
