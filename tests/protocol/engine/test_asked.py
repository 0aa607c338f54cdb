"""Tokens that are fed beside the text: what they give to the slots, and that they leave nothing behind."""

from dataclasses import dataclass

import pytest
import torch
from plain_forward import History, plain_forward
from sampled import sampled
from test_run_types import shapes_of_forwards, told
from tiny_networks import FAMILIES, LAYERS, Adaptive, Noise, all_kept, answer, drawn, lane, noted, outside, tiny, words

import policies
from policies import Blockwise, Cadence, Protect
from policies.kvzip import kvzip
from protocol.engine import Outcome
from protocol.formats.refusals import BadInput


@dataclass(frozen=True)
class Question:
    """The attention of two passages to the slots, and their logits: [q_head, row, n]."""

    passages_of: tuple[tuple[int, ...], ...] = (words(150, seed=8), (7, 3))

    def passages(self, token_ids, sentence_ends):
        assert sentence_ends == {7}
        return tuple(torch.tensor(passage, device=token_ids.device) for passage in self.passages_of)

    def attend(self, rows, before):
        assert rows.attention.shape[-2] <= 128
        assert rows.start == (before[0].shape[1] if before and before[0].shape[1] < 150 else 0)
        own = (rows.attention.clone(), rows.logits.clone())
        return own if before is None else tuple(torch.cat(pair, 1) for pair in zip(before, own, strict=True))

    def result(self, state):
        return state


@pytest.mark.parametrize(
    ("family", "routing", "cadence"),
    sampled(
        FAMILIES, [None, Adaptive()], [Cadence(interval=4), Blockwise(block=9), Blockwise(block=9, interval=4)], of=6
    ),
)
def test_what_a_passage_gives_to_the_slots_is_what_a_plain_forward_finds(family, routing, cadence):
    """At every event, over the slots of then: behind the text, each passage by itself."""
    model, prompt, signal = tiny(family), outside(30, 3), Question()
    policy = noted(Noise(1, frozenset({signal})), routing, cadence)
    company = [lane(all_kept(), seed=1), lane(drawn(2, Adaptive()), 10)]
    _, outcome, _ = answer(model, prompt, [company[0], lane(policy, 12), company[1]], max_new_tokens=10)
    assert isinstance(outcome, Outcome), outcome
    text = prompt.context + prompt.query + outcome.token_ids[:-1]
    history = History(len(text))
    assert len(policy.notes) >= 3
    for view, kept in policy.notes:
        seen = len(view.token_ids)
        history.feed(seen)
        first = 0
        for passage in signal.passages_of:
            total = seen + len(passage)
            allowed = torch.ones(total, total).tril().bool().repeat(LAYERS, 2, 1, 1)
            allowed[..., :seen, :seen] = history.allowed[..., :seen, :seen]
            for (layer, head), held in history.held.items():
                allowed[layer, head, seen:, :seen] = False
                allowed[layer, head, seen:, held] = True
            plain = plain_forward(model.network, text[:seen] + passage, allowed)
            rows = slice(first, first + len(passage))
            for (layer, head), held in history.held.items():
                for query_head in (2 * head, 2 * head + 1):
                    found, logits = (part[query_head, rows] for part in view.signals[signal][layer])
                    expected = plain.weights[layer, query_head, seen:, held]
                    torch.testing.assert_close(found[:, : len(held)], expected, rtol=1e-9, atol=1e-10)
                    assert not found[:, len(held) :].any()
                    products = plain.queries[layer, query_head, seen:] @ plain.keys[layer, head, held].T
                    torch.testing.assert_close(logits[:, : len(held)], products / 4, rtol=1e-9, atol=1e-9)
                    assert (logits[:, len(held) :] == -torch.inf).all()
            first = rows.stop
        history.evict(kept)


@pytest.mark.parametrize("cadence", [Cadence(), Cadence(interval=4), Blockwise(block=9)], ids=str)
def test_a_lane_that_asks_says_and_holds_what_one_that_does_not_ask_does(cadence):
    """Neither do its neighbours notice."""
    asking, silent = (
        lane(noted(Noise(1, needs), Adaptive(), cadence), 12) for needs in (frozenset({Question()}), frozenset())
    )
    beside = lane(drawn(2, cadence=Cadence(interval=3)), 9)
    one = answer(tiny(), outside(30, 3), [asking, beside], max_new_tokens=10)
    other = answer(tiny(), outside(30, 3), [silent, beside], max_new_tokens=10)
    assert list(map(told, one)) == list(map(told, other))


def test_what_is_asked_is_fed_once_for_all_lanes_that_need_it():
    model = tiny()
    shapes = shapes_of_forwards(model)
    lanes = [lane(noted(Noise(draw, frozenset({Question()}))), 12) for draw in range(3)]
    answer(model, outside(30), lanes, max_new_tokens=1)
    assert shapes == [(1, 30), (1, 150), (1, 2)]


def test_kvzip_keeps_what_a_repeated_text_looks_at_in_a_plain_forward():
    """The largest attention from any row of the repetition and either head of the group, the softmax being
    over the text and what is repeated so far; 4 first slots, then the best of all layers and heads.
    """
    model, prompt, budget = tiny(), outside(40), 15
    policy = kvzip()
    watched = noted(policy.scoring, policy.routing, protect=policy.protect)
    answer(model, prompt, [lane(watched, budget)], max_new_tokens=1)
    ((_, kept),) = watched.notes
    plain = plain_forward(model.network, prompt.context * 2)
    worth = {}
    for layer, head, slot in ((layer, head, slot) for layer in range(3) for head in range(2) for slot in range(40)):
        received = plain.weights[layer, 2 * head : 2 * head + 2, 40:, slot]
        worth[layer, head, slot] = 9.0 if slot < 4 else float(received.max())
    best = sorted(worth, key=worth.get, reverse=True)[: budget * 6]
    assert {tuple(place) for place in kept.nonzero().tolist()} == set(best)
    assert len(set(kept.sum(-1).flatten().tolist())) > 2


def test_a_long_text_is_repeated_in_chunks_with_what_came_before():
    signal = kvzip(chunk=10).scoring
    (repeated,) = signal.needs
    text = torch.arange(100, 125)
    found = [passage.tolist() for passage in repeated.passages(text, frozenset())]
    assert found == [[*range(100, 110)], [*range(102, 120)], [*range(112, 125)]]
    for wrong in ({"chunk": 0}, {"overlap": -1}):
        with pytest.raises(ValueError, match="chunk must be 1 token or more and overlap 0 or more"):
            type(repeated)(**wrong)


def test_kvzip_of_several_chunks_keeps_the_largest_of_any():
    model, prompt = tiny(), outside(30)
    views = []
    for chunk in (10, 30):
        policy = kvzip(chunk)
        watched = noted(policy.scoring, policy.routing, protect=Protect(0, 0))
        answer(model, prompt, [lane(watched, 15)], max_new_tokens=1)
        views.append(watched.notes[0][0])
    (chunked,) = views[0].signals.values()
    for layer in range(LAYERS):
        largest = torch.zeros(2, 30, dtype=torch.float64)
        for passage in (prompt.context[:10], prompt.context[2:20], prompt.context[12:30]):
            plain = plain_forward(model.network, prompt.context + passage)
            received = plain.weights[layer, :, 30:, :30].amax(1).view(2, 2, 30).amax(1)
            largest = largest.maximum(received)
        torch.testing.assert_close(chunked[layer], largest, rtol=1e-9, atol=1e-10)


def test_kvzip_in_blocks_repeats_what_has_been_read():
    model = tiny()
    shapes = shapes_of_forwards(model)
    (outcome,) = answer(
        model, outside(30), [lane(policies.get("kvzip", cadence=Blockwise(block=10)), 12)], max_new_tokens=1
    )
    assert isinstance(outcome, Outcome)
    assert shapes == [(1, 30), (1, 20), (1, 20), (1, 10), (1, 30)]


def test_a_text_that_leaves_no_positions_for_its_repetition_is_refused():
    model, prompt = tiny(max_position_embeddings=39), outside(20)
    fits = answer(tiny(max_position_embeddings=40), prompt, [lane(policies.get("kvzip"), 12)], max_new_tokens=2)
    assert isinstance(fits[0], Outcome)
    with pytest.raises(
        BadInput,
        match="RepeatAttention feeds extra tokens after the text, up to position 40, but model tiny-Llama has only 39",
    ):
        answer(model, prompt, [lane(policies.get("kvzip"), 12)], max_new_tokens=2)
