"""CAOTE: by hand, and by what its formula claims to be."""

import math

import pytest
import torch
from policy_prompts import a_prompt, a_view, measured

import policies
from policies import Cadence, View
from policies.caote import OutputError, caote, output_errors
from policies.signals import AttentionSums, Values

ATTENTION = torch.tensor([[0.4, 0.1, 0.3, 0.2]])
VALUES = torch.tensor([[[1.0, 1], [1, 0], [0, 2], [3, 1]]])
# The six tokens of the other toys: the last row of each query head, and their values.
LAST_ROWS = torch.tensor([[0.2, 0.05, 0.3, 0.1, 0.05, 0.3], [0.3, 0.1, 0.1, 0.2, 0.1, 0.2]])
SIX_VALUES = torch.tensor([[[0.0, 0], [1, 0], [0, 1], [2, 2], [1, 1], [3, 0]]])


def kept(policy, budget, attention, values):
    (sums,) = (signal for signal in policy.needs if isinstance(signal, AttentionSums))
    signals = {sums: (attention,), Values(): (values,)}
    view = View(torch.arange(values.shape[1]), 1, len(values), frozenset(), 0, signals)
    return [head.nonzero().flatten().tolist() for head in policy.keep(view, budget)[0]]


def test_four_slots_worked_out_by_hand():
    # X = (1.1, 1.2); the last slot is (.2 / .8) * |(1.1, 1.2) - (3, 1)| = .25 * sqrt(3.65).
    found = output_errors(ATTENTION, VALUES)
    assert found[0].tolist() == pytest.approx([0.1491, 0.1338, 0.5829, 0.4776], abs=1e-4)
    assert kept(caote(), 2, ATTENTION, VALUES) == [[2, 3]]
    assert ATTENTION[0].argsort(descending=True)[:2].sort().values.tolist() == [0, 2]


def test_a_group_is_the_mean_of_what_each_query_head_would_lose():
    # X is (1.4, .6) of one head and (1.2, .6) of the other.
    expected = [0.4525, 0.0505, 0.3449, 0.2936, 0.0378, 0.6405]
    assert output_errors(LAST_ROWS, SIX_VALUES).mean(0).tolist() == pytest.approx(expected, abs=1e-4)
    assert kept(caote(), 4, LAST_ROWS, SIX_VALUES) == [[0, 2, 3, 5]]


def test_it_is_how_far_the_output_moves_when_one_slot_is_taken_away():
    random = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(6, 40, generator=random, dtype=torch.float64)
    values = torch.randn(2, 40, 8, generator=random, dtype=torch.float64)
    found = output_errors(logits.softmax(-1), values)
    for head in range(6):
        whole = logits[head].softmax(0) @ values[head // 3]
        for slot in range(40):
            others = torch.arange(40) != slot
            without = logits[head, others].softmax(0) @ values[head // 3, others]
            assert float(found[head, slot]) == pytest.approx(float((whole - without).norm()), rel=1e-9)


def test_only_shares_of_the_attention_count():
    random = torch.Generator().manual_seed(1)
    sums, values = torch.rand(4, 30, generator=random), torch.randn(2, 30, 8, generator=random)
    torch.testing.assert_close(output_errors(7 * sums, values), output_errors(sums, values))


def test_of_a_sink_that_has_nearly_all_attention_the_others_still_tell_what_would_be_left():
    """Its share is 1 in float32. Without it the output would be the mean of the others, 1e-9 each."""
    attention = torch.tensor([[1.0, 1e-9, 1e-9]])
    values = torch.tensor([[[0.0, 0.0], [4.0, 0.0], [0.0, 2.0]]])
    sink, one, other = output_errors(attention, values)[0].tolist()
    assert sink == pytest.approx(math.hypot(2, 1), rel=1e-6)
    assert (one, other) == (pytest.approx(4e-9), pytest.approx(2e-9))


@pytest.mark.parametrize("attention", [[0.0, 1.0, 0.0], [0.0, 1.0, 1e-30]])
def test_where_nothing_would_be_left_the_output_becomes_nothing(attention):
    values = torch.tensor([[[1.0, 0.0], [3.0, 4.0], [0.0, 2.0]]])
    found = output_errors(torch.tensor([attention]), values)[0]
    assert found.tolist() == [0, 5, pytest.approx(0, abs=1e-29)]
    assert kept(caote(), 1, torch.tensor([attention]), values) == [[1]]


@pytest.mark.parametrize("window", [1, 32, None])
def test_the_attention_is_that_of_the_method_that_it_is_put_on(window):
    prompt = a_prompt(200, layers=1, q_heads=4, kv_heads=2)
    policy = policies.get("caote", scoring=OutputError(window))
    found = policy.scoring.score(a_view(prompt, [policy])).slots[0]
    sums = measured(AttentionSums(window), prompt)
    errors = output_errors(sums, prompt.values[0])
    torch.testing.assert_close(found, (errors[0::2] + errors[1::2]) / 2)
    assert policies.get("caote", {"scoring.window": window}) == policy


def test_while_decoding_it_reads_the_last_query_alone():
    policy = policies.get("caote", cadence=Cadence(interval=16))
    assert {signal.window for signal in policy.needs if isinstance(signal, AttentionSums)} == {1}
