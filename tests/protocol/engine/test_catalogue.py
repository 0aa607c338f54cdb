"""Every policy of the catalogue runs in one batch, and what is held is what was budgeted."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from sampled import sampled
from tiny_networks import DEPTH, FAMILIES, KV_HEADS, answer, competing, greedy, lane, outside, preserves, tiny

import policies
from policies import AttentionSignal, Cadence
from protocol import engine
from protocol.formats.refusals import BadInput

HEADS = DEPTH * KV_HEADS


CADENCES = (Cadence(interval=4), Cadence(interval=3, slack=False))


NAMES = policies.names()


def lanes(*budgets, names=NAMES):
    every = [competing(policies.get(name)) for name in names]
    return [lane(policy, budget if policy.evicts else None, seed=1) for budget in budgets for policy in every]


@contextmanager
def no_tensor_left_in_a_cycle() -> Iterator[None]:
    """What is over is freed at once: a study of hours would else hold the slots of many lanes that ended."""
    gc.collect()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = sum(isinstance(one, torch.Tensor) for one in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert left == 0


@pytest.mark.parametrize(("family", "part"), sampled(FAMILIES, range(4), of=4))
def test_every_policy_holds_its_budget_after_one_shared_prefill(family, part):
    """A quarter of them at a time; `make test` runs each quarter with a family of its own."""
    model, prompt, given = (
        tiny(family, torch.float32, num_hidden_layers=DEPTH),
        outside(280, 3),
        lanes(200, 240, names=policies.names()[part::4]),
    )
    with no_tensor_left_in_a_cycle():
        outcomes = answer(model, prompt, given, max_new_tokens=5)
    for one, outcome in zip(given, outcomes, strict=True):
        assert isinstance(outcome, engine.Outcome), outcome
        if one.budget is None:
            assert outcome.slots[0] == HEADS * 280
            assert outcome.token_ids == greedy(model, prompt.context + prompt.query, 5)
        else:
            budget = one.policy.cadence.budget(one.budget, 0)  # of a cache, where several share what is given
            least = HEADS * (budget - one.policy.selection.unused)
            assert (1 if one.policy.routing.bounds else least) <= outcome.slots[0] <= HEADS * budget
            assert outcome.events[0] == (0, HEADS * 280, outcome.slots[0])


def test_every_policy_with_room_for_all_equals_generate():
    """All but those whose budget is an upper bound, or is for several caches: they may evict all the same."""
    model, prompt = tiny(num_hidden_layers=DEPTH), outside(150)
    given = [one for one in lanes(160) if not one.policy.routing.bounds]
    given = [one for one in given if one.policy.cadence.budget(one.budget or 160, 0) == 160]
    outcomes = answer(model, prompt, given, max_new_tokens=8)
    expected = greedy(model, prompt.context, 8)
    assert [outcome.token_ids for outcome in outcomes] == [expected] * len(outcomes)


@pytest.mark.parametrize(("part", "cadence"), sampled(range(2), CADENCES, of=2))
def test_every_policy_holds_its_budget_through_events_or_cannot_have_any(part, cadence):
    model, prompt = tiny(dtype=torch.float32, num_hidden_layers=DEPTH), outside(280, 3)
    for name in policies.names()[part::2]:
        if not policies.get(name).evicts:
            continue
        policy = competing(policies.get(name, cadence=cadence))
        if not all(signal.carried for signal in policy.needs if isinstance(signal, AttentionSignal)):
            with pytest.raises(BadInput, match="cannot be measured while decoding"):
                answer(model, prompt, [lane(policy, 200)], max_new_tokens=8)
            continue
        (outcome,) = answer(model, prompt, [lane(policy, 200)], max_new_tokens=8)
        assert isinstance(outcome, engine.Outcome), f"{name}: {outcome}"
        unused = HEADS * policy.selection.unused
        assert len(outcome.events) >= 2
        least = 1 if policy.routing.bounds else HEADS * 200 - unused
        assert all(least <= after <= HEADS * 200 for _, _, after in outcome.events)


@pytest.mark.parametrize("cadence", CADENCES)
def test_every_policy_that_keeps_the_prompt_holds_its_budget_through_events_of_the_answer(cadence):
    named = [name for name in policies.names() if preserves(policies.get(name))]
    given = [lane(policies.get(name, cadence=cadence), 60) for name in named]
    outcomes = answer(tiny(dtype=torch.float32, num_hidden_layers=DEPTH), outside(40, 3), given, max_new_tokens=30)
    for name, one, outcome in zip(named, given, outcomes, strict=True):
        assert isinstance(outcome, engine.Outcome), f"{name}: {outcome}"
        assert outcome.events[0] == (0, HEADS * 40, HEADS * 40)
        assert len(outcome.events) >= 3
        least = 1 if one.policy.routing.bounds else HEADS * 60
        assert all(least <= after <= HEADS * 60 for _, _, after in outcome.events[1:])


def test_a_budget_below_the_protected_set_fails_its_lane_with_the_reason_of_the_policy():
    given = [lane(policies.get("snapkv"), 2), lane(policies.get("full"))]
    failed, sound = answer(tiny(), outside(200), given, max_new_tokens=2)
    assert isinstance(failed, engine.LaneFailure)
    assert failed.reason.startswith("budget of 2 slots is below the ")
    assert isinstance(sound, engine.Outcome)
