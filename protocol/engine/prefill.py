"""The prefill: one context, fed once for all lanes, with the signals of all their policies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from policies import (
    AttentionRows,
    AttentionSignal,
    CacheSignal,
    Calibrated,
    ExtraPromptSignal,
    FedSignal,
    FedTokens,
    HiddenSignal,
    MeasuredSignal,
    OutputSignal,
    Rotation,
    Signal,
)
from policies.signals import BLOCK, AttentionSums, attention_logits, softmax_with_sink, upcast
from protocol.engine.attention import log_sum_exp
from protocol.engine.attention.kernels import Attention, Kernel, choose_attention
from protocol.engine.extra_prompts import measure_extra_prompts
from protocol.engine.native.network import NativeNetwork
from protocol.engine.native_prefill import feed_prompt
from protocol.engine.observation import Observer
from protocol.engine.output_projection import measure_output_signals
from protocol.engine.own_parts import copy_for
from protocol.engine.rotation import rotation_of
from protocol.engine.run_types import Model
from protocol.engine.sliding_windows import Window, attend_sliding
from protocol.engine.slots import CachedSlots
from protocol.formats.refusals import BadInput
from protocol.layers.layer_kinds import layers_of
from protocol.layers.unsupported import refuse

MASKED_ROWS = 512
"""Rows of a later chunk in one call of the fused kernel: the mask of a call is [MASKED_ROWS, n]."""


class Prefilled(NamedTuple):
    """The result of a prefill.

    keys, values: one tensor for each layer of full attention, [kv_head, n, d]; policies see these layers.
    logits: [vocabulary] after the last token. signals: as a View stores them, except calibrated ones. states:
    of folded signals, one entry for each layer, None for a layer that a signal does not read. recent: one
    tensor for each layer, [q_head, w, d], the queries of the last tokens. scale: the factor of the attention
    logits. windows: one for each sliding layer. sinks: by layer, as an observer receives them.
    """

    keys: list[Tensor]
    values: list[Tensor]
    signals: dict[Signal, Any]
    states: dict[Signal, tuple[Any, ...]]
    recent: list[Tensor]
    logits: Tensor
    scale: float
    windows: Sequence[Window] = ()
    sinks: Mapping[int, Tensor] = MappingProxyType({})


class Recorder(Observer):
    """The observer of a prefill: stores keys and values, and folds the signals while it computes attention.

    Rows whose attention is read by a signal are computed in blocks, with output and attention weights from
    one product of queries and keys; all other rows go through the fused kernel. Computing weights in addition
    to the fused kernel takes that product twice. This pays where a `kernel` is available, since on an
    accelerator writing out the weights costs more than a product.
    """

    def __init__(
        self,
        total: int,
        signals: Iterable[Signal],
        recent: int,
        *,
        prompt: int,
        layers: int,
        rotation: Rotation | None = None,
        window: int | None = None,
        kernel: Kernel | None = None,
        all_in_blocks: bool = False,
    ) -> None:
        """prompt: tokens of the prompt, including a question that is fed later; later tokens belong to the
        answer. layers: number of layers that policies see. window: of the sliding layers. all_in_blocks: whether
        rows that no signal reads are computed in blocks, too, so that no number depends on the signals.
        """
        self.kernel = kernel
        self.all_in_blocks = all_in_blocks
        self.total = total
        self.prompt = prompt
        self.layers = range(layers)
        self.rotation = rotation
        self.start = 0  # tokens of earlier chunks
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self.recent: list[Tensor] = []
        self.n_recent = recent
        self.scale = 0.0
        self.workspace: Tensor | None = None
        self.window = window
        self.windows: list[Window] = []
        self.sinks: dict[int, Tensor] = {}
        elsewhere = (ExtraPromptSignal, Calibrated, OutputSignal)
        self.signals = tuple(signal for signal in signals if not isinstance(signal, elsewhere))
        self.attention_signals = tuple(signal for signal in self.signals if isinstance(signal, AttentionSignal))
        self.hidden_layers = {
            signal: signal.layers_in(layers) for signal in self.signals if isinstance(signal, HiddenSignal)
        }
        self.states: dict[tuple[MeasuredSignal, int], Any] = {}

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float, sinks: Tensor | None = None
    ) -> Tensor:
        query_rows, self.scale = queries[0], scale
        self.fold_fed(layer, FedTokens(keys[0], values[0], self.start, self.prompt, query_rows, self.rotation))
        keys, values = self.store(layer, keys[0], values[0])
        self.store_recent(layer, query_rows)
        start, stop = self.start, keys.shape[1]
        readers = [signal for signal in self.attention_signals if signal.reads(layer)]
        if self.kernel is not None:
            return self.attend_fused(self.kernel, layer, readers, query_rows, keys, values, scale)
        first = min((self.first_row(signal) for signal in readers), default=stop)
        first = min(max(first, start), stop)
        if sinks is not None:
            self.sinks[layer] = sinks
        if sinks is not None or self.all_in_blocks:  # no fused kernel of a CPU supports sinks
            first = start
        parts = []
        if first > start:
            parts.append(attend_causal(query_rows[:, : first - start], keys[:, :first], values[:, :first], scale))
        if first < stop:
            copies = head_copies(keys)
            wide_keys, wide_values = upcast(keys), upcast(values)
            if copies > 1:
                wide_keys, wide_values = (t.repeat_interleave(copies, 0) for t in (wide_keys, wide_values))
            if self.workspace is None:
                self.workspace = wide_keys.new_empty(len(query_rows) * BLOCK * self.total)
        while first < stop:
            last = self.end_of_block(first, stop)
            block = query_rows[:, first - start : last - start]
            # The rows of a group are divided among the copies of its head, if divisible.
            spread = copies if (block[..., 0].numel() // len(keys)) % copies == 0 else 1
            own_keys, own_values = (tensor[:: copies // spread, :last] for tensor in (wide_keys, wide_values))
            reading = [signal for signal in readers if last > self.first_row(signal)]
            logits = attention_logits(block, own_keys, scale, first, self.workspace)
            raw = logits.clone() if any(signal.raw for signal in reading) else None
            if sinks is None:
                attention = torch.softmax(logits, -1, out=logits)
            else:
                attention = softmax_with_sink(logits, sinks[:, None, None])
            parts.append(weight_values(attention, own_values).to(values.dtype))
            self.fold_rows(AttentionRows(attention, layer, first, self.total, len(keys), logits=raw), reading)
            first = last
        return (parts[0] if len(parts) == 1 else torch.cat(parts, 1))[None]

    def slide(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float, sinks: Tensor | None = None
    ) -> Tensor:
        assert self.window is not None
        window = Window(keys[0], values[0])
        if layer < len(self.windows):
            window = self.windows[layer].extend(*window)
        else:
            self.windows.append(window)
        output = attend_sliding(queries[0], window.keys, window.values, scale, self.window, sinks)
        self.windows[layer] = window.last(self.window)
        return output[None]

    def attend_fused(
        self,
        kernel: Kernel,
        layer: int,
        readers: Sequence[AttentionSignal],
        query_rows: Tensor,
        keys: Tensor,
        values: Tensor,
        scale: float,
    ) -> Tensor:
        """Compute all rows with the kernel, and form what signals read from its log-sum-exp."""
        start, stop = self.start, keys.shape[1]
        output, lse = log_sum_exp.attend_with_lse(kernel, query_rows, keys, values, scale)
        summed = [
            reader for reader in readers if reader == AttentionSums() and log_sum_exp.can_sum_columns(keys.shape[-1])
        ]
        if summed:
            sums = log_sum_exp.column_sums(kernel, query_rows, keys, lse, scale)
            self.states[summed[0], layer] = summed[0].add(sums, self.states.get((summed[0], layer)))
        readers = [signal for signal in readers if signal not in summed]
        first = min((self.first_row(signal) for signal in readers), default=stop)
        first = min(max(first, start), stop)
        if first < stop and self.workspace is None:
            self.workspace = upcast(query_rows).new_empty(len(query_rows) * BLOCK * self.total)
        while first < stop:
            last = self.end_of_block(first, stop)
            rows = slice(first - start, last - start)
            reading = [signal for signal in readers if last > self.first_row(signal)]
            logits = attention_logits(query_rows[:, rows], keys[:, :last], scale, first, self.workspace)
            raw = logits.clone() if any(signal.raw for signal in reading) else None
            weights = log_sum_exp.weights_from_lse(logits, lse[:, rows])
            self.fold_rows(AttentionRows(weights, layer, first, self.total, len(keys), logits=raw), reading)
            first = last
        return output[None]

    def end_of_block(self, first: int, stop: int) -> int:
        """Return the end of a block of rows; rows of the prompt and of the answer share no block."""
        last = min(first + BLOCK, stop)
        return min(last, self.prompt) if first < self.prompt else last

    def fold_rows(self, rows: AttentionRows, signals: Iterable[AttentionSignal]) -> None:
        """Fold rows into the signals, those without a window with the end of the prompt as the total."""
        rows = rows._replace(decoded=rows.start >= self.prompt)
        prompt_rows = rows if rows.decoded else rows._replace(total=min(self.total, self.prompt))
        for signal in signals:
            key = (signal, rows.layer)
            signal_rows = prompt_rows if signal.window is None else rows
            self.states[key] = signal.attend(copy_for(signal, signal_rows), self.states.get(key))

    def first_row(self, signal: AttentionSignal) -> int:
        return 0 if signal.window is None else self.total - signal.window

    def store(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store the keys and values of a chunk; return those of the layer so far, [kv_head, stop, d]."""
        stop = self.start + keys.shape[1]
        if self.start == 0 and layer < len(self.keys):  # DiffLlama: two softmaxes over one cache
            raise BadInput("the model calls attention more than once in a layer; choose another model")
        if layer == len(self.keys):
            is_complete = stop == self.total
            for stored, new in ((self.keys, keys), (self.values, values)):
                stored.append(new if is_complete else new.new_empty(len(new), self.total, new.shape[-1]))
            if is_complete:
                return keys, values
        self.keys[layer][:, self.start : stop] = keys
        self.values[layer][:, self.start : stop] = values
        return self.keys[layer][:, :stop], self.values[layer][:, :stop]

    def store_recent(self, layer: int, queries: Tensor) -> None:
        if not self.n_recent:
            return
        if layer == len(self.recent):
            self.recent.append(queries[:, -self.n_recent :].clone())
        else:
            self.recent[layer] = torch.cat([self.recent[layer], queries], 1)[:, -self.n_recent :].clone()

    def fold_fed(self, layer: int, fed: FedTokens) -> None:
        for signal in self.signals:
            if isinstance(signal, FedSignal) and signal.reads(layer):
                self.states[signal, layer] = signal.fold(copy_for(signal, fed), self.states.get((signal, layer)))

    def see(self, layer: int, hidden: Tensor) -> None:
        for signal, layers in self.hidden_layers.items():
            if layer in layers:
                self.states[signal, layer] = signal.change(
                    copy_for(signal, hidden[0]), self.states.get((signal, layer))
                )

    def measure(self) -> dict[Signal, Any]:
        """Return every signal as a View stores it."""
        return {signal: self.measure_signal(signal) for signal in self.signals}

    def measure_signal(self, signal: MeasuredSignal) -> Any:
        if isinstance(signal, CacheSignal):
            filled = torch.ones(self.keys[0].shape[:2], dtype=torch.bool, device=self.keys[0].device)
            slots = (copy_for(signal, (self.keys[layer], self.values[layer], filled)) for layer in self.layers)
            return tuple(signal.summarise(layer, *layer_slots) for layer, layer_slots in enumerate(slots))
        states = self.states_of(signal)
        if isinstance(signal, HiddenSignal):
            return states
        assert isinstance(signal, (AttentionSignal, FedSignal))
        return tuple(None if state is None else signal.result(state) for state in states)

    def states_of(self, signal: MeasuredSignal) -> tuple[Any, ...]:
        return tuple(self.states.get((signal, layer)) for layer in self.layers)


def check_model(model: Model) -> None:
    """Raise BadInput for a model that cannot be evicted from."""
    refuse(model.name, model.network.config)


def feed(
    model: Model,
    context: Sequence[int],
    signals: Iterable[Signal],
    *,
    chunk: int | None,
    recent: int = 0,
    prompt: int | None = None,
    attention: Attention | None = None,
    native: NativeNetwork | None = None,
) -> Prefilled:
    """Feed the context in chunks of `chunk` tokens (None: in one), inside `observe_forward`.

    The largest tensors are [q_head, BLOCK, n] of attention, where a signal reads it, and a mask [MASKED_ROWS,
    n], with more than one chunk. recent: how many of the last queries to store. prompt: tokens of the prompt;
    more than the context if some are fed later, fewer if the context ends in an answer; None for the context.
    attention: None for the default of the network. native: computes all but the attention, which is then formed in
    blocks; None for the network's own forward.
    """
    signals = tuple(signals)
    network = model.network
    kernel = (attention or choose_attention(network)).kernel
    kinds = layers_of(network.config)
    layers, rotation = len(kinds.evictable), rotation_of(network)
    recorder = Recorder(
        len(context),
        signals,
        recent,
        prompt=len(context) if prompt is None else prompt,
        layers=layers,
        rotation=rotation,
        window=kinds.window,
        kernel=kernel,
        all_in_blocks=native is not None,
    )
    token_ids = torch.tensor(context, device=network.device)
    positions = torch.arange(len(context), device=network.device)
    size = len(context) if chunk is None else chunk
    for start in range(0, len(context), size):
        recorder.start = start
        if native is not None:
            hidden = {layer for layers in recorder.hidden_layers.values() for layer in layers}
            logits = feed_prompt(native, token_ids[start : start + size], start, recorder, hidden)
            continue
        logits = network(
            input_ids=token_ids[None, start : start + size],
            position_ids=positions[None, start : start + size],
            use_cache=False,
            logits_to_keep=1,
            observer=recorder,
        ).logits[0, -1]
    if (len(recorder.keys), len(recorder.windows)) != (layers, kinds.sliding):
        raise BadInput(f"model {model.name}: bypasses transformers' attention interface; choose a model that uses it")
    states: dict[Signal, tuple[Any, ...]] = {
        signal: recorder.states_of(signal) for signal in recorder.signals if not isinstance(signal, CacheSignal)
    }
    cached = list(map(CachedSlots, recorder.keys, recorder.values))
    pairs = zip(recorder.keys, recorder.values, strict=True)
    passages = measure_extra_prompts(model, signals, token_ids, cached, windows=recorder.windows)
    results = recorder.measure() | measure_output_signals(model, signals, pairs) | passages
    return Prefilled(
        recorder.keys,
        recorder.values,
        results,
        states,
        recorder.recent,
        logits,
        recorder.scale,
        recorder.windows,
        recorder.sinks,
    )


def head_copies(keys: Tensor) -> int:
    """Return how many copies of the keys [kv_head, n, d] spread the products of a block evenly over threads.

    There is one matrix for each head: three heads keep two threads busy as long as four would. 1 on an accelerator.
    """
    threads = torch.get_num_threads()
    even = (copies for copies in (1, 2, 4) if len(keys) * copies % threads == 0)
    return next(even, 1) if keys.device.type == "cpu" else 1


def attend_causal(queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Causal attention of the last t of n tokens: queries [q_head, t, d], keys, values [kv_head, n, d]."""
    t, n = queries.shape[1], keys.shape[1]
    grouped = queries.shape[0] != keys.shape[0]
    if t == n:
        output = scaled_dot_product_attention(
            queries[None], keys[None], values[None], is_causal=True, scale=scale, enable_gqa=grouped
        )
        return output[0]
    parts = []
    for first in range(0, t, MASKED_ROWS):
        rows = queries[:, first : first + MASKED_ROWS]
        stop = n - t + first + rows.shape[1]
        query_positions = torch.arange(stop - rows.shape[1], stop, device=keys.device)[:, None]
        visible = torch.arange(stop, device=keys.device) <= query_positions
        parts.append(
            scaled_dot_product_attention(
                rows[None],
                keys[None, :, :stop],
                values[None, :, :stop],
                attn_mask=visible,
                scale=scale,
                enable_gqa=grouped,
            )[0]
        )
    return torch.cat(parts, 1)


def weight_values(attention: Tensor, values: Tensor) -> Tensor:
    """Multiply attention [q_head, t, n] by values [kv_head, n, d], or copies of each head -> [q_head, t, d]."""
    heads, t, n = attention.shape
    return (attention.reshape(len(values), -1, n) @ values).view(heads, t, -1)
