"""LongFlow: what a slot adds to the output of the current token."""

import torch
from policy_prompts import Prompt, a_view

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


def test_magnitude_is_the_mean_over_channels():
    values = torch.tensor([[[1.0, -3.0], [0.0, 0.5]]])
    found = MeanMagnitude().summarise(0, values, values, torch.ones(1, 2, dtype=torch.bool))
    assert found.tolist() == [[2.0, 0.25]]
