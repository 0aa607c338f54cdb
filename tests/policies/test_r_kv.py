"""R-KV and its SnapKV, by hand and by plain loops."""

import pytest
import torch
from policy_prompts import Prompt, a_prompt, a_view, measured

import policies
from policies.r_kv import (
    GroupMaxAttention,
    Importance,
    Joint,
    KeyRedundancy,
    importance,
    joint_score,
    r_kv,
    redundancy,
    snapkv_rkv,
    streamingllm_rkv,
)

# One head of width 2: six keys, of which the last two belong to the window of two queries.
KEYS = torch.tensor([[1, 0], [1, 0.1], [0, 1], [1, 0], [0.5, 0.5], [0, 1]], dtype=torch.float64)
QUERIES = torch.tensor([[1, 0], [0, 1]], dtype=torch.float64)


def close(found, *expected):
    torch.testing.assert_close(found, torch.tensor(expected, dtype=found.dtype), atol=1e-6, rtol=0)


def a_head(keys, queries) -> Prompt:
    n, width = keys.shape
    own = torch.zeros(n, width, dtype=keys.dtype)
    own[n - len(queries) :] = queries
    return Prompt(torch.arange(n), own[None, None], keys[None, None], keys[None, None], width**-0.5)


def test_six_keys_worked_out_by_hand():
    received = importance((QUERIES @ KEYS[:4].T / 2**0.5)[None], 1)[0] / 2
    close(received, 0.241153, 0.248335, 0.269359, 0.241153)
    close(measured(GroupMaxAttention(2), a_head(KEYS, QUERIES))[0], *received.tolist(), 0, 0)
    redundant = redundancy(KEYS[None], torch.ones(1, 6, dtype=torch.bool))[0]
    close(redundant[:4], 0.189718, 0.198150, 0.163414, 0.189718)
    assert float(redundant.sum()) == pytest.approx(1)
    pooled = torch.tensor([0.248335, 0.269359, 0.269359, 0.269359], dtype=torch.float64)
    close(joint_score(pooled, redundant[:4], 0.1), -0.145913, -0.151399, -0.120136, -0.143811)


def test_of_six_keys_the_near_duplicate_goes_first():
    prompt = a_head(KEYS, QUERIES)
    policy = r_kv(window=2, kernel=3)
    assert policy.keep(a_view(prompt, [policy]), 5)[0, 0].nonzero().flatten().tolist() == [0, 2, 3, 4, 5]
    assert policy.keep(a_view(prompt, [policy]), 4)[0, 0].nonzero().flatten().tolist() == [2, 3, 4, 5]


def test_eight_keys_whose_importance_is_max_pooled():
    keys = torch.tensor([[3, 0], [0, 0], [1, 0], [0, 0], [0, 2], [0, 0], [0, 0], [0, 0]], dtype=torch.float64)
    prompt = a_head(keys, QUERIES)
    found = Importance(2, 3).score(a_view(prompt, [snapkv_rkv(2, 3)])).slots[0, 0]
    close(found, 0.345122, 0.345122, 0.125432, 0.260468, 0.260468, 0.260468, 2, 2)
    policy = snapkv_rkv(2, 3)
    assert policy.keep(a_view(prompt, [policy]), 4)[0, 0].nonzero().flatten().tolist() == [0, 1, 6, 7]


def test_ten_slots_of_streamingllm():
    policy = streamingllm_rkv()
    kept = policy.keep(a_view(a_prompt(10), [policy]), 6)
    assert kept[0, 0].nonzero().flatten().tolist() == [0, 1, 2, 3, 8, 9]


def test_a_slot_that_no_head_holds_is_like_no_key():
    random = torch.Generator().manual_seed(0)
    keys = torch.randn(2, 140, 4, generator=random)
    filled = torch.ones(2, 140, dtype=torch.bool)
    filled[1, 90:] = False
    found = redundancy(keys, filled)
    torch.testing.assert_close(found[:1], redundancy(keys[:1], filled[:1]))
    torch.testing.assert_close(found[1:, :90], redundancy(keys[1:, :90], filled[1:, :90]))
    assert not found[1, 90:].any()


def test_the_window_is_kept_first_where_less_of_it_is_protected():
    for scoring in (Importance(), Joint(), Joint(weight=1), Joint(weight=0)):
        policy = policies.get("r-kv", scoring=scoring, protect=policies.Protect(0, 0))
        assert policy.keep(a_view(a_prompt(60), [policy]), 8)[1, 1].nonzero().flatten().tolist() == [*range(52, 60)]


def test_the_window_is_kept_before_a_slot_that_has_all_of_its_attention():
    """A softmax that is 1 in float32: slot 3 is as important as a slot can be, and so are its neighbours."""
    keys = torch.zeros(20, 2)
    keys[3, 0] = 400
    prompt = a_head(keys, torch.ones(8, 2))
    for scoring in (Importance(), Joint(weight=1)):
        policy = policies.get("r-kv", scoring=scoring, protect=policies.Protect(0, 0))
        view = a_view(prompt, [policy])
        assert scoring.score(view).slots[0, 0, 3] == 1
        assert policy.keep(view, 8)[0, 0].nonzero().flatten().tolist() == [*range(12, 20)]


def test_all_weight_on_importance_is_snapkv_rkv_and_none_is_redundancy():
    prompt = a_prompt(80)
    only = policies.get("r-kv", scoring=Joint(weight=1))
    assert torch.equal(only.keep(a_view(prompt, [only]), 30), snapkv_rkv().keep(a_view(prompt, [snapkv_rkv()]), 30))
    view = a_view(prompt, [policies.get("r-kv", scoring=Joint(weight=0))])
    found = Joint(weight=0).score(view).slots[..., :72]
    torch.testing.assert_close(found, -torch.stack(view.signals[KeyRedundancy()])[..., :72])
