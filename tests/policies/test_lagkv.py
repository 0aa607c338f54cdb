"""LagKV: chunks that are ranked against the one after them."""

import pytest
import torch
from policy_prompts import a_prompt, a_view

import policies
from policies.lagkv import LagRelative, LagScores, lag_scores, lagkv, relative_spread


def test_three_tokens_against_the_chunk_after_them_by_hand():
    """The next chunk spans 0 to 2 and 0 to 4: (1, 1), (2, 0), (4, 8) become (.5, .25), (1, 0), (2, 2)."""
    own = torch.tensor([[1, 1], [2, 0], [4, 8]], dtype=torch.float64)
    after = torch.tensor([[0, 0], [2, 4], [1, 1]], dtype=torch.float64)
    found = relative_spread(torch.stack([own, after])[None])
    assert found.shape == (1, 1, 3)
    expected = torch.tensor([0.282689, 0.480428, 0.236884], dtype=torch.float64)
    torch.testing.assert_close(found[0, 0], expected, atol=1e-6, rtol=0)


def test_ranks_are_within_a_chunk_and_the_rest_is_newest_first():
    random = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(2, 4 + 3 * 8 + 5, 4, generator=random) for _ in range(2))
    found = lag_scores(keys, values, sinks=4, lag=8)
    assert (found[:, :4] > found[:, 4:].max()).all()
    for chunk in (found[:, 4:12], found[:, 12:20]):
        assert (chunk.sort().values == torch.arange(8) / 8).all()
    tail = found[:, 20:]
    assert (tail.diff() > 0).all()
    assert (tail > 1).all()


@pytest.mark.parametrize("n", [3, 4, 20, 4 + 2 * 16 - 1])
def test_without_two_chunks_the_sinks_and_the_latest_are_kept(n):
    random = torch.Generator().manual_seed(n)
    keys, values = (torch.randn(2, n, 4, generator=random) for _ in range(2))
    order = lag_scores(keys, values, sinks=4, lag=16)[1].argsort(stable=True, descending=True).tolist()
    assert order == [*range(min(4, n)), *range(n - 1, 3, -1)]


def test_a_chunk_without_a_range_divides_by_little_and_equal_tokens_rank_by_place():
    keys = torch.ones(1, 12, 4)
    keys[0, 2] = torch.arange(4.0)
    found = lag_scores(keys, torch.ones(1, 12, 4), sinks=0, lag=4)
    assert found[0, :4].tolist() == [0.5, 0.25, 0.75, 0.0]
    assert found[0, 4:8].tolist() == [0.75, 0.5, 0.25, 0.0]


def test_a_budget_below_the_last_chunk_keeps_the_sinks_and_its_latest():
    policy = lagkv(sinks=4, lag=128)
    kept = policy.keep(a_view(a_prompt(300), [policy]), 64)
    assert kept[1, 1].nonzero().flatten().tolist() == [0, 1, 2, 3, *range(240, 300)]


def test_heads_that_hold_fewer_slots_are_ranked_by_themselves():
    random = torch.Generator().manual_seed(2)
    keys, values = (torch.randn(2, 70, 4, generator=random) for _ in range(2))
    filled = torch.ones(2, 70, dtype=torch.bool)
    filled[1, 41:] = False
    found = LagScores(4, 16).summarise(0, keys, values, filled)
    torch.testing.assert_close(found[:1], lag_scores(keys[:1], values[:1], 4, 16))
    torch.testing.assert_close(found[1:, :41], lag_scores(keys[1:, :41], values[1:, :41], 4, 16))


def test_the_catalogue_holds_the_numbers_of_kvpress():
    assert policies.get("lagkv").scoring == LagRelative(sinks=4, lag=128)
