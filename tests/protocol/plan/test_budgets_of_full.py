"""Budgets that are shares of what the full cache holds on average at the end of an answer."""

from decimal import Decimal
from fractions import Fraction

import pytest
from studies import PROTOCOL, parse

from analysis.judgement.full_cache_use import describe_full_use
from analysis.rules import RULES
from analysis.rules.smallest_lossless import _descending, _describe_budget
from protocol.formats.refusals import BadInput
from protocol.plan import full_use, grid
from protocol.plan.budget import Budget
from protocol.preflight import feasibility, field_checks
from protocol.workspace.planned_study import PlannedStudy

TEXT = PROTOCOL.format(model="/nowhere")


def share(text):
    return Budget(None, None, Decimal(text))


def test_a_share_of_the_mean_use_is_rounded_up_and_exact():
    assert share("0.1").count_slots(1, Fraction(9350)) == 935  # Crystal-KV, Table I
    assert share("0.07").count_slots(1, Fraction(100)) == 7  # ceil(0.07 * 100) is 8 in binary floats
    assert share("0.375").count_slots(1, Fraction(32, 3)) == 4  # 12/32 of 32/3
    assert share("0.375001").count_slots(1, Fraction(32, 3)) == 5
    assert share("0.000001").count_slots(1, Fraction(1)) == 1
    assert str(share("0.10")) == "0.1 of full"


def test_a_lock_has_the_mean_of_the_problems_and_the_slots_of_each_share():
    found = full_use.lock_entry({"a": 10, "b": 11, "c": 11}, ["0.375 of full", "0.8", "128", "0.5 of full"])
    assert found == {
        "held": {"a": 10, "b": 11, "c": 11},
        "mean": "32/3",
        "slots": {"0.375 of full": 4, "0.5 of full": 6},
    }
    assert full_use.read_means({"m": {"t": found}}) == {("m", "t"): Fraction(32, 3)}
    assert describe_full_use({"m": {"t": found}}) == [
        "On m, t, the full cache used 10.7 slots per KV head and layer at the end of an answer (mean of 3 "
        "development problems): 0.375 of full is 4 slots, 0.5 of full is 6 slots."
    ]


def test_the_three_kinds_stand_side_by_side_and_each_cell_has_its_slots():
    protocol = parse(TEXT.replace("[0.8]", '["0.10 of full", 128, 0.8]'))
    assert [str(budget) for budget in protocol.budgets] == ["0.1 of full", "128", "0.8"]
    assert protocol.content()["budgets"] == ["0.1 of full", "128", "0.8"]
    assert [budget.kind for budget in protocol.budgets] == ["of_full", "slots", "share"]
    planned = PlannedStudy(protocol, None, {("m", "t"): Fraction(935), ("m", "u"): Fraction(9351)})

    def slots(task, budget):
        return grid.budget_of(protocol, grid.Cell("m", task, budget, "random", 0), 50, planned.use("m", task))

    assert [slots("t", budget) for budget in ("0.1 of full", "128", "0.8", "full")] == [94, 128, 40, None]
    assert slots("u", "0.1 of full") == 936


LOSSLESS = {
    'rule = "superior"': 'rule = "smallest_lossless"',
    'against = ["random", "streaming"]': 'against = ["full"]',
    "at_least = 1": "margin = 0.3",
    'method = "sign-flip"': 'method = "t"',
}


def lossless(budgets):
    text = TEXT.replace("[0.8]", budgets)
    for old, new in LOSSLESS.items():
        assert old in text
        text = text.replace(old, new)
    return parse(text)


def test_the_smallest_lossless_share_is_sought_from_the_largest_down():
    assert lossless('["0.05 of full", "0.2 of full"]').decision.rule == "smallest_lossless"
    assert _descending({"0.05 of full", "0.2 of full", "0.15 of full"}) == [
        "0.2 of full",
        "0.15 of full",
        "0.05 of full",
    ]
    assert _describe_budget("0.05 of full") == "a budget of 0.05 of the full cache's mean use"
    assert RULES["smallest_lossless"].has_ordered_budgets
    for other in ("0.5", "200"):
        with pytest.raises(
            BadInput, match=r"budgets: smallest_lossless sorts them by size, so all must be of one kind; .* only"
        ):
            lossless(f'["0.05 of full", {other}]')


def test_a_share_below_what_an_arm_protects_is_refused_once_it_is_measured():
    protocol = parse(TEXT.replace("[0.8]", '["0.5 of full"]').replace("crystal-token-level", "random"))
    lengths = {("m", task, ""): [(400, 0)] for task in protocol.tasks}
    least = 132  # sinks and recent tokens, as in tests/protocol/preflight/test_small_budgets.py

    def asked(use):
        planned = PlannedStudy(protocol, None, {("m", task.name): Fraction(use) for task in protocol.tasks})
        feasibility.refuse_small_budgets(planned, lengths, protocol.budgets)

    asked(2 * least - 1)  # rounded up
    with pytest.raises(BadInput, match=r"budgets: 0.5 of full gives 131 slots for needle-256 .* the 132 that"):
        asked(2 * least - 2)


def test_the_full_cache_was_measured_on_all_development_problems_that_were_not_excluded():
    def faults(held, **registered):
        return list(
            field_checks._full_use_faults(
                {
                    "protocol": {"content": registered},
                    "items": {"t": {"dev": ["a", "b"], "confirm": ["c"]}},
                    "full_use": {"m": {"t": {"held": held}}},
                }
            )
        )

    assert faults({"a": 10, "b": 13}) == []
    assert faults({"b": 13}, exclude={"prompt_tokens_above": 8}) == []
    assert faults({"b": 13}) == ["full_use.'m'.'t'.held: has 1 of 2 development problems, although none was excluded"]
    assert faults({"a": 1, "b": 2, "c": 3}) == ["full_use.'m'.'t'.held: 'c' is not a development problem"]
