"""Expected Attention: by hand, by loops, and against what queries of such a distribution attend to."""

import math

import pytest
import torch
from policy_prompts import a_prompt, a_view, measured, rope

from policies import BudgetError, FedTokens, Rotation, View
from policies.expected_attention import (
    ExpectedAttention,
    Moments,
    QueryMoments,
    expected_attention,
    expected_logits,
    mean_rotation,
    undo_rotation,
)
from policies.signals import Keys, Norms

KEYS = torch.tensor([[[1.0, 0], [3, 4], [0, 2], [1, 1], [2, 1], [0, 3]]]) / 2
VALUES = torch.tensor([[[0.0, 0], [1, 0], [0, 1], [2, 2], [1, 1], [3, 0]]])
MEAN, COVARIANCE = torch.ones(1, 2), torch.diag(torch.tensor([1.0, 0.5]))[None]
STILL = Rotation(torch.zeros(1, dtype=torch.float64), 1.0)


def six_tokens(covariance):
    policy = expected_attention(sinks=0)
    norms = Norms().summarise(0, KEYS, VALUES, torch.ones(1, 6, dtype=torch.bool))
    moments = Moments(MEAN, covariance, torch.tensor([6.0]))
    signals = {QueryMoments(0): (moments,), Keys(): (KEYS,), Norms(): (norms,)}
    return policy, View(torch.arange(6), 1, 1, frozenset(), 0, signals, rotation=STILL)


def test_six_tokens_worked_out_by_hand():
    policy, view = six_tokens(COVARIANCE)
    found = policy.scoring.score(view).slots[0, 0].tolist()
    assert found == pytest.approx([0, 0.7151, 0.0478, 0.1311, 0.1126, 0.2388], abs=1e-4)
    assert policy.keep(view, 3)[0, 0].nonzero().flatten().tolist() == [1, 3, 5]
    expected = [0.0315, 0.7151, 0.0478, 0.0463, 0.0796, 0.0796]
    logits = expected_logits(Moments(MEAN, COVARIANCE, torch.ones(1)), torch.eye(2), KEYS)
    assert logits.softmax(-1)[0].tolist() == pytest.approx(expected, abs=1e-4)


def test_without_a_spread_the_mean_query_alone_counts():
    _, view = six_tokens(0 * COVARIANCE)
    found = ExpectedAttention(sinks=0).score(view).slots[0, 0]
    shares = [0.0616, 0.5135, 0.0877, 0.0877, 0.1248, 0.1248]
    norms = VALUES[0].norm(dim=-1).tolist()
    assert found.tolist() == pytest.approx([share * norm for share, norm in zip(shares, norms, strict=True)], abs=1e-3)


def test_epsilon_is_added_before_values_count():
    _, view = six_tokens(COVARIANCE)
    plain, raised = (ExpectedAttention(sinks=0, epsilon=e).score(view).slots[0, 0] for e in (0.0, 0.5))
    torch.testing.assert_close(raised - plain, 0.5 * VALUES[0].norm(dim=-1))


def test_the_logits_are_what_queries_of_that_distribution_have_on_average():
    """log E exp(q . k / sqrt(d)), over 200,000 queries."""
    random = torch.Generator().manual_seed(0)
    half = 0.6 * torch.randn(4, 4, generator=random, dtype=torch.float64)
    mean = torch.randn(1, 4, generator=random, dtype=torch.float64)
    keys = torch.randn(1, 5, 4, generator=random, dtype=torch.float64)
    queries = mean + torch.randn(200_000, 4, generator=random, dtype=torch.float64) @ half.T
    drawn = (queries @ keys[0].T / 2).exp().mean(0).log()
    found = expected_logits(
        Moments(mean, (half @ half.T)[None], torch.ones(1)), torch.eye(4, dtype=torch.float64), keys
    )
    torch.testing.assert_close(found[0], drawn, rtol=0, atol=0.02)


def turned(vector, position, rotation):
    """RoPE of the half layout, one pair at a time, as complex numbers."""
    half = len(vector) // 2
    out = [0.0] * len(vector)
    for pair, frequency in enumerate(rotation.frequencies.tolist()):
        angle = position * frequency
        one, other = vector[pair], vector[pair + half]
        out[pair] = rotation.scaling * (one * math.cos(angle) - other * math.sin(angle))
        out[pair + half] = rotation.scaling * (other * math.cos(angle) + one * math.sin(angle))
    return out


@pytest.mark.parametrize("scaling", [1.0, 1.2])
def test_turning_back_undoes_the_rotation_of_each_position(scaling):
    prompt = a_prompt(20, layers=1, dtype=torch.float64)
    rotation = rope(prompt)._replace(scaling=scaling)
    rotated = torch.tensor(
        [[turned(q, 50 + t, rotation) for t, q in enumerate(head)] for head in prompt.queries[0].tolist()],
        dtype=torch.float64,
    )
    torch.testing.assert_close(undo_rotation(rotated, rotation, 50), prompt.queries[0], rtol=0, atol=1e-4)


def test_the_mean_rotation_is_the_mean_over_the_next_positions():
    rotation = Rotation(torch.tensor([1.0, 0.1, 0.003], dtype=torch.float64), 1.1)
    like = torch.zeros(1, dtype=torch.float64)
    found = mean_rotation(rotation, 40, 25, like)
    vector = [0.3, -1.0, 2.0, 0.7, 0.1, -0.4]
    each = torch.tensor([turned(vector, 40 + t, rotation) for t in range(25)], dtype=torch.float64)
    expected = each.mean(0)
    torch.testing.assert_close(found @ torch.tensor(vector, dtype=torch.float64), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("sinks", [0, 4, 9])
@pytest.mark.parametrize("block", [130, 64, 7, 1])
def test_moments_are_those_of_all_queries_but_the_first_however_many_come_at_once(sinks, block):
    """With the answer, whose tokens come later: a mean of queries far from 0, whose spread is small."""
    prompt = a_prompt(130, layers=1, dtype=torch.float64)
    prompt = prompt._replace(queries=0.05 * prompt.queries + 3)
    found = measured(QueryMoments(sinks), prompt, block=block, asked=90)
    plain = undo_rotation(prompt.queries[0], rope(prompt), 0)[:, sinks:]
    mean = plain.sum(1) / (130 - sinks)
    spread = sum(torch.einsum("hi,hj->hij", plain[:, t] - mean, plain[:, t] - mean) for t in range(130 - sinks))
    torch.testing.assert_close(found.mean, mean, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.covariance, spread / (130 - sinks), rtol=1e-9, atol=1e-12)
    assert found.tokens.tolist() == [130 - sinks]


def test_in_float32_a_small_spread_around_a_large_mean_is_not_lost():
    """A sum of squares less the square of the sum would be wrong in the second digit."""
    prompt = a_prompt(200, layers=1)
    plain = 0.01 * prompt.queries[0] + 20
    still = STILL._replace(frequencies=torch.zeros(4, dtype=torch.float64))
    state = None
    for first in range(0, 200, 7):
        own = slice(first, min(first + 7, 200))
        state = QueryMoments(0).fold(FedTokens(plain, plain, first, 200, plain[:, own], still), state)
    exact = plain.double() - plain.double().mean(1, keepdim=True)
    torch.testing.assert_close(state.covariance.double(), exact.mT @ exact / 200, rtol=1e-2, atol=2e-7)


def test_sinks_neither_score_nor_count_among_the_others_and_are_kept():
    prompt = a_prompt(100, layers=1)
    policy = expected_attention()
    view = a_view(prompt, [policy])
    scores = policy.scoring.score(view).slots[0]
    assert not scores[:, :4].any()
    shares = scores / prompt.values[0].norm(dim=-1)
    torch.testing.assert_close(shares.sum(-1), torch.ones(2))
    assert policy.keep(view, 20)[..., :4].all()
    with pytest.raises(BudgetError, match="budget of 3 slots is below the 4 protected slots"):
        policy.keep(view, 3)


def test_a_model_whose_rotation_is_not_known_is_refused():
    policy, view = six_tokens(COVARIANCE)
    with pytest.raises(ValueError, match=r"view\.rotation must say how the model rotates queries"):
        policy.keep(view._replace(rotation=None), 3)
    fed = FedTokens(KEYS, VALUES, 0, 6, KEYS, None)
    assert QueryMoments(0).fold(fed, None) is None
