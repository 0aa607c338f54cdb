"""Continuations of a model with some earlier tokens occluded, in each of two readings."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import torch

from policies.oracle import given
from protocol import engine
from protocol.engine import sampling
from protocol.engine.attention.kernels import chosen
from protocol.engine.batch import Batch
from protocol.engine.forking import Fork, Forked
from protocol.engine.forms import forms_of
from protocol.engine.observation import observed
from protocol.engine.rows import Row
from protocol.models.load import LoadedModel
from protocol.occlusion import side_by_side
from protocol.occlusion.side_by_side import Beginning
from protocol.occlusion.traces import Decoder, control
from protocol.presses.pressed import Given

__all__ = ["Continued", "Text", "dropping", "padded", "padding"]


class Text(NamedTuple):
    """All tokens fed before a continuation, and the windows of them to pad, one at a time."""

    token_ids: tuple[int, ...]
    windows: Sequence[range]


class Continued(NamedTuple):
    """A greedy continuation, without its stop token; refused: why there is none, otherwise empty."""

    token_ids: tuple[int, ...]
    refused: str = ""


def dropping(event: int, windows: Sequence[range]) -> tuple[engine.Lane, ...]:
    """Return lanes that each drop one window at an eviction over `event` tokens, and keep all other slots.

    One prefill serves all of them. Values computed with the window stay: the keys and values of later tokens,
    at their original positions.
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
    """Return the token that replaces occluded ones: the tokenizer's padding token, or else its end-of-text
    token.
    """
    words = model.tokenizer
    token = words.eos_token_id if words.pad_token_id is None else words.pad_token_id
    return min(model.stop_ids) if token is None else int(token)


def padded(
    decode: Decoder, texts: Sequence[Text], pad: int, new_tokens: int, most: int | None = None
) -> list[list[Continued]]:
    """Return the continuations of each text with each of its windows in turn replaced by the padding token,
    fed again.

    Padding tokens are attended to like any others, at the positions of what they replace. The text before a
    window is fed once for all windows; the rest is fed for each, packed in one forward pass. All decode in
    one batch. An empty window leaves the text unchanged. chunk: tokens of a prefill forward pass; None for
    those of `[generation]`, or else packed_prefill.MAX_TOKENS.
    """
    model, places = (
        decode.model,
        [(own, at) for own, text in enumerate(texts) for at in range(len(text.windows))],
    )
    longest = max(len(text.token_ids) for text in texts)
    rows = decode.lanes or engine.max_concurrent_lanes(
        model.network.config,
        model.network.dtype,
        model.network.device,
        longest + new_tokens,
        max(1, len(places)),
    )
    most = most or decode.prefill_chunk or side_by_side.MOST
    found: dict[tuple[int, int], Continued] = {}
    with observed(model.network), torch.no_grad():
        whole: dict[int, Beginning] = {}
        for first in range(0, len(places), rows):
            own = places[first : first + rows]
            asked = dict.fromkeys(number for number, _ in own)
            whole = {number: whole[number] for number in asked if number in whole}
            anew = {number: Beginning.of(model, texts[number].token_ids) for number in asked.keys() - whole}
            side_by_side.feed(model, list(anew.values()), most)
            whole |= anew
            begun = {
                (number, at): whole[number].without(texts[number].windows[at], pad) for number, at in own
            }
            side_by_side.feed(model, list(begun.values()), most)
            found |= continued(decode, begun, new_tokens)
    return [[found[number, at] for at in range(len(text.windows))] for number, text in enumerate(texts)]


def continued(
    decode: Decoder, begun: dict[tuple[int, int], Beginning], new_tokens: int
) -> dict[tuple[int, int], Continued]:
    """Decode the continuation of each text greedily, in one batch of the engine. partial_texts: by text and
    window.
    """
    model, found = decode.model, dict[tuple[int, int], Continued]()
    by_text: dict[int, list[int]] = {}
    for (number, at), one in begun.items():
        if sampling.usable(one.logits):
            by_text.setdefault(number, []).append(at)
        else:
            found[number, at] = Continued((), f"{sampling.UNUSABLE} at decode step 0")
    requests = {
        number: engine.Request(
            str(number), engine.Prompt(begun[number, at[0]].token_ids, ()), (control(),) * len(at)
        )
        for number, at in by_text.items()
    }

    def done(row: Row, ended: engine.Outcome | engine.LaneFailure) -> None:
        number = int(row.request.problem)
        own = (
            Continued((), ended.reason)
            if isinstance(ended, engine.LaneFailure)
            else Continued(ended.token_ids)
        )
        found[number, by_text[number][row.number]] = own

    attention = chosen(model.network, decode.attention)
    forms = forms_of(model, list(requests.values()))
    batch = Batch(model, new_tokens, 0.0, 1.0, new_tokens + 1, frozenset(), forms, done, attention)
    for number, request in requests.items():
        forks, n = [], len(request.prompt.context)
        for place, lane in enumerate(request.lanes):
            one = begun.pop((number, by_text[number][place]))
            none = [None] * len(one.keys)
            given = Given(one.keys, one.values, [*none], one.logits, n, drew=False)
            forks.append(
                Fork(place, lane, given.whole(), given.counts(), None, n, given, windows=one.windows)
            )
        shared = forks[0].given
        assert shared is not None
        forked = Forked(request, shared.keys, shared.values, shared.logits, deque(), {}, 0.0)
        batch.join(forked, forks)
    while batch.rows:
        batch.step()
    return found
