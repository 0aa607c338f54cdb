"""The memory of a lane: what it carries besides its slots, for a policy that evicts while decoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from policies import (
    AttentionRows,
    AttentionSignal,
    CacheSignal,
    Eviction,
    FedSignal,
    FedTokens,
    HiddenSignal,
    Policy,
    Rotation,
    ScoringMemory,
    Signal,
)
from policies.signals import lane_matmul, softmax_with_sink, upcast
from protocol.engine import merging
from protocol.engine.own_parts import copy_for, count_bytes, has_own_part, is_ours, map_tensors
from protocol.engine.slots import CachedSlots

FOLD_SIZE = 4
"""Tokens whose hidden states, or keys and values, are folded together: folding four costs as much as folding
one. Pending tokens count as state.
"""


@dataclass
class PendingTokens:
    """New tokens that are not folded yet.

    hidden: by layer, a tensor [t, width] for each forward pass. keys, values, queries: [layer, head, t, d]
    for each forward pass. start: position of the first of these tokens.
    """

    hidden: dict[int, list[Tensor]] = field(default_factory=dict)
    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    queries: list[Tensor] = field(default_factory=list)
    start: int = 0

    def bytes(self) -> int:
        hidden = (tensor for forwards in self.hidden.values() for tensor in forwards)
        return sum(tensor.nbytes for tensor in (*hidden, *self.keys, *self.values, *self.queries))


@dataclass
class Memory:
    """The memory of a lane. Per-slot tensors have a column for each slot, in slot order, and are compacted with them.

    positions: [layer, kv_head, n] int64 of the slots at the last eviction; -1 beyond the slots of a head.
    Later slots have consecutive positions from `evicted_at` on.

    evicted_at: tokens fed at the last eviction.

    prompt: tokens of the prompt, including a question that is fed later. rotation: of the model.

    layers: those whose attention some signal sums. raw: whether one of these signals reads logits.

    sums: states of attention signals without a window, stacked over the layers that they read; None if a
    signal has just restarted.

    traces: states of hidden signals, by layer. fed_states: of signals of keys and values, stacked over the
    layers that they read.

    pending: tokens that are not folded yet, fewer than FOLD_SIZE. peak: the most bytes just before they
    were folded, since the last eviction.

    recent: [layer, q_head, w, d], queries of the last tokens, for attention signals with a window; the query
    of position p is in column p % w.

    scale: the factor of the attention logits. sinks: by layer, as an observer receives them.

    remembered: what the scoring stored about the slots at the last eviction. routed: what the routing carries.

    is_own: whether a part of the policy is not of this project.
    """

    positions: Tensor
    evicted_at: int
    scale: float
    prompt: int
    rotation: Rotation | None = None
    layers: tuple[int, ...] = ()
    raw: bool = False
    sums: dict[AttentionSignal, Any] = field(default_factory=dict)
    traces: dict[HiddenSignal, dict[int, Any]] = field(default_factory=dict)
    fed_states: dict[FedSignal, Any] = field(default_factory=dict)
    pending: PendingTokens = field(default_factory=PendingTokens)
    peak: int = 0
    recent: Tensor | None = None
    remembered: ScoringMemory | None = None
    routed: Any = None
    sinks: Mapping[int, Tensor] = field(default_factory=dict)
    is_own: bool = False

    def bytes(self) -> int:
        folded = (*self.sums.items(), *self.fed_states.items())
        folded += tuple((signal, state) for signal, states in self.traces.items() for state in states.values())
        kept = sum(count_bytes(state, is_own=not is_ours(type(signal))) for signal, state in folded)
        handed_on = sum(count_bytes(state, is_own=self.is_own) for state in (self.remembered, self.routed))
        return self.pending.bytes() + count_bytes((self.positions, self.recent), is_own=False) + kept + handed_on

    @property
    def hidden_layers(self) -> set[int]:
        """The layers of full attention whose output it folds."""
        return {layer for states in self.traces.values() for layer in states}

    def copy(self) -> Memory:
        """Return a copy for another lane with the same start; tensors that are updated in place are copied."""
        traces = {signal: dict(states) for signal, states in self.traces.items()}
        recent = None if self.recent is None else self.recent.clone()
        copied = replace(self, sums=dict(self.sums), traces=traces, fed_states=dict(self.fed_states))
        return replace(copied, pending=PendingTokens(), peak=0, recent=recent)

    def add_attention(self, rows: AttentionRows, layers: Sequence[int]) -> None:
        """Fold the attention [layer, q_head, t, n] of new tokens. layers: the layers of the first axis."""
        for signal, state in self.sums.items():
            indices = [index for index, layer in enumerate(layers) if signal.reads(layer)]
            signal_rows = rows
            if len(indices) < len(layers):  # most signals read every layer, which needs no copy
                logits = None if rows.logits is None else rows.logits[indices]
                signal_rows = rows._replace(attention=rows.attention[indices], logits=logits, layer=layers[indices[0]])
            self.sums[signal] = signal.attend(copy_for(signal, signal_rows), state)

    def add_queries(self, queries: Tensor, n_fed: int) -> None:
        """Store queries [layer, q_head, t, d], the last of which has position n_fed - 1."""
        assert self.recent is not None
        width = self.recent.shape[2]
        count = min(width, queries.shape[2])
        column = torch.arange(n_fed - count, n_fed, device=queries.device) % width
        self.recent[:, :, column] = queries[:, :, queries.shape[2] - count :]

    def add_hidden(self, layer: int, hidden: Tensor) -> None:
        """Add hidden [t, width], the output of a decoder layer for the new tokens."""
        if any(layer in states for states in self.traces.values()):
            pending = self.pending.hidden.setdefault(layer, [])
            pending.append(hidden.clone())  # a view would hold the output of the whole batch
            if len(pending) == FOLD_SIZE:
                self.fold_hidden(layer)
            self.record_peak(len(pending))

    def add_fed(self, keys: Tensor, values: Tensor, queries: Tensor, n_fed: int) -> None:
        """Add keys, values [layer, kv_head, t, d] and queries [layer, q_head, t, d] of new tokens from n_fed on."""
        if not self.pending.keys:
            self.pending.start = n_fed
        self.pending.keys.append(keys.clone())
        self.pending.values.append(values.clone())
        self.pending.queries.append(queries.clone())
        if len(self.pending.keys) == FOLD_SIZE:
            self.fold_fed()
        self.record_peak(len(self.pending.keys))

    def record_peak(self, pending: int) -> None:
        """Record the bytes of the memory if the next token is folded with those that are pending."""
        if pending == FOLD_SIZE - 1:
            self.peak = max(self.peak, self.bytes())

    def fold(self) -> None:
        """Fold the pending tokens."""
        for layer in list(self.pending.hidden):
            self.fold_hidden(layer)
        self.fold_fed()

    def fold_hidden(self, layer: int) -> None:
        hidden = torch.cat(self.pending.hidden.pop(layer))
        for signal, states in self.traces.items():
            if layer in states:
                states[layer] = signal.change(copy_for(signal, hidden), states[layer])

    def fold_fed(self) -> None:
        if not self.pending.keys:
            return
        pending = (self.pending.keys, self.pending.values, self.pending.queries)
        tensors_fed = [torch.cat(forwards, -2) for forwards in pending]
        for signal, state in self.fed_states.items():
            layers = layers_read_by(signal, len(tensors_fed[0]))
            # Most signals read every layer, which needs no copy.
            keys, values, queries = (
                tensors_fed if len(layers) == len(tensors_fed[0]) else [part[layers] for part in tensors_fed]
            )
            fed = FedTokens(keys, values, self.pending.start, self.prompt, queries, self.rotation)
            self.fed_states[signal] = signal.fold(copy_for(signal, fed), state)
        self.pending.keys, self.pending.values, self.pending.queries = [], [], []

    def slot_positions(self, n_fed: int, slots: int) -> Tensor:
        """Return [layer, kv_head, slots], the position of every slot when `n_fed` tokens have been fed."""
        return extend_positions(self.positions, self.evicted_at, n_fed, slots)

    def compact(self, event: Eviction, positions: Tensor, n_fed: int, retained: Tensor) -> None:
        """Keep the columns of the slots that an eviction kept, with those merged into them.

        positions [layer, kv_head, n]. retained [layer, kv_head], the slots kept, on the CPU.
        """
        mask, columns = event.retained, int(retained.max())
        counts = mask.sum(-1, keepdim=True)
        # False sorts before True: the kept slots first, each group in its order.
        order = (~mask).to(torch.uint8).argsort(dim=-1, stable=True)[..., :columns]
        is_stored = torch.arange(columns, device=mask.device) < counts
        self.positions = positions.gather(-1, order).masked_fill(~is_stored, -1)
        self.evicted_at, self.remembered, self.routed = n_fed, event.memory, event.routing_state
        self.peak = 0
        is_unchanged = event.merging is None and int(retained.min()) == mask.shape[-1]
        for signal, state in self.sums.items():
            if signal.of_tokens or (is_unchanged and not signal.afresh and is_ours(type(signal))):
                continue
            layers = layers_read_by(signal, len(mask))
            own = (order, is_stored) if len(layers) == len(mask) else (order[layers], is_stored[layers])
            if event.merging is not None and not signal.afresh:
                state = map_tensors(merging.sum_merger(event.merging.targets[layers]), state)
            self.sums[signal] = None if signal.afresh else map_tensors(column_selector(*own), state)


def extend_positions(positions: Tensor, evicted_at: int | Tensor, n_fed: int | Tensor, slots: int) -> Tensor:
    """Return [..., layer, kv_head, slots]: `positions` [..., layer, kv_head, n], with -1 beyond the slots of a head,
    and the positions of the tokens from `evicted_at` up to `n_fed`. For several lanes both are [lane, 1, 1, 1].
    """
    n_retained = (positions >= 0).sum(-1, keepdim=True)
    new = evicted_at + torch.arange(slots, device=n_retained.device) - n_retained
    since = torch.where(new < n_fed, new, -1)
    old = pad(positions, (0, slots - positions.shape[-1]), value=-1)
    return torch.where(new < evicted_at, old, since)


def begin_memory(
    policy: Policy,
    states: Mapping[Signal, Sequence[Any]],
    stacked: dict[Signal, Any],
    recent: Sequence[Tensor],
    event: Eviction,
    n_fed: int,
    scale: float,
    prompt: int,
    rotation: Rotation | None,
    sinks: Mapping[int, Tensor] = MappingProxyType({}),
) -> Memory:
    """Return the memory after the first eviction. states, recent: of the prefill. prompt: its total tokens.

    stacked: the stacked states of signals that are ours, which the memories of one prompt share; grows.
    """
    memory = Memory(torch.empty(0), 0, scale, prompt, rotation, sinks=sinks, is_own=has_own_part(policy))
    for signal in policy.needs:
        if isinstance(signal, HiddenSignal):
            memory.traces[signal] = {layer: state for layer, state in enumerate(states[signal]) if state is not None}
        elif isinstance(signal, FedSignal):
            memory.fed_states[signal] = stack_states([state for state in states[signal] if state is not None])
        elif isinstance(signal, AttentionSignal) and signal.window is None:
            ours = stacked if is_ours(type(signal)) else {}
            if signal not in ours and not signal.afresh:
                ours[signal] = stack_states([state for state in states[signal] if state is not None])
            memory.sums[signal] = ours.get(signal)
    layers = {layer for signal in memory.sums for layer in layers_read_by(signal, len(event.retained))}
    memory.layers = tuple(sorted(layers))
    memory.raw = any(signal.raw for signal in memory.sums)
    if width := n_recent_queries(policy):
        last = torch.stack(list(recent))
        memory.recent = last.new_zeros(*last.shape[:2], width, last.shape[-1])
        memory.add_queries(last, n_fed)
    positions = torch.arange(n_fed, device=event.retained.device).expand(event.retained.shape)
    memory.compact(event, positions, n_fed, event.retained.sum(-1).cpu())
    return memory


def measure_signals(
    memory: Memory,
    policy: Policy,
    positions: Tensor,
    n_fed: int,
    cached: Sequence[CachedSlots],
    weighs_logits: bool = False,
) -> dict[Signal, Any]:
    """Return every signal that the policy needs at an eviction, except calibrated ones, as a View stores it.

    positions [layer, kv_head, n] of the slots. cached: the slots of each layer, decoded. weighs_logits: whether their
    weights count in the attention logits.
    """
    layers, signals = range(len(positions)), dict[Signal, Any]()
    memory.fold()
    for signal in policy.needs:
        if isinstance(signal, HiddenSignal):
            signals[signal] = tuple(map(memory.traces[signal].get, layers))
        elif isinstance(signal, FedSignal):
            state, layers_read = memory.fed_states[signal], layers_read_by(signal, len(layers))
            of_layer = {
                layer: signal.result(map_tensors(itemgetter(index), state)) for index, layer in enumerate(layers_read)
            }
            signals[signal] = tuple(map(of_layer.get, layers))
        elif isinstance(signal, CacheSignal):
            signals[signal] = tuple(
                signal.summarise(layer, *copy_for(signal, (slots.keys, slots.values)), positions[layer] >= 0)
                for layer, slots in enumerate(cached)
            )
        elif isinstance(signal, AttentionSignal):
            of_layer = dict[int, Any]()
            for index, layer in enumerate(layers_read_by(signal, len(layers))):
                if signal.window is not None:
                    slots, recent = cached[layer], memory.recent
                    assert recent is not None
                    weights = slots.weights if weighs_logits else None
                    span = recent_span(n_fed, signal.window, recent)
                    last = torch.arange(span.start, span.stop, device=recent.device)
                    rows = recent_attention(
                        memory, layer, recent[layer], last, n_fed, positions[layer], slots.keys, weights
                    )
                    state = signal.attend(copy_for(signal, rows), None)
                elif signal.afresh:
                    state = memory.sums[signal]
                else:
                    state = map_tensors(itemgetter(index), memory.sums[signal])
                of_layer[layer] = signal.result(state)
            signals[signal] = tuple(map(of_layer.get, layers))
    return signals


def recent_span(n_fed: int, window: int, recent: Tensor) -> range:
    """Return the positions of the last `window` tokens, or of as many as are stored."""
    return range(max(0, n_fed - min(window, recent.shape[-2])), n_fed)


def recent_attention(
    memory: Memory,
    layer: int,
    recent: Tensor,
    query_positions: Tensor,
    n_fed: int,
    positions: Tensor,
    keys: Tensor,
    weights: Tensor | None = None,
) -> AttentionRows:
    """Return the attention of the last tokens over the retained slots.

    recent [q_head, w, d]: stored queries of this layer; query_positions [row]: positions of the tokens;
    positions [kv_head, n], keys [kv_head, n, d]. For several lanes each has a leading lane axis, and memory
    and n_fed are those of one of the lanes. weights [kv_head, n]: the number of tokens that each slot
    represents, where it is added to the logits. A query does not attend to slots of later positions; its row
    is 0 if no slot is left for it, since even its own slot was evicted.
    """
    kv_heads = keys.shape[-3]
    queries = recent.take_along_dim((query_positions % recent.shape[-2])[..., None, :, None], -2)
    heads, rows, dim = queries.shape[-3:]
    packed = upcast(queries).mul(memory.scale).reshape(*queries.shape[:-3], kv_heads, -1, dim)
    logits = lane_matmul(packed, upcast(keys).transpose(-1, -2), 1)
    if weights is not None:
        logits += weights.to(logits.dtype).log()[:, None]
    positions = positions[..., None, :]
    visible = (positions >= 0) & (positions <= query_positions[..., None, :, None])  # [..., kv_head, row, n]
    visible = visible.repeat_interleave(heads // kv_heads, -3)
    logits = logits.view(visible.shape).masked_fill(~visible, -torch.inf)
    sinks = memory.sinks.get(layer)
    attention = softmax_with_sink(logits, None if sinks is None else sinks[:, None, None]).masked_fill(~visible, 0.0)
    first = n_fed - rows
    return AttentionRows(attention, layer, first, n_fed, kv_heads, first >= memory.prompt, logits)


def n_recent_queries(policy: Policy) -> int:
    """Return how many of the last queries the lanes of a policy store: its widest window, 0 without an interval."""
    if policy.cadence.interval is None:
        return 0
    signals = (signal for signal in policy.needs if isinstance(signal, AttentionSignal))
    return max((signal.window or 0 for signal in signals), default=0)


def layers_read_by(signal: AttentionSignal | FedSignal, layers: int) -> list[int]:
    return [layer for layer in range(layers) if signal.reads(layer)]


def stack_states(states: Sequence[Any]) -> Any:
    """Stack one state per layer into one state: every tensor gets a leading axis."""
    if isinstance(states[0], Tensor):
        return torch.stack(list(states))
    parts = [stack_states(column) for column in zip(*states, strict=True)]
    return type(states[0])(*parts) if hasattr(states[0], "_fields") else tuple(parts)


def column_selector(order: Tensor, is_stored: Tensor) -> Callable[[Tensor], Tensor]:
    """Return a function that selects columns order [..., layer, kv_head, k] of a [..., layer, head, n]
    tensor, 0 where `is_stored` is False.

    Raises ValueError for a tensor with one head if heads store different slots.
    """

    def select(tensor: Tensor) -> Tensor:
        heads, tensor_heads = order.shape[-2], tensor.shape[-2]
        if tensor_heads < heads:
            if (order != order[..., :1, :]).any():
                raise ValueError(
                    "one state for all heads of a layer needs the same slots in each head, but they differ"
                )
            return tensor.gather(-1, order[..., :1, :]).masked_fill(~is_stored[..., :1, :], 0)
        column = order.repeat_interleave(tensor_heads // heads, -2)
        inside = is_stored.repeat_interleave(tensor_heads // heads, -2)
        return tensor.gather(-1, column).masked_fill(~inside, 0)

    return select
