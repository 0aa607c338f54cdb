"""A pinned prompt is never evicted from."""

from dataclasses import replace

import pytest
import torch
from policy_prompts import STORED, a_prompt, a_view, at_a_later_event

import policies
from policies import BudgetError, Cadence, Pinned, Protect, RecentHalf, pin_prompt


def test_at_a_later_event_the_prompt_stays_and_the_answer_is_cut():
    policy = pin_prompt(policies.get("streaming"))
    kept = policy.keep(at_a_later_event(policy), 8)[1, 1]
    assert STORED[kept].tolist() == [0, 1, 2, 3, 4, 5, 10, 11]
    free = policies.get("streaming").keep(at_a_later_event(policy), 8)[1, 1]
    assert STORED[free].tolist() == [0, 1, 2, 3, 7, 9, 10, 11]


@pytest.mark.parametrize("name", ["h2o", "1d", "1d_div", "snapkv_with_window", "random"])
def test_every_policy_can_be_pinned(name):
    policy = pin_prompt(policies.get(name, cadence=Cadence(interval=4)))
    if name == "random":
        policy = pin_prompt(policies.get(name, protect=Protect(1, 2)))
    view = at_a_later_event(policy)
    for budget in (9, 10):
        kept = policy.keep(view, budget)
        assert kept[..., :6].all()
        assert (kept.sum(-1) == budget).all()


def test_a_prompt_that_does_not_fit_is_refused_whatever_the_event():
    policy = pin_prompt(policies.get("h2o"))
    with pytest.raises(BudgetError, match="budget of 5 slots is below the 6 protected slots of Pinned"):
        policy.keep(at_a_later_event(policy), 5)
    with pytest.raises(BudgetError, match="budget of 39 slots is below the 40 protected slots"):
        policy.keep(a_view(a_prompt(40), [policy]), 39)
    assert policy.keep(a_view(a_prompt(40), [policy]), 40).all()


def test_half_of_what_the_prompt_leaves_is_recent():
    filled = torch.ones(1, 1, 20, dtype=torch.bool)
    prompt = torch.arange(20).lt(8).view(1, 1, 20)
    found = Pinned(RecentHalf()).slots(filled, 14, decoding=True, prompt=prompt)
    assert found[0, 0].nonzero().flatten().tolist() == [*range(8), 17, 18, 19]


def test_a_slot_beyond_those_of_a_head_is_not_of_the_prompt():
    policy = pin_prompt(policies.get("knorm"))
    stored = torch.tensor([[[0, 1, 5, 6], [0, 5, -1, -1]]]).expand(2, 2, 4)
    view = a_view(a_prompt(4), [policy])._replace(stored=stored, prompt=2, token_ids=torch.arange(7))
    kept = policy.keep(view, 2)
    assert kept.tolist() == [[[True, True, False, False], [True, True, False, False]]] * 2


def test_pinning_changes_what_is_protected_and_nothing_else_and_only_once():
    policy = policies.get("1d")
    assert set(policies.diff(policy, pin_prompt(policy))) == {"protect"}
    assert pin_prompt(policy).protect == Pinned(policy.protect)
    assert pin_prompt(pin_prompt(policy)) == pin_prompt(policy)
    assert pin_prompt(policies.get("full")) == policies.get("full")
    assert hash(pin_prompt(policy)) == hash(replace(pin_prompt(policy)))
