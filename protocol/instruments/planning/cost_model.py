"""A cost model: seconds and bytes of lanes decoded in batches, from the shape of a model and machine rates.

docs/planning.md derives every formula. There are no tensors: numbers in, numbers out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple

__all__ = [
    "BLOCK",
    "QUANTUM",
    "ArmSeconds",
    "DecodingCost",
    "HostSeconds",
    "LaneKind",
    "MemoryNeed",
    "Rates",
    "Shape",
    "TimeSpent",
    "decoding_cost",
    "lanes_that_fit",
    "memory_need",
    "prefill_seconds",
]

QUANTUM = 16  # capacities are multiples of this many slots: protocol.engine.slots
BLOCK = 128  # attention rows that a signal reads at once: policies.signals


class Shape(NamedTuple):
    """The shape of a model. weights: number of parameters. linear: parameters used for every token, without
    those of the output head. head: parameters of the output head. itemsize: bytes of one parameter.
    """

    layers: int
    q_heads: int
    kv_heads: int
    head_dim: int
    width: int
    intermediate: int
    vocabulary: int
    weights: int
    linear: int
    head: int
    itemsize: int

    @property
    def bytes(self) -> int:
        return self.weights * self.itemsize

    @property
    def slot_bytes(self) -> int:
        """Bytes of a key and a value in all KV heads of all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.itemsize


class ArmSeconds(NamedTuple):
    """Seconds that a policy adds: at the end of the prompt, to each step of a lane, at an eviction.

    Each is (fixed, per layer).
    """

    first: tuple[float, float] = (0.0, 0.0)
    step: tuple[float, float] = (0.0, 0.0)
    event: tuple[float, float] = (0.0, 0.0)


class HostSeconds(NamedTuple):
    """Seconds outside of tensor operations. forward: per forward pass. layer: per layer of it. pool: per
    further pool of lanes and layer. lane: per lane of a forward pass (fixed, per layer). join: per lane that
    joins a batch (fixed, per layer). logit: per logit of a lane that samples. noise: per number of noise,
    which lanes with equal problem, seed and step share. arm: of a policy that evicts.
    """

    forward: float
    layer: float
    pool: float
    lane: tuple[float, float]
    join: tuple[float, float]
    logit: float
    noise: float
    arm: ArmSeconds


class Rates(NamedTuple):
    """Throughput of a device per second. linear: FLOP of linear layers on a prompt. attention: FLOP of its
    causal attention. watched: attention weights of a prompt that a signal reads. rows: FLOP of linear layers
    on one token per lane. weights, cache: bytes of weights and of slots read. load: bytes of weights read
    from disk and hashed. is_asynchronous: whether the host works while the device does. arms: the measured
    arms, by name.
    """

    linear: float
    attention: float
    watched: float
    rows: float
    weights: float
    cache: float
    load: float
    is_asynchronous: bool
    host: HostSeconds
    arms: Mapping[str, ArmSeconds] = MappingProxyType({})

    def arm(self, name: str) -> ArmSeconds:
        return self.arms.get(name, self.host.arm)


class LaneKind(NamedTuple):
    """Lanes of one cell. start: slots after the prompt. budget: slots after an eviction, None if none happens
    while decoding. capacity: slots of a lane at its longest. slot: bytes of a slot in all heads and layers.
    state: most bytes of policy state. evicts: whether it evicts at the end of the prompt.
    """

    arm: str
    seed: int
    start: int
    budget: int | None
    interval: int
    capacity: int
    slot: int
    state: int
    evicts: bool

    def mean_slots(self, tokens: int) -> float:
        """Return the mean number of slots over so many steps."""
        if self.budget is None:
            return self.start + tokens / 2
        grows = self.budget + self.interval - self.start
        if tokens <= grows:
            return self.start + tokens / 2
        return (grows * (self.start + grows / 2) + (tokens - grows) * (self.budget + self.interval / 2)) / tokens

    def count_events(self, tokens: int) -> int:
        """Return the number of evictions while decoding so many tokens."""
        if self.budget is None:
            return 0
        grows = self.budget + self.interval - self.start
        return 0 if tokens < grows else 1 + (tokens - grows) // self.interval


class TimeSpent(NamedTuple):
    """Seconds by cause; they add up to the total."""

    prompts: float = 0.0
    weights: float = 0.0
    slots: float = 0.0
    host: float = 0.0
    sampling: float = 0.0
    events: float = 0.0

    @property
    def total(self) -> float:
        return sum(self)

    def add(self, other: TimeSpent) -> TimeSpent:
        return TimeSpent(*(left + right for left, right in zip(self, other, strict=True)))

    def scale(self, factor: float) -> TimeSpent:
        return TimeSpent(*(factor * seconds for seconds in self))


class DecodingCost(NamedTuple):
    """The cost of a batch. forwards: its forward passes. lane_steps: the sum of steps over its lanes."""

    spent: TimeSpent
    forwards: int
    lane_steps: int


def prefill_seconds(shape: Shape, rates: Rates, tokens: int, watched: int) -> float:
    """Return seconds of one prompt. watched: last attention rows that signals read in each layer."""
    linear = max(2 * (shape.linear * tokens + shape.head) / rates.linear, shape.bytes / rates.weights)
    causal = 2 * shape.layers * shape.q_heads * shape.head_dim * tokens**2 / rates.attention
    rows = min(watched, tokens)
    watching = shape.layers * shape.q_heads * (rows * tokens - rows**2 / 2) / rates.watched
    host = rates.host.forward + shape.layers * rates.host.layer
    return (max(linear + causal, host) if rates.is_asynchronous else linear + causal + host) + watching


def joining_seconds(shape: Shape, rates: Rates, kind: LaneKind) -> float:
    """Return seconds for one lane to join a batch, including its first eviction."""
    first = rates.arm(kind.arm).first if kind.evicts else (0.0, 0.0)
    return sum(base + shape.layers * per_layer for base, per_layer in (rates.host.join, first))


def decoding_cost(
    shape: Shape,
    rates: Rates,
    lanes: Sequence[tuple[LaneKind, int, int]],
    at_once: int,
    samples: bool,
) -> DecodingCost:
    """Return the cost of one batch: lanes (kind, problem, tokens) in the order in which they join, `at_once`
    at a time; a lane that ends is replaced by the next. samples: whether tokens are sampled, not greedy.
    """
    waiting = deque(lanes)
    running: list[list[int]] = []  # [steps left, index in rows]
    rows: list[tuple[float, float, float, tuple[int, int], tuple[int, int]]] = []
    spent, forwards, lane_steps, host = TimeSpent(), 0, 0, rates.host
    while waiting or running:
        while waiting and len(running) < at_once:
            kind, problem, tokens = waiting.popleft()
            arm = rates.arm(kind.arm) if kind.evicts else ArmSeconds()
            step_seconds = sum(part[0] + shape.layers * part[1] for part in (host.lane, arm.step))
            event = kind.count_events(tokens) * (arm.event[0] + shape.layers * arm.event[1])
            spent = spent.add(TimeSpent(prompts=joining_seconds(shape, rates, kind), events=event))
            pool = (kind.capacity, kind.slot)
            rows.append((kind.mean_slots(tokens) * kind.slot, step_seconds, 0.0, pool, (problem, kind.seed)))
            running.append([max(1, tokens), len(rows) - 1])
        now = [rows[number] for _, number in running]
        count, stepped = len(now), min(left for left, _ in running)
        pools, drawn = len({row[3] for row in now}), len({row[4] for row in now})
        linear = 2 * count * (shape.linear + shape.head) / rates.rows
        reading = shape.bytes / rates.weights
        weights, slots = max(linear, reading), sum(row[0] for row in now) / rates.cache
        launches = host.forward + shape.layers * (host.layer + (pools - 1) * host.pool)
        if rates.is_asynchronous:
            launches = max(0.0, launches - weights - slots)
        lane_seconds = sum(row[1] for row in now)
        sampling = shape.vocabulary * (count * host.logit + drawn * host.noise) if samples else 0.0
        step = TimeSpent(weights=weights, slots=slots, host=launches + lane_seconds, sampling=sampling)
        spent = spent.add(step.scale(stepped))
        forwards += stepped
        lane_steps += stepped * count
        running = [[left - stepped, number] for left, number in running if left > stepped]
    return DecodingCost(spent, forwards, lane_steps)


class MemoryNeed(NamedTuple):
    """Bytes on one device. prompt: the peak of a prefill, with the slots of the waiting prompt. step, event:
    what each lane of a forward pass, and one eviction, need in addition to slots.
    """

    weights: int
    prompt: int
    lanes: tuple[int, ...]  # slots and state of each lane of a batch, largest first
    step: int  # per lane
    event: int

    def bytes(self, lanes: int) -> int:
        """Return the bytes with the largest `lanes` lanes of a batch at once. A pool is copied layer by layer
        as it grows, so one layer exists twice.
        """
        lane_bytes = sum(self.lanes[:lanes])
        return self.weights + lane_bytes + max(self.prompt, self.event) + lanes * self.step


def memory_need(
    shape: Shape,
    prompt: int,
    chunk: int | None,
    lanes: Sequence[LaneKind],
    *,
    signals: int,
    watches: bool,
    raw: bool,
) -> MemoryNeed:
    """Return the memory of a batch of these lanes, with prompts of at most `prompt` tokens, fed `chunk` at a
    time. signals: how many read the attention of a prompt. watches: whether one reads that of new tokens;
    raw: also their logits.
    """
    fed = min(prompt, chunk or prompt)
    dim, float_bytes = shape.head_dim, 4  # bytes of float32, the dtype in which attention is read
    activations = fed * shape.itemsize * (3 * shape.intermediate + 8 * shape.width)
    mask = 512 * prompt if fed < prompt else 0
    reading = float_bytes * (3 * BLOCK * shape.q_heads * prompt + 8 * shape.kv_heads * prompt * dim) * bool(signals)
    logits = shape.vocabulary * (2 * shape.itemsize + 3 * 8)
    waits = prompt * shape.slot_bytes
    states = 2 * float_bytes * shape.layers * shape.q_heads * prompt * signals
    sizes = sorted((kind.capacity * kind.slot + kind.state for kind in lanes), reverse=True)
    most = max(kind.capacity for kind in lanes)
    copied = -(-sum(sizes[:1]) // max(1, shape.layers))  # a layer of a lane exists twice while a pool grows
    attention_bytes = float_bytes * shape.layers * shape.q_heads * most * ((4 if raw else 2) if watches else 0)
    token = shape.itemsize * (3 * shape.intermediate + 6 * shape.width)
    step = logits + attention_bytes + token + copied
    event = 3 * (sizes[0] if sizes else 0)
    return MemoryNeed(shape.bytes, activations + mask + reading + logits + waits + states, tuple(sizes), step, event)


def lanes_that_fit(needed: MemoryNeed, memory: float) -> int:
    """Return how many lanes of a batch fit at once, whichever they are; 0 if none does."""
    fixed = needed.weights + max(needed.prompt, needed.event)
    totals = accumulate(needed.lanes)
    too_many = (count for count, size in enumerate(totals, 1) if fixed + size + count * needed.step > memory)
    return next(too_many, len(needed.lanes) + 1) - 1
