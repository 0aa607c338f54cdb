"""AhaKV: a softmax whose entropy the budget sets, recent rows, and the size of the values."""

import math

import pytest
import torch
from policy_prompts import a_prompt, a_view, measured

import policies
from policies.ahakv import Holistic, RecentLogits, ahakv, recent_attention, softmax_gain, value_prior


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


@pytest.mark.parametrize("n", [20, 140])
def test_logits_of_the_last_rows_are_the_same_whatever_the_blocks(n):
    prompt = a_prompt(n, layers=1)
    rows = min(32, n)
    expected = torch.full((4, rows, n), -torch.inf)
    for head in range(4):
        for row in range(n - rows, n):
            logits = prompt.scale * (prompt.keys[0, head // 2, : row + 1] @ prompt.queries[0, head, row])
            expected[head, row - n + rows, : row + 1] = logits
    for block in (128, 9):
        torch.testing.assert_close(measured(RecentLogits(32), prompt, block=block), expected)


def test_the_score_is_the_prior_times_the_mean_of_a_group():
    prompt, policy, budget = a_prompt(100, dtype=torch.float64), ahakv(), 40
    view = a_view(prompt, [policy])._replace(budget=budget)
    found = Holistic().score(view).slots
    for layer, head in ((0, 1), (1, 0)):
        received = torch.zeros(100, dtype=torch.float64)
        for query in (2 * head, 2 * head + 1):
            for row in range(68, 100):
                logits = prompt.scale * (prompt.keys[layer, head, : row + 1] @ prompt.queries[layer, query, row])
                scale = math.sqrt(2 * math.log((row + 1) / budget))
                received[: row + 1] += (scale * logits).softmax(0) / 2
        squares = prompt.values[layer, head].square().sum(-1)
        pooled = [squares[max(0, slot - 2) : slot + 3].mean() for slot in range(100)]
        prior = torch.stack(pooled) / max(pooled)
        torch.testing.assert_close(found[layer, head], prior * received)


def test_the_budget_decides_how_sharp_attention_is():
    prompt, policy = a_prompt(200), ahakv()
    view = a_view(prompt, [policy])
    sharp, even = (Holistic().score(view._replace(budget=budget)).slots for budget in (40, 200))
    prior = even / even[..., :160].max()
    # Up to the budget every row is spread evenly: what is left of the score is the prior.
    ratio = even[..., :168] / torch.stack([value_prior(v, torch.ones(2, 200) > 0, 5) for v in prompt.values])[..., :168]
    assert float(ratio.std() / ratio.mean()) < 1e-5
    assert not torch.allclose(sharp / sharp.max(), prior / prior.max())


def test_a_view_without_a_budget_is_refused_and_settings_are_checked():
    view = a_view(a_prompt(50), [ahakv()])._replace(budget=None)
    with pytest.raises(ValueError, match=r"view\.budget must say"):
        Holistic().score(view)
    assert policies.get("ahakv", scoring=Holistic(8, 3)).scoring.window == 8
    with pytest.raises(ValueError, match="kernel odd"):
        Holistic(kernel=4)
