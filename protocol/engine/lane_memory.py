"""The memory of a lane: what it carries besides its slots, for a policy that evicts while decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from policies import (
    AttentionSignal,
    CacheSignal,
    Event,
    Fed,
    FedSignal,
    HiddenSignal,
    Policy,
    Remembered,
    Rotation,
    Rows,
    Signal,
)
from policies.signals import product, shares, wide
from protocol.engine import merging
from protocol.engine.forms import VERBATIM, Form
from protocol.engine.slots import Cached

AT_ONCE = 4
"""Tokens whose hidden states, or keys and values, are folded together: folding four costs as much as folding
one. Pending tokens count as state.
"""


@dataclass
class Waiting:
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
    """The memory of a lane. Per-slot tensors have a column for each slot, in slot order, and are compacted
    with them.

    positions: [layer, kv_head, n] int64 of the slots at the last eviction; -1 beyond the slots of a head.
    Later slots have consecutive positions from `evicted_at` on.

    evicted_at: tokens fed at the last eviction.

    prompt: tokens of the prompt, including a question that is fed later. rotation: of the model.

    layers: those whose attention some signal sums. raw: whether one of these signals reads logits.

    sums: states of attention signals without a window, stacked over the layers that they read; None if a
    signal has just restarted.

    traces: states of hidden signals, by layer. fed_states: of signals of keys and values, stacked over the
    layers that they read.

    pending: tokens that are not folded yet, fewer than FOLD_SIZE.

    recent: [layer, q_head, w, d], queries of the last tokens, for attention signals with a window; the query
    of position p is in column p % w.

    scale: the factor of the attention logits. sinks: by layer, as an observer receives them.

    remembered: what the scoring stored about the slots at the last eviction. routed: what the routing
    carries.
    """

    positions: Tensor
    fed: int
    scale: float
    prompt: int
    rotation: Rotation | None = None
    layers: tuple[int, ...] = ()
    raw: bool = False
    sums: dict[AttentionSignal, Any] = field(default_factory=dict)
    traces: dict[HiddenSignal, dict[int, Any]] = field(default_factory=dict)
    fed_states: dict[FedSignal, Any] = field(default_factory=dict)
    waiting: Waiting = field(default_factory=Waiting)
    recent: Tensor | None = None
    remembered: Remembered | None = None
    routed: Any = None
    sinks: Mapping[int, Tensor] = field(default_factory=dict)

    def bytes(self) -> int:
        folded = (*self.sums.values(), *self.fed_states.values())
        traced = (state for states in self.traces.values() for state in states.values())
        states = (self.positions, self.recent, self.routed, *folded, *traced)
        remembered = () if self.remembered is None else self.remembered.tensors()
        return self.waiting.bytes() + sum(tensor.nbytes for tensor in (*tensors(states), *remembered))

    def again(self) -> Memory:
        """Return a copy for another lane with the same start; tensors that are updated in place are copied.
        """
        traces = {signal: dict(states) for signal, states in self.traces.items()}
        recent = None if self.recent is None else self.recent.clone()
        own = replace(self, sums=dict(self.sums), traces=traces, fed_states=dict(self.fed_states))
        return replace(own, waiting=Waiting(), recent=recent)

    def add(self, rows: Rows, layers: Sequence[int]) -> None:
        """Fold the attention [layer, q_head, t, n] of new tokens. layers: the layers of the first axis."""
        for signal, before in self.sums.items():
            read = [index for index, layer in enumerate(layers) if signal.reads(layer)]
            own = rows
            if len(read) < len(layers):  # most signals read every layer, which needs no copy
                logits = None if rows.logits is None else rows.logits[read]
                own = rows._replace(attention=rows.attention[read], logits=logits, layer=layers[read[0]])
            self.sums[signal] = signal.attend(own, before)

    def note(self, queries: Tensor, seen: int) -> None:
        """Store queries [layer, q_head, t, d], the last of which has position n_fed - 1."""
        assert self.recent is not None
        width = self.recent.shape[2]
        count = min(width, queries.shape[2])
        column = torch.arange(seen - count, seen, device=queries.device) % width
        self.recent[:, :, column] = queries[:, :, queries.shape[2] - count :]

    def see(self, layer: int, hidden: Tensor) -> None:
        """Add hidden [t, width], the output of a decoder layer for the new tokens."""
        if any(layer in states for states in self.traces.values()):
            waiting = self.waiting.hidden.setdefault(layer, [])
            waiting.append(hidden)
            if len(waiting) == AT_ONCE:
                self.fold_hidden(layer)

    def take(self, keys: Tensor, values: Tensor, queries: Tensor, seen: int) -> None:
        """Add keys and values [layer, kv_head, t, d] and queries [layer, q_head, t, d] of new tokens, the
        first at position n_fed.
        """
        if not self.waiting.keys:
            self.waiting.start = seen
        self.waiting.keys.append(keys)
        self.waiting.values.append(values)
        self.waiting.queries.append(queries)
        if len(self.waiting.keys) == AT_ONCE:
            self.fold_fed()

    def fold(self) -> None:
        """Fold the pending tokens."""
        for layer in list(self.waiting.hidden):
            self.fold_hidden(layer)
        self.fold_fed()

    def fold_hidden(self, layer: int) -> None:
        hidden = torch.cat(self.waiting.hidden.pop(layer))
        for signal, states in self.traces.items():
            if layer in states:
                states[layer] = signal.change(hidden, states[layer])

    def fold_fed(self) -> None:
        if not self.waiting.keys:
            return
        waiting = (self.waiting.keys, self.waiting.values, self.waiting.queries)
        whole = [torch.cat(forwards, -2) for forwards in waiting]
        for signal, before in self.fed_states.items():
            read = layers_of(signal, len(whole[0]))
            # Most signals read every layer, which needs no copy.
            keys, values, queries = whole if len(read) == len(whole[0]) else [part[read] for part in whole]
            fed = Fed(keys, values, self.waiting.start, self.prompt, queries, self.rotation)
            self.fed_states[signal] = signal.fold(fed, before)
        self.waiting.keys, self.waiting.values, self.waiting.queries = [], [], []

    def stored(self, seen: int, slots: int) -> Tensor:
        """Return [layer, kv_head, slots], the position of every slot when `n_fed` tokens have been fed."""
        return grown(self.positions, self.fed, seen, slots)

    def compact(self, event: Event, stored: Tensor, seen: int) -> None:
        """Keep the columns of the slots that an eviction kept, with those merged into them.

        positions [layer, kv_head, n].
        """
        kept = event.kept
        counts = kept.sum(-1, keepdim=True)
        columns = int(counts.max())
        # False sorts before True: the kept slots first, each group in its order.
        order = (~kept).to(torch.uint8).argsort(dim=-1, stable=True)[..., :columns]
        within = torch.arange(columns, device=kept.device) < counts
        self.positions = stored.gather(-1, order).masked_fill(~within, -1)
        self.fed, self.remembered, self.routed = seen, event.memory, event.routed
        for signal, state in self.sums.items():
            if signal.of_tokens:
                continue
            read = layers_of(signal, len(kept))
            if event.merging is not None and not signal.afresh:
                state = every(merging.sums_of(event.merging.into[read]), state)
            self.sums[signal] = None if signal.afresh else every(columns_of(order[read], within[read]), state)


def grown(positions: Tensor, fed: int | Tensor, seen: int | Tensor, slots: int) -> Tensor:
    """Return [..., layer, kv_head, slots]: `positions` [..., layer, kv_head, n], with -1 beyond the slots of
    a head, and the positions of the tokens from `evicted_at` up to `n_fed`. For several lanes both are [lane,
    1, 1, 1].
    """
    before = (positions >= 0).sum(-1, keepdim=True)
    new = fed + torch.arange(slots, device=before.device) - before
    since = torch.where(new < seen, new, -1)
    old = pad(positions, (0, slots - positions.shape[-1]), value=-1)
    return torch.where(new < fed, old, since)


def begin(
    policy: Policy,
    states: Mapping[Signal, Sequence[Any]],
    recent: Sequence[Tensor],
    event: Event,
    seen: int,
    scale: float,
    prompt: int,
    rotation: Rotation | None,
    sinks: Mapping[int, Tensor] = MappingProxyType({}),
) -> Memory:
    """Return the memory after the first eviction. states, recent: of the prefill. prompt: its total tokens.
    """
    memory = Memory(torch.empty(0), 0, scale, prompt, rotation, sinks=sinks)
    for signal in policy.needs:
        if isinstance(signal, HiddenSignal):
            memory.traces[signal] = {
                layer: state for layer, state in enumerate(states[signal]) if state is not None
            }
        elif isinstance(signal, FedSignal):
            memory.fed_states[signal] = stacked([state for state in states[signal] if state is not None])
        elif isinstance(signal, AttentionSignal) and signal.window is None:
            memory.sums[signal] = (
                None if signal.afresh else stacked([state for state in states[signal] if state is not None])
            )
    read = {layer for signal in memory.sums for layer in layers_of(signal, len(event.kept))}
    memory.layers = tuple(sorted(read))
    memory.raw = any(signal.raw for signal in memory.sums)
    if width := queries_kept(policy):
        last = torch.stack(list(recent))
        memory.recent = last.new_zeros(*last.shape[:2], width, last.shape[-1])
        memory.note(last, seen)
    stored = torch.arange(seen, device=event.kept.device).expand(event.kept.shape)
    memory.compact(event, stored, seen)
    return memory


def measured(
    memory: Memory,
    policy: Policy,
    stored: Tensor,
    seen: int,
    cached: Sequence[Cached],
    form: Form = VERBATIM,
) -> dict[Signal, Any]:
    """Return every signal that the policy needs at an eviction, except calibrated ones, as a View stores it.

    positions [layer, kv_head, n] of the slots. cached: the slots of each layer, in this storage format.
    """
    layers, signals = range(len(stored)), dict[Signal, Any]()
    memory.fold()
    for signal in policy.needs:
        if isinstance(signal, HiddenSignal):
            signals[signal] = tuple(map(memory.traces[signal].get, layers))
        elif isinstance(signal, FedSignal):
            state, read = memory.fed_states[signal], layers_of(signal, len(layers))
            of_layer = {
                layer: signal.result(every(itemgetter(index), state)) for index, layer in enumerate(read)
            }
            signals[signal] = tuple(map(of_layer.get, layers))
        elif isinstance(signal, CacheSignal):
            signals[signal] = tuple(
                signal.summarise(layer, own.keys, form.decoded(layer, own.values), stored[layer] >= 0)
                for layer, own in enumerate(cached)
            )
        elif isinstance(signal, AttentionSignal):
            of_layer = dict[int, Any]()
            for index, layer in enumerate(layers_of(signal, len(layers))):
                if signal.window is not None:
                    own, recent = cached[layer], memory.recent
                    assert recent is not None
                    mass = own.weights if form.mass else None
                    last = positions_of(seen, signal.window, recent)
                    rows = recent_rows(
                        memory, layer, recent[layer], last, seen, stored[layer], own.keys, mass
                    )
                    state = signal.attend(rows, None)
                elif signal.afresh:
                    state = memory.sums[signal]
                else:
                    state = every(itemgetter(index), memory.sums[signal])
                of_layer[layer] = signal.result(state)
            signals[signal] = tuple(map(of_layer.get, layers))
    return signals


def positions_of(seen: int, window: int, recent: Tensor) -> Tensor:
    """Return [row], the positions of the last `window` tokens, or of as many as are stored."""
    return torch.arange(max(0, seen - min(window, recent.shape[-2])), seen, device=recent.device)


def recent_rows(
    memory: Memory,
    layer: int,
    recent: Tensor,
    own: Tensor,
    seen: int,
    stored: Tensor,
    keys: Tensor,
    mass: Tensor | None = None,
) -> Rows:
    """Return the attention of the last tokens over the retained slots.

    recent [q_head, w, d]: stored queries of this layer; query_positions [row]: positions of the tokens;
    positions [kv_head, n], keys [kv_head, n, d]. For several lanes each has a leading lane axis, and memory
    and n_fed are those of one of the lanes. weights [kv_head, n]: the number of tokens that each slot
    represents, where it is added to the logits. A query does not attend to slots of later positions; its row
    is 0 if no slot is left for it, since even its own slot was evicted.
    """
    kv_heads = keys.shape[-3]
    queries = recent.take_along_dim((own % recent.shape[-2])[..., None, :, None], -2)
    heads, rows, dim = queries.shape[-3:]
    packed = wide(queries).mul(memory.scale).reshape(*queries.shape[:-3], kv_heads, -1, dim)
    logits = product(packed, wide(keys).transpose(-1, -2), 1)
    if mass is not None:
        logits += mass.to(logits.dtype).log()[:, None]
    stored = stored[..., None, :]
    visible = (stored >= 0) & (stored <= own[..., None, :, None])  # [..., kv_head, row, n]
    visible = visible.repeat_interleave(heads // kv_heads, -3)
    logits = logits.view(visible.shape).masked_fill(~visible, -torch.inf)
    sinks = memory.sinks.get(layer)
    attention = shares(logits, None if sinks is None else sinks[:, None, None]).masked_fill(~visible, 0.0)
    first = seen - rows
    return Rows(attention, layer, first, seen, kv_heads, first >= memory.prompt, logits)


def queries_kept(policy: Policy) -> int:
    """Return how many of the last queries the lanes of a policy store: its widest window, 0 without an
    interval.
    """
    if policy.cadence.interval is None:
        return 0
    signals = (signal for signal in policy.needs if isinstance(signal, AttentionSignal))
    return max((signal.window or 0 for signal in signals), default=0)


def layers_of(signal: AttentionSignal | FedSignal, layers: int) -> list[int]:
    return [layer for layer in range(layers) if signal.reads(layer)]


def every(change: Callable[[Tensor], Tensor], state: Any) -> Any:
    """Apply `change` to every tensor of a state, which is a tensor or a (named) tuple of states."""
    if isinstance(state, Tensor):
        return change(state)
    if isinstance(state, tuple):
        parts = [every(change, part) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    return state


def tensors(state: Any) -> Iterator[Tensor]:
    """Yield every tensor of a state."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from tensors(part)


def stacked(states: Sequence[Any]) -> Any:
    """Stack one state per layer into one state: every tensor gets a leading axis."""
    if isinstance(states[0], Tensor):
        return torch.stack(list(states))
    parts = [stacked(column) for column in zip(*states, strict=True)]
    return type(states[0])(*parts) if hasattr(states[0], "_fields") else tuple(parts)


def columns_of(order: Tensor, within: Tensor) -> Callable[[Tensor], Tensor]:
    """Return a function that selects columns order [..., layer, kv_head, k] of a [..., layer, head, n]
    tensor, 0 where `is_stored` is False.

    Raises ValueError for a tensor with one head if heads store different slots.
    """

    def chosen(tensor: Tensor) -> Tensor:
        heads, own = order.shape[-2], tensor.shape[-2]
        if own < heads:
            if (order != order[..., :1, :]).any():
                raise ValueError("one state for all heads of a layer, but they hold different slots")
            return tensor.gather(-1, order[..., :1, :]).masked_fill(~within[..., :1, :], 0)
        column = order.repeat_interleave(own // heads, -2)
        inside = within.repeat_interleave(own // heads, -2)
        return tensor.gather(-1, column).masked_fill(~inside, 0)

    return chosen
