"""Policies that score by the attention of the last queries, where prompts and budgets are short."""

import pytest
import torch
from looped import looped
from policy_prompts import Prompt, a_prompt, a_view, measured

import policies
from policies import AttentionRows, BudgetError, Cadence
from policies.signals import PastAttention, attention_rows
from policies.snapkv_with_window import WindowFirst, snapkv_with_window

# One head of width 2; the last two queries see six keys before them.
PAST = [0.345122, 0.089659, 0.125432, 0.089659, 0.260468, 0.089659]


def eight_keys():
    keys = torch.tensor([[3, 0], [0, 0], [1, 0], [0, 0], [0, 2], [0, 0], [0, 0], [0, 0]], dtype=torch.float64)
    queries = torch.zeros(8, 2, dtype=torch.float64)
    queries[6:] = torch.tensor([[1, 0], [0, 1]])
    return Prompt(torch.arange(8), queries[None, None], keys[None, None], keys[None, None], 2**-0.5)


def test_eight_keys_worked_out_by_hand():
    prompt = eight_keys()
    found = measured(PastAttention(2), prompt)[0] / 2
    torch.testing.assert_close(found, torch.tensor([*PAST, 0, 0], dtype=torch.float64), atol=1e-6, rtol=0)
    for kernel, kept in ((1, [0, 4, 6, 7]), (3, [0, 1, 6, 7])):
        policy = snapkv_with_window(window=2, kernel=kernel)
        assert policy.keep(a_view(prompt, [policy]), 4)[0, 0].nonzero().flatten().tolist() == kept


def test_pooling_takes_the_largest_neighbour_before_the_window():
    prompt, scoring = eight_keys(), WindowFirst(window=2, kernel=3)
    found = scoring.score(a_view(prompt, [policies.get("1d", scoring=scoring)])).slots[0, 0]
    expected = [PAST[0], PAST[0], PAST[2], PAST[4], PAST[4], PAST[4]]
    torch.testing.assert_close(found[:6], 2 * torch.tensor(expected, dtype=torch.float64), atol=2e-6, rtol=0)
    assert (found[6:] > 2).all()


def test_the_window_is_kept_latest_first_when_the_budget_is_below_it():
    policy = policies.get("snapkv_with_window")
    view = a_view(a_prompt(60), [policy])
    for budget, first in ((3, 57), (8, 52)):
        assert policy.keep(view, budget)[1, 1].nonzero().flatten().tolist() == list(range(first, 60))


@looped("n", [3, 8, 9, 130, 140])
def test_attention_before_the_window_is_a_softmax_over_those_slots_alone(n):
    """Whatever blocks the rows come in: 130 and 140 cut the window of the last eight in two."""
    prompt, window = a_prompt(n, dtype=torch.float64, layers=1), 8
    past = max(0, n - window)
    expected = torch.zeros(4, n, dtype=torch.float64)
    for head in range(4):
        for row in range(past, n) if past else ():
            logits = prompt.scale * (prompt.keys[0, head // 2, :past] @ prompt.queries[0, head, row])
            expected[head, :past] += logits.softmax(0)
    for block in (128, 5):
        found = measured(PastAttention(window), prompt, block=block)
        torch.testing.assert_close(found, expected)


def test_a_query_that_sees_nothing_but_the_window_adds_nothing():
    rows = torch.tensor([[[0.0, 0.0, 1.0]]])
    assert PastAttention(1).attend(AttentionRows(rows, 0, 2, 3, 1), None).tolist() == [[0.0, 0.0, 0.0]]


def test_fewer_queries_than_the_window_are_those_that_there_are():
    """Five queries have been seen; seven slots are left of them and of an older text."""
    random = torch.Generator().manual_seed(0)
    queries, keys = (torch.randn(2, n, 4, generator=random) for n in (5, 12))
    rows = attention_rows(queries, keys, 0.5, 7)
    found = PastAttention(8).attend(AttentionRows(rows, 0, 0, 5, 1), None)
    expected = (rows[..., :4] / rows[..., :4].sum(-1, keepdim=True)).sum(1)
    torch.testing.assert_close(found[:, :4], expected)
    assert not found[:, 4:].any()


@looped("name", ["snapkv", "pyramidkv", "chunkkv", "ada-snapkv"])
@looped("n", [1, 20, 32, 33])
def test_a_prompt_within_the_window_is_kept_whole_where_events_follow(name, n):
    policy = policies.get(name, cadence=Cadence(interval=16))
    view = a_view(a_prompt(n), [policy])
    assert policy.keep(view, 64).all()
    assert policy.keep(view, n).all()
    if n > 1:
        with pytest.raises(BudgetError, match=r"budget of \d+ slots is below the \d+ protected"):
            policy.keep(view, min(n, 32) - 1)
