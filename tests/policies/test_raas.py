"""RaaS: stamps that attention renews."""

import pytest
import torch
from policy_prompts import a_prompt, a_view

import policies
from policies import BudgetError, View
from policies.protect import Pinned, Protect
from policies.raas import LastLooked, Stamps, raas, update_stamps


def of_row(attention, before, time, threshold=0.1):
    """Stamps of one layer and one head, after one row."""
    rows = torch.tensor([[attention]], dtype=torch.float32)
    before = torch.tensor([before], dtype=torch.int32)
    return update_stamps(rows, before, time, threshold)[0].tolist()


def test_three_steps_worked_out_by_hand():
    """The prompt is {0, 1}; the cache holds four tokens, and what it drops has the oldest stamp."""
    assert of_row([0.5, 0.05, 0.30, 0.15], [0, 0, 1], 2) == [2, 0, 2, 2]
    after = of_row([0.4, 0.05, 0.05, 0.30, 0.20], [2, 0, 2, 2], 3)
    assert after == [3, 0, 2, 3, 3]  # token 2 goes: nobody has looked at it since
    assert of_row([0.05, 0.05, 0.05, 0.05, 0.05], [3, 0, 3, 3], 4) == [3, 0, 3, 3, 4]


def a_cache(stamped, tokens, prompt):
    """One layer that holds these tokens, with these stamps."""
    signals = {Stamps(): (torch.tensor([stamped], dtype=torch.int32),)}
    stored = torch.tensor(tokens).view(1, 1, -1)
    return View(torch.arange(tokens[-1] + 1), 1, 2, frozenset(), 0, signals, stored=stored, prompt=prompt)


def kept(stamped, tokens):
    mask = raas().keep(a_cache(stamped, tokens, prompt=2), 4)
    assert torch.equal(mask[0, 0], mask[0, 1])
    return torch.tensor(tokens)[mask[0, 0]].tolist()


def test_the_oldest_stamp_of_the_answer_goes_and_of_equal_ones_the_earlier_token():
    assert kept([3, 0, 2, 3, 3], [0, 1, 2, 3, 4]) == [0, 1, 3, 4]
    assert kept([3, 0, 3, 3, 4], [0, 1, 3, 4, 5]) == [0, 1, 4, 5]


def test_the_prompt_stays_however_old_its_stamps():
    assert kept([0, 0, 9, 9, 9, 9], [0, 1, 2, 3, 4, 9]) == [0, 1, 4, 9]


def test_a_budget_below_the_prompt_is_refused():
    view = a_view(a_prompt(20), [raas()])
    with pytest.raises(BudgetError, match="budget of 19 slots is below the 20 protected slots of Pinned"):
        raas().keep(view, 19)
    assert raas().keep(view, 20).all()


def test_the_last_token_is_kept():
    assert raas().protect == Pinned(Protect(sinks=0, recent=1))
    assert policies.get("raas", scoring=LastLooked(0.5)).needs == {Stamps(0.5)}
