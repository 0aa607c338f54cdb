"""What a model goes on to say when some of the tokens behind it are occluded, in each of two readings."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from policies.oracle import given
from protocol import engine
from protocol.engine import sampling
from protocol.models.load import LoadedModel
from protocol.occlusion.traces import Decoder

if TYPE_CHECKING:
    from transformers import DynamicCache

__all__ = ["Continued", "dropping", "padded", "padding"]


class Continued(NamedTuple):
    """A greedy continuation, without the token that ended it; refused: why there is none, empty else."""

    token_ids: tuple[int, ...]
    refused: str = ""


def dropping(event: int, windows: Sequence[range]) -> tuple[engine.Lane, ...]:
    """Lanes that lose one window each at an event over `event` tokens, and keep all others where they stand.

    One prefill serves all of them, and what was computed with the window stays: the keys and values of later
    tokens, whose positions are what they were.
    """
    return tuple(
        engine.Lane(
            f"dropped {window.start}",
            given(tuple(float(at not in window) for at in range(event))),
            event - len(window),
            0,
        )
        for window in windows
    )


def padding(model: LoadedModel) -> int:
    """The token that stands in the place of occluded ones: the tokenizer's padding token, else the one that
    ends its texts.
    """
    words = model.tokenizer
    token = words.eos_token_id if words.pad_token_id is None else words.pad_token_id
    return min(model.stop_ids) if token is None else int(token)


def padded(
    decode: Decoder, token_ids: Sequence[int], windows: Sequence[range], pad: int, new_tokens: int
) -> list[Continued]:
    """What follows the text with the padding token in the place of each window in turn, fed anew.

    Padding tokens are attended to like any others, at the positions of what they replace. What stands before
    a window is fed once for all of them; the rest of the text is fed for each, and they decode in one batch,
    by transformers' own forward. An empty window is the text as it is.
    """
    device = decode.model.network.device
    text = torch.tensor(list(token_ids), device=device)
    rows = decode.lanes or engine.max_concurrent_lanes(
        decode.model.network.config,
        decode.model.network.dtype,
        device,
        len(token_ids) + new_tokens,
        max(1, len(windows)),
    )
    order = sorted(range(len(windows)), key=lambda place: windows[place].start)
    found: dict[int, Continued] = {}
    with torch.no_grad():
        feeding = Feeding(decode, text)
        for first in range(0, len(order), rows):
            places = order[first : first + rows]
            fed = [feeding.occluded(windows[place], pad) for place in places]
            cache = side_by_side([one for one, _ in fed])
            logits = torch.cat([last for _, last in fed])
            found |= zip(places, continued(decode.model, cache, logits, new_tokens), strict=True)
    return [found[place] for place in range(len(windows))]


class Feeding:
    """A text that is fed from its beginning as far as windows leave it as it is, and from there for each."""

    def __init__(self, decode: Decoder, text: Tensor) -> None:
        from transformers import DynamicCache  # with the modules of all models

        self.decode = decode
        self.text = text
        self.cache = DynamicCache(config=decode.model.network.config)
        self.fed = 0

    def occluded(self, window: range, pad: int) -> tuple[DynamicCache, Tensor]:
        """The cache of the whole text without the window, and the logits after it [1, vocabulary]. Windows
        are asked for in the order of their starts.
        """
        start = min(window.start, len(self.text) - 1)
        self.feed(self.cache, self.text[self.fed : start])
        self.fed = start
        own = copy.deepcopy(self.cache)
        rest = self.text.clone()
        rest[window.start : window.stop] = pad
        return own, self.feed(own, rest[start:])

    def feed(self, cache: DynamicCache, token_ids: Tensor) -> Tensor:
        chunk = self.decode.prefill_chunk or max(1, len(token_ids))
        logits = torch.empty(0)
        for first in range(0, len(token_ids), chunk):
            fed = token_ids[None, first : first + chunk]
            logits = forward(self.decode.model, fed, cache)
        return logits


def forward(model: LoadedModel, token_ids: Tensor, cache: DynamicCache) -> Tensor:
    """Logits [row, vocabulary] after token_ids [row, t]."""
    network: Callable[..., Any] = model.network
    last: Tensor = network(
        input_ids=token_ids, past_key_values=cache, use_cache=True, logits_to_keep=1
    ).logits[:, -1]
    return last


def side_by_side(caches: Sequence[DynamicCache]) -> DynamicCache:
    """One cache of a row for each, all of one length; those that are given are used up."""
    whole: Any = caches[0]
    for number, layer in enumerate(whole.layers):
        own: list[Any] = [cache.layers[number] for cache in caches]
        layer.keys = torch.cat([each.keys for each in own])
        layer.values = torch.cat([each.values for each in own])
        for each in own[1:]:
            each.keys = each.values = None
    return caches[0]


def continued(model: LoadedModel, cache: DynamicCache, logits: Tensor, new_tokens: int) -> list[Continued]:
    """What follows in each row, greedily. A row that stops leaves the cache."""
    texts: list[list[int]] = [[] for _ in range(len(logits))]
    refused = [""] * len(texts)
    rows = list(range(len(texts)))
    for step in range(new_tokens):
        usable = sampling.usable(logits).tolist()
        for row, fine in zip(rows, usable, strict=True):
            if not fine:
                refused[row] = f"{sampling.UNUSABLE} at decode step {step}"
        chosen = sampling.choose(logits, (), 0.0)
        stays = [
            place
            for place, (fine, token) in enumerate(zip(usable, chosen, strict=True))
            if fine and token not in model.stop_ids
        ]
        fed = [chosen[place] for place in stays]
        for place, token in zip(stays, fed, strict=True):
            texts[rows[place]].append(token)
        if not stays or step + 1 == new_tokens:
            break
        if len(stays) < len(rows):
            cache.batch_select_indices(torch.tensor(stays, device=logits.device))
            rows = [rows[place] for place in stays]
        logits = forward(model, torch.tensor(fed, device=logits.device)[:, None], cache)
    return [Continued(() if why else tuple(text), why) for text, why in zip(texts, refused, strict=True)]
