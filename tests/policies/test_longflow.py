"""LongFlow: what a slot adds to the output of the current token."""

import torch
from policy_prompts import Prompt, a_prompt, a_view

from policies.longflow import Contribution, MeanMagnitude, importance, longflow


def test_three_slots_worked_out_by_hand():
    """Two query heads of width 2 share a KV head. High attention and a small value: slot 2 goes."""
    keys = torch.tensor([[1, 0], [0, 1], [1, 1]], dtype=torch.float64)
    values = torch.tensor([[1, -1], [4, 0], [0, 0.5]], dtype=torch.float64)
    queries = torch.zeros(2, 3, 2, dtype=torch.float64)
    queries[:, 2] = torch.eye(2)
    attention = torch.stack([(keys @ query / 2**0.5).softmax(0) for query in queries[:, 2]])
    expected = [[0.401112, 0.197776, 0.401112], [0.197776, 0.401112, 0.401112]]
    torch.testing.assert_close(attention, torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=0)
    found = importance(attention, values.abs().mean(-1)[None])
    expected = torch.tensor([0.299444, 0.598888, 0.100278], dtype=torch.float64)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    prompt = Prompt(torch.arange(3), queries[None], keys[None, None], values[None, None], 2**-0.5)
    policy = longflow()
    view = a_view(prompt, [policy])
    torch.testing.assert_close(Contribution().score(view).slots[0, 0], expected, atol=1e-6, rtol=0)


def test_importance_is_the_mean_size_of_the_terms_of_the_output():
    prompt = a_prompt(40, q_heads=6, kv_heads=3, layers=2, dtype=torch.float64)
    found = Contribution().score(a_view(prompt, [longflow()])).slots
    assert found.shape == (2, 1, 40)
    for layer in range(2):
        terms = torch.zeros(40, dtype=torch.float64)
        for head in range(6):
            logits = prompt.scale * (prompt.keys[layer, head // 2] @ prompt.queries[layer, head, -1])
            weights = logits.softmax(0)
            for slot in range(40):
                terms[slot] += (weights[slot] * prompt.values[layer, head // 2, slot]).abs().sum() / (6 * 8)
        torch.testing.assert_close(found[layer, 0], terms)


def test_what_a_token_attends_to_is_what_their_buffer_holds():
    """Theirs is a buffer of b + 1 in which a token overwrites the slot that the last one named; ours a cache
    that is cut to b after every token. Forty tokens, one layer and head.
    """
    random = torch.Generator().manual_seed(0)
    queries, keys, values = (torch.randn(40, 4, dtype=torch.float64, generator=random) for _ in range(3))
    budget, buffer, named, cache = 6, list[int](), 0, list[int]()
    for token in range(40):
        if len(buffer) <= budget:
            buffer.append(token)
        else:
            buffer[named] = token
        cache.append(token)
        assert sorted(buffer) == cache
        weights = (keys[buffer] @ queries[token] / 2).softmax(0)
        named = int((weights * values[buffer].abs().mean(-1)).argmin())
        if len(cache) > budget:
            own = torch.tensor(cache)
            padded = torch.zeros(1, len(cache), 4, dtype=torch.float64)
            padded[0, -1] = queries[token]
            prompt = Prompt(own, padded[None], keys[own][None, None], values[own][None, None], 0.5)
            kept = longflow().keep(a_view(prompt, [longflow()]), budget)[0, 0]
            cache = own[kept].tolist()


def test_magnitude_is_the_mean_over_channels():
    values = torch.tensor([[[1.0, -3.0], [0.0, 0.5]]])
    found = MeanMagnitude().summarise(0, values, values, torch.ones(1, 2, dtype=torch.bool))
    assert found.tolist() == [[2.0, 0.25]]
