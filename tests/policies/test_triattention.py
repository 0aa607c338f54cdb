"""The score of `1d` against numbers worked out by hand, and what its gates change of it."""

import math

import pytest
import torch
from policy_prompts import a_prompt, a_view

import policies
from policies import Calibrated, Statistics, View
from policies.signals import MeanValues
from policies.triattention import QueryStatistics, ValuePrior, expected_logits, max_standard_scores

# One head of two pairs, at t = 6; three keys, not yet rotated, at positions 0, 1 and 5.
STATISTICS = Statistics(
    query_mean=torch.tensor([[[1, 1j]]], dtype=torch.complex64),
    query_magnitude=torch.tensor([[[1.5, 1.0]]]),
    value_direction=torch.tensor([1.0, 0, 0, 0]),
    frequencies=torch.tensor([1, 0.01], dtype=torch.float64),
    scaling=1.0,
)
KEYS = torch.tensor([[1, 0], [0, 1], [1 + 1j, 1 + 1j]], dtype=torch.complex128)
POSITIONS = torch.tensor([0, 1, 5], dtype=torch.float64)


def rotated(keys, positions, frequencies):
    """Pairs [n, d/2] turned by their positions, in half layout [n, d]."""
    turned = keys * torch.exp(1j * positions[:, None] * frequencies)
    return torch.cat([turned.real, turned.imag], -1)


STORED = rotated(KEYS, POSITIONS, STATISTICS.frequencies)[None, None]


def test_the_score_of_three_keys_is_the_one_worked_out_by_hand():
    norm = torch.tensor([0.5, 0, 0.707107], dtype=torch.float64)
    rows = [[0.753902, -0.145500, -0.839072], [-0.059964, -0.069943, -0.089879], [1.472952, 0.120682, 0.273509]]
    for offset, row in zip((1, 2, 4), torch.tensor(rows, dtype=torch.float64).T, strict=True):
        found = expected_logits(STORED, STATISTICS, 6, (offset,))[0, 0]
        torch.testing.assert_close(found, row + norm, atol=1e-6, rtol=0)
    found = expected_logits(STORED, STATISTICS, 6, (1, 2, 4))[0, 0]
    expected = torch.tensor([0.423110, -0.073262, 1.329488], dtype=torch.float64)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert max_standard_scores(found[None]).topk(2).indices.sort().values.tolist() == [0, 2]


def test_scaling_multiplies_every_logit():
    twice = STATISTICS._replace(scaling=2.0)
    once = expected_logits(STORED, STATISTICS, 6, (1, 2))
    torch.testing.assert_close(expected_logits(STORED, twice, 6, (1, 2)), 2 * once)


def test_the_score_of_a_token_is_the_largest_standard_score_of_any_head():
    raw = torch.tensor([[12.0, 0, 1, 3, 5], [1, 2, 0, 4, 3], [0, 1, 2, 5, 4], [2, 0, 1, 4, 6]], dtype=torch.float64)
    expected = torch.tensor([1.830361, 0, -0.215666, 1.414214, 1.578410], dtype=torch.float64)
    found = max_standard_scores(raw)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert found.topk(2).indices.sort().values.tolist() == [0, 4]


def test_a_head_that_is_indifferent_scores_every_token_zero():
    assert max_standard_scores(torch.full((1, 7), 3.0)).tolist() == [0.0] * 7
    assert max_standard_scores(torch.tensor([[5.0]])).tolist() == [0.0]


def test_angles_stay_exact_tens_of_thousands_of_tokens_on():
    """In float32 the angle at 70,000 tokens is off by thousandths."""
    key = rotated(KEYS[:1], torch.zeros(1), STATISTICS.frequencies)[None, None].float()
    statistics = STATISTICS._replace(frequencies=torch.tensor([0.123456789, 0.01], dtype=torch.float64))
    (found,) = expected_logits(key, statistics, 70_001, (65_536,)).flatten().tolist()
    assert found == pytest.approx(math.cos((70_001 + 65_536) * 0.123456789) + 0.5, abs=2e-7)


def test_q_stats_is_1d_with_the_statistics_of_traces():
    prompt = a_prompt(80)
    view = a_view(prompt, [policies.get("1d"), policies.get("q_stats")])
    swapped = {**view.signals, Calibrated("text"): view.signals[Calibrated("traces")]}
    expected = policies.get("1d").keep(view._replace(signals=swapped), 30)
    assert torch.equal(policies.get("q_stats").keep(view, 30), expected)
    assert not torch.equal(policies.get("1d").keep(view, 30), expected)


def test_the_prior_adds_the_cosine_of_a_value_to_the_mean_direction():
    """Scores 1, 0.9, 0.8; values across, along and against the direction."""

    class Given(QueryStatistics):
        def score(self, view):
            return policies.Scores(torch.tensor([1.0, 0.9, 0.8]).view(1, 1, 3))

    values = torch.tensor([[0, 2.0], [3, 0], [-1, 0]])
    statistics = STATISTICS._replace(value_direction=torch.tensor([1.0, 0]))
    signals = {MeanValues(): (values,), Calibrated("traces"): statistics}
    view = View(torch.arange(3), 1, 1, frozenset(), 0, signals)
    found = ValuePrior(Given(), weight=0.5).score(view).slots[0, 0]
    torch.testing.assert_close(found, torch.tensor([1.0, 1.4, 0.3]))
    assert ValuePrior(Given(), weight=0.0).score(view).slots.argmax() == 0
    assert found.argmax() == 1


def test_a_prior_of_no_weight_is_1d():
    prompt = a_prompt(80)
    policy = policies.get("variant_b", scoring=ValuePrior(QueryStatistics(), weight=0.0))
    view = a_view(prompt, [policy, policies.get("variant_b")])
    assert torch.equal(policy.keep(view, 30), policies.get("1d").keep(view, 30))
    assert not torch.equal(policies.get("variant_b").keep(view, 30), policies.get("1d").keep(view, 30))
