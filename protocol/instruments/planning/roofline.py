"""A roofline: seconds and bytes of a batch from the operations and bytes that it needs and a machine's rates.

docs/machines.md derives every formula. There are no tensors: numbers in, numbers out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

QUANTUM = 16  # capacities are multiples of this many slots: protocol.engine.slots
BLOCK = 128  # attention rows that a signal reads at once: policies.signals
PADDING = 2  # bytes read for a byte of slots: pools are padded and masked
PASSES = 8  # times that attention weights which a signal reads pass through memory, as float32


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


class Rates(NamedTuple):
    """What a device and its host do. flops, bandwidth: operations and bytes a second, as reached. load: bytes
    of weights a second, read from disk and hashed. is_asynchronous: whether the host works while the device
    does. Seconds of the host, of each layer: layer: of a forward pass; lane: of a lane in it; join: of a lane
    that joins a batch, with its first eviction; event: of a later eviction. logit: seconds per logit of a lane
    that samples; noise: per number of noise, which lanes of one problem, seed and step share.
    """

    flops: float
    bandwidth: float
    load: float
    is_asynchronous: bool
    layer: float
    lane: float
    join: float
    event: float
    logit: float
    noise: float

    def step(self, operations: float, read: float) -> float:
        """Return seconds of tensor operations: an accelerator reads while it computes, a CPU does both in turn."""
        parts = operations / self.flops, read / self.bandwidth
        return max(parts) if self.is_asynchronous else sum(parts)


class LaneKind(NamedTuple):
    """Lanes of one cell. start: slots after the prompt. budget: slots after an eviction, None if none happens
    while decoding. capacity: slots of a lane at its longest. slot: bytes of a slot in all heads and layers.
    state: most bytes of policy state, and of slots held apart. evicts: whether it evicts at the end of the prompt.
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


def prefill_seconds(shape: Shape, rates: Rates, tokens: int, watched: int) -> float:
    """Return seconds of one prompt. watched: last attention rows that signals read in each layer."""
    causal = 2 * shape.layers * shape.q_heads * shape.head_dim * tokens**2
    rows = min(watched, tokens)
    weights_read = shape.layers * shape.q_heads * (rows * tokens - rows**2 / 2)
    device = rates.step(2 * (shape.linear * tokens + shape.head) + causal, shape.bytes)
    host = shape.layers * rates.layer
    return (max(device, host) if rates.is_asynchronous else device + host) + 4 * PASSES * weights_read / rates.bandwidth


def decoding_seconds(
    shape: Shape, rates: Rates, lanes: Sequence[tuple[LaneKind, int]], at_once: int, draws: float | None
) -> TimeSpent:
    """Return seconds of a batch of lanes (kind, new tokens), `at_once` at a time; a lane that ends is replaced
    by the next. draws: noise drawn for each lane and step, since lanes of one problem and seed share it; None
    if the likeliest token is taken.
    """
    lane_steps = sum(tokens for _, tokens in lanes)
    forwards = max(max(tokens for _, tokens in lanes), -(-lane_steps // at_once))
    operations = 2 * lane_steps * (shape.linear + shape.head) / forwards
    weights = rates.step(operations, shape.bytes)
    slots = PADDING * sum(kind.mean_slots(tokens) * kind.slot * tokens for kind, tokens in lanes) / rates.bandwidth
    launches = forwards * shape.layers * rates.layer
    if rates.is_asynchronous:
        launches = max(0.0, launches - forwards * weights - slots)
    drawing = 0.0 if draws is None else shape.vocabulary * lane_steps * (rates.logit + draws * rates.noise)
    return TimeSpent(
        prompts=len(lanes) * shape.layers * rates.join,
        weights=forwards * weights,
        slots=slots,
        host=launches + lane_steps * shape.layers * rates.lane,
        sampling=drawing,
        events=sum(kind.count_events(tokens) for kind, tokens in lanes) * shape.layers * rates.event,
    )


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
        """Return the bytes with the `lanes` largest lanes at once. A pool grows by copies of one layer at a time."""
        lane_bytes = sum(self.lanes[:lanes])
        return self.weights + lane_bytes + max(self.prompt, self.event) + lanes * self.step


def memory_need(
    shape: Shape, prompt: int, chunk: int | None, lanes: Sequence[LaneKind], *, signals: int, watches: bool, raw: bool
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
    copied = -(-sizes[0] // max(1, shape.layers))  # a layer of a lane exists twice while a pool grows
    attention_bytes = float_bytes * shape.layers * shape.q_heads * most * ((4 if raw else 2) if watches else 0)
    token = shape.itemsize * (3 * shape.intermediate + 6 * shape.width)
    step = logits + attention_bytes + token + copied
    prefill = activations + mask + reading + logits + waits + states
    return MemoryNeed(shape.bytes, prefill, tuple(sizes), step, 3 * sizes[0])


def lanes_that_fit(needed: MemoryNeed, memory: float) -> int:
    """Return how many lanes of a batch fit at once, whichever they are; 0 if none does."""
    fixed = needed.weights + max(needed.prompt, needed.event)
    totals = accumulate(needed.lanes)
    too_many = (count for count, size in enumerate(totals, 1) if fixed + size + count * needed.step > memory)
    return next(too_many, len(needed.lanes) + 1) - 1
