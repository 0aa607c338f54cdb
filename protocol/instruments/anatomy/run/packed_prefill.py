"""Packed prefill: several texts in one forward pass, one after the other, each attending to itself alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from protocol.engine import prefill
from protocol.engine.observation import Observer
from protocol.engine.sliding_windows import Window
from protocol.layers.layer_kinds import layers_of
from protocol.models.load import LoadedModel

MAX_TOKENS = 2048
"""Tokens of a forward pass: enough for compute to exceed the launch overhead."""


@dataclass
class PartialText:
    """A text and what was fed of it. keys, values: one tensor for each layer, [kv_head, n_fed, d]. logits: [vocabulary]
    after the last token, when all are fed. windows: one for each sliding layer, if there are any.
    """

    token_ids: tuple[int, ...]
    is_packable: bool
    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    logits: Tensor = field(default_factory=lambda: torch.empty(0))
    windows: Sequence[Window] = ()

    @classmethod
    def start(cls, model: LoadedModel, token_ids: Sequence[int]) -> PartialText:
        """Return a text with nothing fed. Models with sliding layers or attention sinks use the engine's prefill."""
        blocks: Any = getattr(model.network.base_model, "layers", ())
        sinks = any(getattr(getattr(block, "self_attn", None), "sinks", None) is not None for block in blocks)
        return cls(tuple(token_ids), layers_of(model.network.config).window is None and not sinks)

    @property
    def n_fed(self) -> int:
        return self.keys[0].shape[1] if self.keys else 0

    def replace_window(self, window: range, pad: int) -> PartialText:
        """Return the text, which was fed completely, with padding tokens in the window, fed up to the first
        changed token. For an empty window, return this text.
        """
        if not window:
            return self
        token_ids = [pad if position in window else token for position, token in enumerate(self.token_ids)]
        if not self.is_packable:
            return PartialText(tuple(token_ids), is_packable=False)
        start = min(window.start, len(token_ids) - 1)
        copy = PartialText(tuple(token_ids), is_packable=True)
        if start:
            copy.keys = [keys[:, :start] for keys in self.keys]
            copy.values = [values[:, :start] for values in self.values]
        return copy


def feed(model: LoadedModel, texts: Sequence[PartialText], chunk: int) -> None:
    """Feed each text completely, inside `observe_forward`, with at most `chunk` tokens in a forward pass."""
    waiting = deque(text for text in texts if text.is_packable and text.n_fed < len(text.token_ids))
    while waiting:
        batch: list[tuple[PartialText, int]] = []
        room = chunk
        while waiting and room:
            text = waiting.popleft()
            new = min(room, len(text.token_ids) - text.n_fed)
            batch.append((text, new))
            room -= new
        feed_batch(model, batch)
        if batch and (last := batch[-1][0]).n_fed < len(last.token_ids):
            waiting.appendleft(last)
    for text in texts:
        if not text.is_packable and not text.keys:
            prefilled = prefill.feed(model, text.token_ids, (), chunk=chunk)
            text.keys, text.values = prefilled.keys, prefilled.values
            text.logits, text.windows = prefilled.logits, prefilled.windows


def feed_batch(model: LoadedModel, batch: Sequence[tuple[PartialText, int]]) -> None:
    """Feed the given number of next tokens of each text."""
    token_ids, positions, last = list[int](), list[int](), list[int]()
    for text, new in batch:
        token_ids += text.token_ids[text.n_fed : text.n_fed + new]
        positions += range(text.n_fed, text.n_fed + new)
        last.append(len(token_ids) - 1)
    device, network = model.network.device, model.network
    logits = network(
        input_ids=torch.tensor([token_ids], device=device),
        position_ids=torch.tensor([positions], device=device),
        use_cache=False,
        logits_to_keep=torch.tensor(last, device=device),
        observer=PackedObserver(batch),
    ).logits[0]
    for (text, _), last_logits in zip(batch, logits, strict=True):
        text.logits = last_logits


class PackedObserver(Observer):
    """The observer of a packed forward pass; sliding layers are not packed."""

    def __init__(self, batch: Sequence[tuple[PartialText, int]]) -> None:
        self.batch = batch

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float, sinks: Tensor | None = None
    ) -> Tensor:
        assert sinks is None
        output, first = torch.empty_like(queries), 0
        for text, new in self.batch:
            span = slice(first, first + new)
            pairs = ((text.keys, keys[0, :, span]), (text.values, values[0, :, span]))
            for stored, fed in pairs:
                if layer == len(stored):
                    stored.append(fed)
                else:
                    stored[layer] = torch.cat([stored[layer], fed], 1)
            output[0, :, span] = prefill.attend_causal(queries[0, :, span], text.keys[layer], text.values[layer], scale)
            first += new
        return output
