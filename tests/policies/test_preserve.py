"""One preservation rule: the prompt, and a recency that is a number of slots or a share of the budget."""

from dataclasses import replace

import pytest
import torch
from looped import looped
from policy_prompts import a_prompt, a_view, at_a_later_event

import policies
from policies import Boundary, BudgetError, Cadence, Preserve


def recency(recent, budget, held=4000):
    filled = torch.ones(1, 1, held, dtype=torch.bool)
    found = Preserve(prompt=False, recent=recent).slots(filled, budget, decoding=True)
    assert found[0, 0].nonzero().flatten().tolist() == list(range(held - int(found.sum()), held))
    return int(found.sum())


@looped(
    ("recent", "slots"),
    [
        # For budgets of 3, 64, 67, 511, 512, 1024 slots, counted by hand.
        ("min(128, K/4)", [0, 16, 16, 127, 128, 128]),
        ("min(128,K/4)", [0, 16, 16, 127, 128, 128]),
        ("K/4", [0, 16, 16, 127, 128, 256]),
        ("K/3", [1, 21, 22, 170, 170, 341]),
        ("K/1", [3, 64, 67, 511, 512, 1024]),
        ("min(20, K/2)", [1, 20, 20, 20, 20, 20]),
        (16, [16] * 6),
        (0, [0] * 6),
    ],
)
def test_recency_is_a_number_or_a_share_of_the_budget_rounded_down(recent, slots):
    assert [recency(recent, budget) for budget in (3, 64, 67, 511, 512, 1024)] == slots


@looped(
    "recent",
    [
        *(-1, 1.5, True, None, "", "16", "K", "K/0", "K/-4", "k/4", "2*K", " K/4", "K/4\n", "K/٤"),
        *("min(128)", "min(K/4, 128)", "min(128, K/0)", "min(-1, K/4)", "min(128,  K/4)", "K/4000000000"),
    ],
)
def test_another_rule_is_refused_by_name(recent):
    with pytest.raises(ValueError, match=r'^recent: .* is not a number of slots; write a number, "K/4" or'):
        Preserve(recent=recent)
    with pytest.raises(ValueError, match=r'^sinks: .* is not a number of slots; write a number, "K/4" or'):
        Boundary(sinks=recent)


def test_the_prompt_and_the_last_slots_stay_and_the_rest_competes():
    """Budget 9 less 6 of the prompt and 9 // 4 = 2 recent ones leaves one slot for the scores."""
    policy = policies.get("h2o", protect=Preserve(), cadence=Cadence(interval=4))
    kept = policy.keep(at_a_later_event(policy), 9)
    assert (kept.sum(-1) == 9).all()
    assert kept[..., :6].all()
    assert kept[..., -2:].all()
    assert (kept[..., 6:9].sum(-1) == 1).all()


def test_without_the_prompt_only_the_last_slots_of_each_head_stay():
    filled = torch.tensor([[[True] * 8, [True] * 5 + [False] * 3]])
    prompt = torch.arange(8).lt(3) & filled
    found = Preserve(prompt=False, recent=2).slots(filled, 4, decoding=True, prompt=prompt)
    assert [head.nonzero().flatten().tolist() for head in found[0]] == [[6, 7], [3, 4]]
    both = Preserve(recent=2).slots(filled, 4, decoding=True, prompt=prompt)
    assert [head.nonzero().flatten().tolist() for head in both[0]] == [[0, 1, 2, 6, 7], [0, 1, 2, 3, 4]]


@looped(
    ("rule", "kept"),
    [
        # Of heads with 8 and 5 slots, at a budget of 10, counted by hand.
        (Boundary(False, "K/10", "K/5"), [[0, 1, 7], [0, 1, 4]]),
        (Boundary(False, 2, 0), [[6, 7], [3, 4]]),
        (Boundary(False, 0, 6), [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4]]),
        (Boundary(True, 1, 4), [[0, 1, 2, 3, 7], [0, 1, 2, 3, 4]]),
    ],
)
def test_the_boundary_is_the_first_and_the_last_slots_of_each_head(rule, kept):
    filled = torch.tensor([[[True] * 8, [True] * 5 + [False] * 3]])
    prompt = torch.arange(8).lt(3) & filled
    found = rule.slots(filled, 10, decoding=True, prompt=prompt)
    assert [head.nonzero().flatten().tolist() for head in found[0]] == kept


EVICTING = [name for name in policies.names() if policies.get(name).evicts]
PROMPT = a_prompt(300)


@looped("name", EVICTING)
def test_one_rule_holds_in_every_policy_whatever_it_protected_before(name):
    """The last 200 // 4 slots stay, also of a policy whose own window or sinks were longer or shorter."""
    policy = replace(policies.get(name), protect=Preserve(prompt=False, recent="K/4"))
    kept = policy.keep(a_view(PROMPT, [policy]), 200)
    assert kept[..., -50:].all()
    assert kept.sum() <= 200 * kept[..., 0].numel()
    assert set(policies.diff(policies.get(name), policy)) == {"protect"}
    boundary = replace(policy, protect=Boundary(False, "K/10", "K/5")).keep(a_view(PROMPT, [policy]), 200)
    assert boundary[..., :40].all()
    assert boundary[..., -20:].all()


def test_all_of_a_prompt_is_preserved_at_the_end_of_its_prefill():
    policy = policies.get("knorm", protect=Preserve())
    view = a_view(a_prompt(40), [policy])
    with pytest.raises(BudgetError, match="budget of 39 slots is below the 40 protected slots of Preserve"):
        policy.keep(view, 39)
    assert policy.keep(view, 40).all()
    free = policies.get("knorm", protect=Preserve(prompt=False))
    assert (free.keep(view, 39).sum(-1) == 39).all()
    assert free.keep(view, 39)[..., -9:].all()  # 39 // 4
