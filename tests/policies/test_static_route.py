"""static_route: slots at even distances, whose slots they are, and which head goes which way."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from policy_prompts import a_prompt, a_view

import policies
from policies import Calibrated, Protect, Routes
from policies.static_route import even_scores

TABLE = Calibrated("routes", Routes)


def even(n, count):
    return even_scores(torch.ones(n, dtype=torch.bool), count).nonzero().flatten().tolist()


def test_slots_at_even_distances_worked_out_by_hand():
    assert even(10, 4) == [0, 3, 6, 9]
    assert even(9, 3) == [0, 4, 8]
    assert even(10, 3) == [0, 5, 9]  # halfway between 4 and 5: the later
    assert even(7, 1) == [0]
    assert even(3, 5) == [0, 1, 2]


def test_even_distances_are_counted_over_what_a_head_holds():
    random = torch.Generator().manual_seed(0)
    for n in range(1, 12):
        filled = torch.rand(6, n, generator=random) > 0.3
        for count in range(1, 14):
            for row, worth in zip(filled, even_scores(filled, count), strict=True):
                slots = row.nonzero().flatten().tolist()
                wanted = min(count, len(slots))
                steps = [Fraction(i * (len(slots) - 1), max(wanted - 1, 1)) for i in range(wanted)]
                expected = [slots[math.floor(step + Fraction(1, 2))] for step in steps]
                assert worth.nonzero().flatten().tolist() == expected
                assert len(set(worth[worth > 0].tolist())) == wanted


def routed(attention, budget, *, kept=(), n=100, **parts):
    """What the policy and its parent keep, with this table."""
    policy = replace(policies.get("static_route"), **parts)
    view = a_view(a_prompt(n), [policy])
    signals = {**view.signals, TABLE: Routes(torch.tensor(attention))}
    parent = replace(policies.get("1d-per-head"), **parts)
    return policy.keep(view._replace(signals=signals), budget), parent.keep(view, budget)


def test_each_head_goes_its_own_way():
    attention = [[True, False], [False, True]]
    found, by_score = routed(attention, 31)
    for layer in range(2):
        for head in range(2):
            own = found[layer, head].nonzero().flatten().tolist()
            assert (own == even(100, 31)) != attention[layer][head]
            assert torch.equal(found[layer, head], by_score[layer, head]) == attention[layer][head]


def test_a_table_that_sends_no_head_away_is_its_parent():
    found, by_score = routed([[True, True], [True, True]], 31)
    assert torch.equal(found, by_score)


def test_protected_slots_come_first_and_what_is_left_stays_spread_out():
    """16 slots at even distances, of which 8 give way to the last 8; they are among them once."""
    found, _ = routed([[False, False], [False, False]], 16, protect=Protect(sinks=0, recent=8), n=160)
    kept = found[0, 0].nonzero().flatten().tolist()
    assert kept[-8:] == list(range(152, 160))
    others = kept[:-8]
    assert len(others) == 8
    assert set(others) < set(even(160, 16))
    gaps = [later - sooner for sooner, later in pairwise([*others, 160])]
    assert max(gaps) <= 2 * 160 / 8


def test_a_table_of_another_model_is_refused():
    with pytest.raises(ValueError, match=r"routes must be for 2 layers and 2 KV heads, not \[3, 2\]"):
        routed([[True, True]] * 3, 31)
