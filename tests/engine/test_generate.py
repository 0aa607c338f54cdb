"""With everything kept, the engine is the network's own greedy `generate`."""

import pytest
import torch
from tiny_networks import FAMILIES, Drawn, Full, greedy, lane, outside, tiny, words

from protocol import engine


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("query", [0, 1, 5])
def test_full_and_a_full_budget_equal_generate_token_for_token(family, query):
    model = tiny(family)
    for seed in range(3):
        prompt = outside(40, query, seed)
        expected = greedy(model, prompt.context + prompt.query, 12)
        assert len(set(expected)) > 3, "the text is too dull to tell anything"
        ran = engine.run(model, prompt, [lane(Full()), lane(Drawn(), 40)], problem="p", max_new_tokens=12)
        assert [outcome.token_ids for outcome in ran.outcomes] == [expected, expected]


@pytest.mark.parametrize("family", FAMILIES)
def test_full_equals_generate_in_float32(family):
    model = tiny(family, torch.float32)
    prompt = outside(64)
    ran = engine.run(model, prompt, [lane(Full())], problem="p", max_new_tokens=16)
    assert ran.outcomes[0].token_ids == greedy(model, prompt.context, 16)


def test_one_query_head_a_kv_head_and_one_kv_head_for_all_equal_generate():
    for kv_heads in (4, 1):
        model = tiny(num_key_value_heads=kv_heads)
        prompt = outside(30, 3)
        ran = engine.run(model, prompt, [lane(Full())], problem="p", max_new_tokens=8)
        assert ran.outcomes[0].token_ids == greedy(model, prompt.context + prompt.query, 8)


def test_a_lane_stops_at_a_stop_token_which_is_not_part_of_the_text():
    free = greedy(tiny(), words(40), 12)
    token = free[6]
    model = tiny(stop=(token, 96))
    assert token not in free[:6]
    ran = engine.run(model, outside(40), [lane(Full())], problem="p", max_new_tokens=12)
    assert ran.outcomes[0].token_ids == free[:6] == greedy(model, words(40), 12)
    assert ran.outcomes[0].stop == "eos"


def test_a_lane_that_never_meets_a_stop_token_stops_by_length():
    ran = engine.run(tiny(), outside(40), [lane(Full())], problem="p", max_new_tokens=5)
    assert len(ran.outcomes[0].token_ids) == 5
    assert ran.outcomes[0].stop == "length"


def test_a_stop_token_right_after_the_prompt_leaves_an_empty_text():
    first = greedy(tiny(), words(40), 1)
    ran = engine.run(tiny(stop=first), outside(40), [lane(Full())], problem="p", max_new_tokens=5)
    assert ran.outcomes[0][:2] == ((), "eos")
    assert len(ran.outcomes[0].held) == 1
