"""Every policy of the catalogue runs in one batch, and what is held is what was budgeted."""

import pytest
import torch
from tiny_networks import FAMILIES, greedy, lane, outside, tiny

import policies
from protocol import engine

HEADS = 3 * 2


def lanes(*budgets):
    every = [policies.get(name) for name in policies.names()]
    return [lane(policy, budget if policy.evicts else None, seed=1) for budget in budgets for policy in every]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_policy_holds_its_budget_after_one_shared_prefill(family):
    model, prompt, given = tiny(family, torch.float32), outside(280, 3), lanes(200, 240)
    ran = engine.run(model, prompt, given, problem="p", max_new_tokens=5)
    for one, outcome in zip(given, ran.outcomes, strict=True):
        assert isinstance(outcome, engine.Outcome), outcome
        if one.budget is None:
            assert outcome.held[0] == HEADS * 280
            assert outcome.token_ids == greedy(model, prompt.context + prompt.query, 5)
        else:
            slack = HEADS * one.policy.selection.slack
            assert HEADS * one.budget - slack <= outcome.held[0] <= HEADS * one.budget
            assert outcome.events == ((0, HEADS * 280, outcome.held[0]),)


def test_every_policy_with_room_for_all_equals_generate():
    model, prompt = tiny(), outside(150)
    ran = engine.run(model, prompt, lanes(150), problem="p", max_new_tokens=8)
    expected = greedy(model, prompt.context, 8)
    assert [outcome.token_ids for outcome in ran.outcomes] == [expected] * len(ran.outcomes)


def test_a_budget_below_the_protected_set_fails_its_lane_with_the_reason_of_the_policy():
    model, prompt = tiny(), outside(200)
    given = [lane(policies.get("snapkv"), 2), lane(policies.get("full"))]
    ran = engine.run(model, prompt, given, problem="p", max_new_tokens=2)
    assert isinstance(ran.outcomes[0], engine.LaneFailure)
    assert ran.outcomes[0].reason.startswith("budget of 2 slots is below the ")
    assert isinstance(ran.outcomes[1], engine.Outcome)
