"""Continuations of a model with some earlier tokens occluded, in each of two readings."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
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
    """All tokens fed before a continuation, and the windows of them to pad, one at a time."""

    token_ids: tuple[int, ...]
    windows: Sequence[range]


class Continuation(NamedTuple):
    """A greedy continuation, without its stop token; refused: why there is none, otherwise empty."""

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
    decode: Decoder, texts: Sequence[OccludedText], pad: int, new_tokens: int, chunk: int | None = None
) -> list[list[Continuation]]:
    """Return the continuations of each text with each of its windows in turn replaced by the padding token, fed again.

    Padding tokens are attended to like any others, at the positions of what they replace. The text before a
    window is fed once for all windows; the rest is fed for each, packed in one forward pass. All decode in
    one batch. An empty window leaves the text unchanged. chunk: tokens of a prefill forward pass; None for
    those of `[generation]`, or else packed_prefill.MAX_TOKENS.
    """
    model, positions = (
        decode.model,
        [
            (selection, number_of_window)
            for selection, text in enumerate(texts)
            for number_of_window in range(len(text.windows))
        ],
    )
    longest = max(len(text.token_ids) for text in texts)
    rows = decode.lanes or engine.max_concurrent_lanes(
        model.network.config, model.network.dtype, model.network.device, longest + new_tokens, max(1, len(positions))
    )
    chunk = chunk or decode.prefill_chunk or packed_prefill.MAX_TOKENS
    continuations: dict[tuple[int, int], Continuation] = {}
    with observe_forward(model.network), torch.no_grad():
        full_texts: dict[int, PartialText] = {}
        for first in range(0, len(positions), rows):
            selection = positions[first : first + rows]
            text_numbers = dict.fromkeys(number for number, _ in selection)
            full_texts = {number: full_texts[number] for number in text_numbers if number in full_texts}
            new_texts = {
                number: PartialText.start(model, texts[number].token_ids) for number in text_numbers.keys() - full_texts
            }
            packed_prefill.feed(model, list(new_texts.values()), chunk)
            full_texts |= new_texts
            partial_texts = {
                (number, number_of_window): full_texts[number].replace_window(
                    texts[number].windows[number_of_window], pad
                )
                for number, number_of_window in selection
            }
            packed_prefill.feed(model, list(partial_texts.values()), chunk)
            continuations |= continue_texts(decode, partial_texts, new_tokens)
    return [
        [continuations[number, number_of_window] for number_of_window in range(len(text.windows))]
        for number, text in enumerate(texts)
    ]


def continue_texts(
    decode: Decoder, partial_texts: dict[tuple[int, int], PartialText], new_tokens: int
) -> dict[tuple[int, int], Continuation]:
    """Decode the continuation of each text greedily, in one batch of the engine. partial_texts: by text and window."""
    model, continuations = decode.model, dict[tuple[int, int], Continuation]()
    by_text: dict[int, list[int]] = {}
    for (number, numbers), text in partial_texts.items():
        if sampling.is_usable(text.logits):
            by_text.setdefault(number, []).append(numbers)
        else:
            continuations[number, numbers] = Continuation((), f"{sampling.NON_FINITE_LOGITS} at decode step 0")
    requests = {
        number: engine.Request(
            str(number),
            engine.Prompt(partial_texts[number, numbers[0]].token_ids, ()),
            (full_cache_lane(),) * len(numbers),
        )
        for number, numbers in by_text.items()
    }

    def record_outcome(row: BatchRow, outcome: engine.Outcome | engine.LaneFailure) -> None:
        number = int(row.request.problem)
        continuation = (
            Continuation((), outcome.reason)
            if isinstance(outcome, engine.LaneFailure)
            else Continuation(outcome.token_ids)
        )
        continuations[number, by_text[number][row.number]] = continuation

    attention = choose_attention(model.network, decode.attention)
    storage_formats = build_storage_formats(model, list(requests.values()))
    batch = Batch(model, new_tokens, 0.0, 1.0, new_tokens + 1, frozenset(), storage_formats, record_outcome, attention)
    for number, request in requests.items():
        forks, n = [], len(request.prompt.context)
        for index, lane in enumerate(request.lanes):
            text = partial_texts.pop((number, by_text[number][index]))
            none = [None] * len(text.keys)
            lane_prefill = LanePrefill(text.keys, text.values, [*none], text.logits, n, used_rng=False)
            forks.append(
                Fork(
                    index,
                    lane,
                    lane_prefill.full_masks(),
                    lane_prefill.counts(),
                    None,
                    n,
                    lane_prefill,
                    windows=text.windows,
                )
            )
        shared = forks[0].lane_prefill
        assert shared is not None
        forked = ForkedRequest(request, shared.keys, shared.values, shared.logits, deque(), {}, 0.0)
        batch.join(forked, forks)
    while batch.rows:
        batch.step()
    return continuations
