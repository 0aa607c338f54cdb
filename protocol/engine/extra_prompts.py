"""Extra prompts: tokens fed after the text, over the slots of one lane, and never stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from policies import AttentionRows, ExtraPromptSignal, Signal
from policies.signals import BLOCK, attention_logits, softmax_with_sink, upcast
from protocol.engine.observation import Observer
from protocol.engine.run_types import Model
from protocol.engine.sliding_windows import Window, attend_sliding
from protocol.engine.slots import CachedSlots
from protocol.formats.refusals import BadInput
from protocol.layers.layer_kinds import layers_of


def measure_extra_prompts(
    model: Model,
    signals: Iterable[Signal],
    token_ids: Tensor,
    cached: Sequence[CachedSlots],
    weighs_logits: bool = False,
    filled: Tensor | None = None,
    windows: Sequence[Window] = (),
) -> dict[Signal, Any]:
    """Return the values of those `signals` that need an extra prompt, inside `observe_forward`.

    token_ids [n_fed]: the text. cached: the slots of each layer, decoded. weighs_logits: whether their weights count
    in the attention logits. filled [layer, kv_head, n]: True where a slot is stored; None if all are. Each passage
    follows the text at the positions of the next tokens, and attends to the slots and to itself; in sliding layers it
    attends to the windows of the text.
    """
    window = layers_of(model.network.config).window
    results: dict[Signal, Any] = {}
    for signal in signals:
        if not isinstance(signal, ExtraPromptSignal):
            continue
        states: list[Any] = [None] * len(cached)
        for passage in signal.passages(token_ids, model.sentence_ends):
            refuse_beyond_context(model, signal, len(token_ids) + len(passage))
            model.network(
                input_ids=passage[None],
                position_ids=len(token_ids) + torch.arange(len(passage), device=passage.device)[None],
                use_cache=False,
                logits_to_keep=1,
                observer=ExtraPromptObserver(
                    signal, cached, weighs_logits, filled, len(passage), states, windows, window
                ),
            )
        results[signal] = tuple(map(signal.result, states))
    return results


def refuse_beyond_context(model: Model, signal: ExtraPromptSignal, length: int) -> None:
    """Raise BadInput for positions beyond the trained maximum, where a model fails silently."""
    limit = model.network.config.max_position_embeddings
    if length > limit:
        raise BadInput(
            f"{type(signal).__name__} feeds extra tokens after the text, up to position {length}, but model "
            f"{model.name} has only {limit}; shorten the text or choose another policy"
        )


@dataclass
class ExtraPromptObserver(Observer):
    """The observer of one passage: computes its attention and folds its attention rows into the states.

    total: tokens of the passage. states: one for each layer, updated in place. windows: those of the text, in the
    layers where a token attends to `window` tokens.
    """

    signal: ExtraPromptSignal
    cached: Sequence[CachedSlots]
    weighs_logits: bool
    filled: Tensor | None
    total: int
    states: list[Any]
    windows: Sequence[Window]
    window: int | None

    def slide(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float, sinks: Tensor | None = None
    ) -> Tensor:
        assert self.window is not None
        extended = self.windows[layer].extend(keys[0], values[0])
        return attend_sliding(queries[0], extended.keys, extended.values, scale, self.window, sinks)[None]

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float, sinks: Tensor | None = None
    ) -> Tensor:
        slots = self.cached[layer]
        heads, n, _ = slots.keys.shape
        wide_keys = upcast(torch.cat([slots.keys, keys[0]], 1))
        wide_values = upcast(torch.cat([slots.values, values[0]], 1))
        parts = []
        for first in range(0, self.total, BLOCK):
            stop = min(first + BLOCK, self.total)
            logits = attention_logits(queries[0, :, first:stop], wide_keys[:, : n + stop], scale, n + first)
            if self.weighs_logits and slots.weights is not None:
                mass = slots.weights.clamp(min=1).log().to(logits.dtype)
                logits[..., :n] += mass.repeat_interleave(len(logits) // heads, 0)[:, None]
            if self.filled is not None:
                empty = ~self.filled[layer].repeat_interleave(len(logits) // heads, 0)
                logits[..., :n].masked_fill_(empty[:, None], -torch.inf)
            attention = softmax_with_sink(logits, None if sinks is None else sinks[:, None, None])
            rows = AttentionRows(attention[..., :n], layer, first, self.total, heads, logits=logits[..., :n])
            self.states[layer] = self.signal.attend(rows, self.states[layer])
            output = attention.view(heads, -1, n + stop) @ wide_values[:, : n + stop]
            parts.append(output.view(len(logits), stop - first, -1))
        return torch.cat(parts, 1).to(values.dtype)[None]
