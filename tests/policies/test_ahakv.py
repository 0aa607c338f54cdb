"""AhaKV: a softmax whose entropy the budget sets, recent rows, and the size of the values."""

import math

import pytest
import torch
from policy_prompts import a_prompt, a_view

import policies
from policies.ahakv import Holistic, ahakv, recent_attention, softmax_gain, value_prior


def test_the_gain_by_hand():
    """sqrt(2 log(i / k)): 2 log 8 = 4.158883, 2 log 2 = 1.386294, and none up to the budget."""
    found = softmax_gain(torch.tensor([512, 128, 64, 10]), 64)
    expected = torch.tensor([2.039334, 1.177410, 0, 0], dtype=torch.float64)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("tokens", "budget"), [(4096, 1024), (20000, 4000), (20000, 10000)])
def test_the_entropy_of_a_row_is_that_of_an_even_spread_over_the_budget(tokens, budget):
    """Where queries and keys are normal, which is what the formula supposes; the plain softmax misses it."""
    random = torch.Generator().manual_seed(0)
    queries, keys = (torch.randn(n, 256, dtype=torch.float64, generator=random) for n in (32, tokens))
    logits = (queries @ keys.T / 16)[None]

    def entropy(scale: float) -> float:
        rows = (scale * logits).softmax(-1)
        return float(-(rows * rows.log()).sum(-1).mean())

    sharper = float(softmax_gain(torch.tensor([tokens]), budget))
    assert entropy(sharper) == pytest.approx(math.log(budget), abs=0.15)
    assert abs(entropy(1) - math.log(budget)) > 0.15


def test_two_rows_over_three_slots_by_hand():
    """A gain of 2 for the second row (i = k e^2), 0 for the first, which sees no more than the budget."""
    logits = torch.tensor([[[1.0, 2.0, -torch.inf], [0.0, math.log(3) / 2, math.log(2) / 2]]]).double()
    seen = torch.tensor([100, 739])  # 100 e^2 = 738.9
    found = recent_attention(logits, seen, 100)[0]
    expected = torch.tensor([0.5 + 1 / 6, 0.5 + 3 / 6, 2 / 6], dtype=torch.float64)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_a_row_that_sees_nothing_adds_nothing():
    logits = torch.full((1, 2, 3), -torch.inf)
    logits[0, 1, 1] = 5
    assert recent_attention(logits, torch.tensor([90, 100]), 10).tolist() == [[0.0, 1.0, 0.0]]


def test_the_prior_of_four_values_by_hand():
    """Squared norms 25, 1, 4, 0; neighbours of three that are there: 13, 10, 5/3, 2, by the largest, 13."""
    values = torch.tensor([[[3.0, 4.0], [1.0, 0.0], [0.0, 2.0], [0.0, 0.0], [9.0, 9.0]]])
    filled = torch.tensor([[True, True, True, True, False]])
    expected = torch.tensor([[1, 10 / 13, 5 / 39, 2 / 13, 0]])
    torch.testing.assert_close(value_prior(values, filled, 3), expected)
    torch.testing.assert_close(value_prior(values, filled, 1), torch.tensor([[1, 0.04, 0.16, 0, 0]]))
    assert not value_prior(torch.zeros(1, 4, 2), filled[:, :4], 3).any()


def test_a_view_without_a_budget_is_refused():
    view = a_view(a_prompt(50), [ahakv()])._replace(budget=None)
    with pytest.raises(ValueError, match=r"view\.budget must be set"):
        Holistic().score(view)
    assert policies.get("ahakv", scoring=Holistic(8, 3)).scoring.window == 8
