"""Packed prefill: several texts in one forward pass, one after the other, each attending to itself alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from protocol.engine import prefill
from protocol.engine.windows import Window
from protocol.layers.kinds import layers_of
from protocol.models.load import LoadedModel

__all__ = ["MOST", "Beginning", "feed"]

MOST = 2048
"""Tokens of a forward pass: enough for compute to exceed the launch overhead."""


@dataclass
class Beginning:
    """A text and what was fed of it. keys, values: one tensor for each layer, [kv_head, n_fed, d]. logits:
    [vocabulary] after the last token, when all are fed. windows: one for each sliding layer, if there are
    any.
    """

    token_ids: tuple[int, ...]
    packs: bool
    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    logits: Tensor = field(default_factory=lambda: torch.empty(0))
    windows: Sequence[Window] = ()

    @classmethod
    def of(cls, model: LoadedModel, token_ids: Sequence[int]) -> Beginning:
        """Return a text with nothing fed. Models with sliding layers or attention sinks use the engine's
        prefill.
        """
        blocks: Any = getattr(model.network.base_model, "layers", ())
        sinks = any(getattr(getattr(block, "self_attn", None), "sinks", None) is not None for block in blocks)
        return cls(tuple(token_ids), layers_of(model.network.config).window is None and not sinks)

    @property
    def fed(self) -> int:
        return self.keys[0].shape[1] if self.keys else 0

    def without(self, window: range, pad: int) -> Beginning:
        """Return the text, which was fed completely, with padding tokens in the window, fed up to the first
        changed token. For an empty window, return this text.
        """
        if not window:
            return self
        token_ids = [pad if at in window else token for at, token in enumerate(self.token_ids)]
        if not self.packs:
            return Beginning(tuple(token_ids), packs=False)
        start = min(window.start, len(token_ids) - 1)
        found = Beginning(tuple(token_ids), packs=True)
        if start:
            found.keys = [keys[:, :start] for keys in self.keys]
            found.values = [values[:, :start] for values in self.values]
        return found


def feed(model: LoadedModel, texts: Sequence[Beginning], most: int) -> None:
    """Feed each text completely, inside `observe_forward`, with at most `chunk` tokens in a forward pass."""
    waiting = deque(text for text in texts if text.packs and text.fed < len(text.token_ids))
    while waiting:
        own: list[tuple[Beginning, int]] = []
        room = most
        while waiting and room:
            text = waiting.popleft()
            new = min(room, len(text.token_ids) - text.fed)
            own.append((text, new))
            room -= new
        forward(model, own)
        if own and (last := own[-1][0]).fed < len(last.token_ids):
            waiting.appendleft(last)
    for text in texts:
        if not text.packs and not text.keys:
            fed = prefill.feed(model, text.token_ids, (), chunk=most)
            text.keys, text.values, text.logits, text.windows = fed.keys, fed.values, fed.logits, fed.windows


def forward(model: LoadedModel, own: Sequence[tuple[Beginning, int]]) -> None:
    """Feed the given number of next tokens of each text."""
    token_ids, positions, last = list[int](), list[int](), list[int]()
    for text, new in own:
        token_ids += text.token_ids[text.fed : text.fed + new]
        positions += range(text.fed, text.fed + new)
        last.append(len(token_ids) - 1)
    device, network = model.network.device, model.network
    logits = network(
        input_ids=torch.tensor([token_ids], device=device),
        position_ids=torch.tensor([positions], device=device),
        use_cache=False,
        logits_to_keep=torch.tensor(last, device=device),
        observer=Packed(own),
    ).logits[0]
    for (text, _), after in zip(own, logits, strict=True):
        text.logits = after


class Packed:
    """The observer of a packed forward pass."""

    def __init__(self, own: Sequence[tuple[Beginning, int]]) -> None:
        self.own = own

    def attend(
        self,
        layer: int,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        scale: float,
        sinks: Tensor | None = None,
    ) -> Tensor:
        assert sinks is None
        output, first = torch.empty_like(queries), 0
        for text, new in self.own:
            at = slice(first, first + new)
            every = ((text.keys, keys[0, :, at]), (text.values, values[0, :, at]))
            for stored, fed in every:
                if layer == len(stored):
                    stored.append(fed)
                else:
                    stored[layer] = torch.cat([stored[layer], fed], 1)
            output[0, :, at] = prefill.fused(queries[0, :, at], text.keys[layer], text.values[layer], scale)
            first += new
        return output

    def slide(
        self,
        layer: int,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        scale: float,
        sinks: Tensor | None = None,
    ) -> Tensor:
        raise AssertionError("sliding layers are not packed")

    def see(self, layer: int, hidden: Tensor) -> None:
        """Do nothing: nothing reads hidden states."""
