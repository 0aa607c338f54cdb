"""Budgets that change from round to round."""

import itertools
from dataclasses import replace

import pytest

import policies
from policies import Cadence, Schedule

# The example: a budget of 96, 64 slots up and down, four rounds of 32 tokens.
EXAMPLE = Schedule(interval=32, amplitude=64 / 96, rounds=4)


@pytest.mark.parametrize(
    ("load", "budgets"), [("front", [160, 117, 74, 32]), ("back", [32, 74, 117, 160]), ("inverted", [32, 32, 160, 160])]
)
def test_budgets_of_four_rounds_worked_out_by_hand(load, budgets):
    cadence = replace(EXAMPLE, load=load)
    assert [cadence.budget(96, 32 * place) for place in range(4)] == budgets
    assert [cadence.budget(96, step) for step in (31, 32, 63, 64)] == [budgets[0], *budgets[1:2] * 2, budgets[2]]
    assert cadence.budget(96, 100_000) == budgets[-1]
    assert (cadence.smallest_budget(96), cadence.largest_budget(96)) == (32, 160)
    assert cadence.budgets(96) == tuple(budgets)


@pytest.mark.parametrize("name", ["schedule-front", "schedule-back", "schedule-inverted"])
@pytest.mark.parametrize("budget", [64, 96, 128])
def test_the_mean_over_the_rounds_is_the_registered_budget_but_for_rounding_down(name, budget):
    cadence = replace(policies.get(name).cadence, interval=16)
    budgets = [cadence.budget(budget, 16 * place) for place in range(cadence.rounds)]
    assert budget - 1 < sum(budgets) / len(budgets) <= budget
    assert max(budgets) == cadence.largest_budget(budget) == budget + budget // 2
    assert min(budgets) == cadence.smallest_budget(budget) == budget - budget // 2


def test_an_event_is_due_at_the_end_of_every_round_that_holds_too_much():
    for slack in (True, False):
        cadence = replace(EXAMPLE, slack=slack)
        assert cadence.due(32, 118, 117)
        assert not cadence.due(32, 117, 117)
        assert not cadence.due(33, 400, 117)


def test_without_an_interval_there_are_no_rounds():
    cadence = policies.get("schedule-front").cadence
    assert (cadence.budget(96, 0), cadence.smallest_budget(96), cadence.largest_budget(96)) == (96, 96, 96)
    assert not cadence.due(32, 1000, 96)


def test_a_plain_cadence_leaves_the_registered_budget_at_every_event():
    assert [Cadence(interval=4).budget(10, step) for step in (0, 4, 99)] == [10, 10, 10]
    assert (Cadence(interval=4).smallest_budget(10), Cadence(interval=4).largest_budget(10)) == (10, 10)


def test_no_schedule_declares_more_than_the_registered_budget_on_average():
    for load, rounds in itertools.product(("front", "back", "inverted"), (2, 8, 14)):
        cadence = Schedule(interval=4, load=load, amplitude=0.9, rounds=rounds)
        for budget in range(2, 200):
            assert sum(cadence.budgets(budget)) <= budget * rounds
