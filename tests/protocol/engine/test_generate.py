"""With everything kept, the engine is the network's own greedy `generate`."""

from itertools import product

import pytest
import torch
from many_lanes import two_dozen_lanes
from plain_forward import plain_forward
from sampled import sampled
from tiny_networks import FAMILIES, VOCABULARY, all_kept, answer, drawn, greedy, lane, outside, tiny, words

from policies import Cadence
from protocol import engine
from protocol.engine import Outcome, Request
from protocol.engine.sampling import Draw


@pytest.mark.parametrize(("family", "query"), sampled(FAMILIES, [0, 1, 5], of=3))
def test_full_and_a_full_budget_equal_generate_token_for_token(family, query, device):
    model = tiny(family, device=device)
    for seed in range(2):
        prompt = outside(40, query, seed)
        expected = greedy(model, prompt.context + prompt.query, 12)
        assert len(set(expected)) > 3, "the text is too dull to tell anything"
        lanes = [lane(all_kept()), lane(drawn(), 40), lane(drawn(cadence=Cadence(interval=2)), 60)]
        for chunk in (None, 7, 39, 64):
            outcomes = answer(model, prompt, lanes, max_new_tokens=12, prefill_chunk=chunk)
            assert [outcome.token_ids for outcome in outcomes] == [expected] * 3, chunk


@pytest.mark.parametrize("family", sampled(FAMILIES, of=2))
def test_full_equals_generate_for_several_problems_in_few_places(family, device):
    free = tiny(family, device=device)
    model = free._replace(stop_ids=frozenset({greedy(free, words(30), 8)[3]}))
    requests = [
        Request(
            f"p{number}",
            outside(30 + 3 * (number % 3), (0, 4)[number % 2], seed=number),
            (lane(all_kept()), lane(drawn(), 50)),
        )
        for number in range(5)
    ]
    texts = [greedy(model, request.prompt.context + request.prompt.query, 8) for request in requests]
    assert len(set(map(len, texts))) > 1
    for chunk, most in product((None, 11), (1, 3, 10)):
        ran = engine.run(model, requests, max_new_tokens=8, prefill_chunk=chunk, max_concurrent=most)
        for expected, answers in zip(texts, ran.answers, strict=True):
            assert [outcome.token_ids for outcome in answers.outcomes] == [expected] * 2, (chunk, most)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("chunk", [None, 25])
def test_full_equals_generate_in_float32(family, chunk):
    model = tiny(family, torch.float32)
    prompt = outside(64)
    (outcome,) = answer(model, prompt, [lane(all_kept())], max_new_tokens=16, prefill_chunk=chunk)
    assert outcome.token_ids == greedy(model, prompt.context, 16)


@pytest.mark.parametrize(("family", "chunk"), sampled(FAMILIES, [None, 7], of=2))
def test_bfloat16_runs_every_kind_of_lane_and_stays_near_exact_arithmetic(family, chunk, logits_of, device):
    model = tiny(family, torch.bfloat16, device=device)
    exact = tiny(family, torch.bfloat16, device=device).network.double()
    prompt = outside(40, 3)
    outcomes = answer(model, prompt, two_dozen_lanes(), max_new_tokens=8, prefill_chunk=chunk)
    assert all(isinstance(outcome, Outcome) and len(outcome.token_ids) == 8 for outcome in outcomes)
    assert all(0 <= token < VOCABULARY for outcome in outcomes for token in outcome.token_ids)
    assert all(logits.isfinite().all() for logits in logits_of.values())
    answer(model, prompt, [lane(all_kept())], problem="full", max_new_tokens=1, prefill_chunk=chunk)
    expected = plain_forward(exact, prompt.context + prompt.query).logits[-1]
    found = logits_of[Draw("full", 0, 0)].double()
    assert torch.corrcoef(torch.stack([found, expected]))[0, 1] > 0.99


def test_one_query_head_a_kv_head_and_one_kv_head_for_all_equal_generate():
    for kv_heads in (4, 1):
        model = tiny(num_key_value_heads=kv_heads)
        prompt = outside(30, 3)
        for chunk in (None, 8):
            (outcome,) = answer(model, prompt, [lane(all_kept())], max_new_tokens=8, prefill_chunk=chunk)
            assert outcome.token_ids == greedy(model, prompt.context + prompt.query, 8)


def test_a_lane_stops_at_a_stop_token_which_is_not_part_of_the_text():
    free = greedy(tiny(), words(40), 12)
    token = free[6]
    model = tiny(stop=(token, 96))
    assert token not in free[:6]
    (outcome,) = answer(model, outside(40), [lane(all_kept())], max_new_tokens=12)
    assert outcome.token_ids == free[:6] == greedy(model, words(40), 12)
    assert outcome.stop == "eos"


def test_a_lane_that_never_meets_a_stop_token_stops_by_length():
    (outcome,) = answer(tiny(), outside(40), [lane(all_kept())], max_new_tokens=5)
    assert len(outcome.token_ids) == 5
    assert outcome.stop == "length"


def test_a_stop_token_right_after_the_prompt_leaves_an_empty_text():
    first = greedy(tiny(), words(40), 1)
    (outcome,) = answer(tiny(stop=first), outside(40), [lane(all_kept())], max_new_tokens=5)
    assert outcome[:2] == ((), "eos")
    assert len(outcome.slots) == 1
