"""Continuations of a model with some earlier tokens occluded, in each of two readings."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import torch

from policies.oracle import oracle_policy
from protocol import engine
from protocol.engine import sampling
from protocol.engine.attention.kernels import choose_attention
from protocol.engine.batch import Batch
from protocol.engine.batch_rows import BatchRow
from protocol.engine.observation import observe_forward
from protocol.engine.prefill_fan_out import Fork, ForkedRequest
from protocol.engine.storage_formats import build_storage_formats
from protocol.instruments.anatomy.run import packed_prefill
from protocol.instruments.anatomy.run.packed_prefill import PartialText
from protocol.instruments.anatomy.run.traces import Decoder, full_cache_lane
from protocol.models.load import LoadedModel
from protocol.presses.pressed import LanePrefill


class OccludedText(NamedTuple):
    """All tokens fed before a continuation, and the windows of them to pad, one at a time. problem, written: as in a
    request and its prompt; the noise of sampled tokens depends on them.
    """

    token_ids: tuple[int, ...]
    windows: Sequence[range]
    problem: str = ""
    written: int = 0


class Continuation(NamedTuple):
    """A continuation, without its stop token; refused: why there is none, otherwise empty."""

    token_ids: tuple[int, ...]
    refused: str = ""


def dropping_lanes(event: int, windows: Sequence[Collection[int]]) -> tuple[engine.Lane, ...]:
    """Return lanes that each drop one window, or other set of positions, at an eviction over `event` tokens, and keep
    all other slots.

    One prefill serves all of them. Values computed with the window stay: the keys and values of later tokens,
    at their original positions.
    """
    return tuple(
        engine.Lane(
            f"dropped {number}",
            oracle_policy(tuple(float(position not in window) for position in range(event))),
            event - len(window),
            0,
        )
        for number, window in enumerate(windows)
    )


def padding_token(model: LoadedModel) -> int:
    """Return the token that replaces occluded ones: the tokenizer's padding token, or else its end-of-text token."""
    model_tokenizer = model.tokenizer
    token = model_tokenizer.eos_token_id if model_tokenizer.pad_token_id is None else model_tokenizer.pad_token_id
    return min(model.stop_ids) if token is None else int(token)


def continue_padded(
    decode: Decoder, texts: Sequence[OccludedText], pad: int, new_tokens: int
) -> list[list[Continuation]]:
    """Return the continuations of each text with each of its windows in turn replaced by the padding token, fed again.

    Padding tokens are attended to like any others, at the positions of what they replace. The text before a
    window is fed once for all windows; the rest is fed for each, packed in one forward pass. All decode in
    one batch. An empty window leaves the text unchanged. A prefill forward pass has the tokens of
    `[generation]`, or else packed_prefill.MAX_TOKENS.
    """
    model, places = decode.model, [(number, window) for number, text in enumerate(texts) for window in text.windows]
    longest = max(len(text.token_ids) for text in texts)
    rows = decode.lanes or engine.max_concurrent_lanes(
        model.network.config, model.network.dtype, model.network.device, longest + new_tokens, max(1, len(places))
    )
    chunk = decode.prefill_chunk or packed_prefill.MAX_TOKENS
    continuations: dict[int, Continuation] = {}
    with observe_forward(model.network), torch.no_grad():
        full_texts: dict[int, PartialText] = {}
        for first in range(0, len(places), rows):
            selection = dict(enumerate(places[first : first + rows], start=first))
            full_texts = {
                number: full_texts.get(number) or PartialText.start(model, texts[number].token_ids)
                for number in dict.fromkeys(number for number, _ in selection.values())
            }
            packed_prefill.feed(model, list(full_texts.values()), chunk)
            partial_texts = {
                place: full_texts[number].replace_window(window, pad) for place, (number, window) in selection.items()
            }
            packed_prefill.feed(model, list(partial_texts.values()), chunk)
            sources = {place: texts[number] for place, (number, _) in selection.items()}
            continuations |= continue_texts(decode, partial_texts, sources, new_tokens)
    in_order = (continuations[place] for place in range(len(places)))
    return [[next(in_order) for _ in text.windows] for text in texts]


def continue_texts(
    decode: Decoder, texts: dict[int, PartialText], sources: Mapping[int, OccludedText], new_tokens: int
) -> dict[int, Continuation]:
    """Decode the continuation of each text, in one batch of the engine, which takes them out of `texts`. sources: by
    the same places, the text that each was before its window was padded.
    """
    model = decode.model
    refused = Continuation((), f"{sampling.NON_FINITE_LOGITS} at decode step 0")
    continuations = {place: refused for place, text in texts.items() if not sampling.is_usable(text.logits)}
    requests = {
        place: engine.Request(
            sources[place].problem,
            engine.Prompt(text.token_ids, (), sources[place].written),
            (full_cache_lane()._replace(key=str(place), seed=decode.seed),),
        )
        for place, text in texts.items()
        if place not in continuations
    }

    def record_outcome(row: BatchRow, outcome: engine.Outcome | engine.LaneFailure) -> None:
        continuations[int(row.lane.key)] = (
            Continuation((), outcome.reason)
            if isinstance(outcome, engine.LaneFailure)
            else Continuation(outcome.token_ids)
        )

    attention = choose_attention(model.network, decode.attention)
    storage_formats = build_storage_formats(model, list(requests.values()))
    batch = Batch(
        model,
        new_tokens,
        decode.temperature,
        decode.top_p,
        new_tokens + 1,
        frozenset(),
        storage_formats,
        record_outcome,
        attention,
    )
    for place, request in requests.items():
        text, n, (lane,) = texts.pop(place), len(request.prompt.context), request.lanes
        prefilled = LanePrefill(text.keys, text.values, [None] * len(text.keys), text.logits, n, used_rng=False)
        masks, counts = prefilled.full_masks(), prefilled.counts()
        fork = Fork(0, lane, masks, counts, None, n, prefilled, windows=text.windows)
        batch.join(ForkedRequest(request, text.keys, text.values, text.logits, deque(), {}, 0.0), [fork])
    while batch.rows:
        batch.step()
    return continuations
