"""A rule is tried on studies in which the subject holds as much more memory as is let through."""

import pytest
import study

from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE
from analysis.simulation import self_test
from analysis.simulation.simulated_studies import StudyPlan
from analysis.stats import memory_charge

WON = "a win just reaches the corrected level"
PRIMARY = "a primary win just reaches its level"


def planned(problems: int, models: list[str], **decision: object) -> StudyPlan:
    content = study.content(**{"against": ["snapkv"]} | decision) | {"models": models}
    ids = [f"p{number:03d}" for number in range(problems)]
    return StudyPlan(content, study.cells(content), study.items(content, ids))


def superior(problems: int) -> StudyPlan:
    return planned(problems, ["tiny"])


def branch(problems: int) -> StudyPlan:
    roles = {"primary_model": "qwen", "transfer_model": "llama", "at_least": None}
    return planned(problems, ["qwen", "llama"], rule="branch", **roles)


def lossless(problems: int, margin: str) -> StudyPlan:
    return planned(problems, ["tiny"], rule="non_inferior", method="t", margin=margin, at_least=None)


@pytest.mark.parametrize(("registered", "gate"), [(superior, WON), (branch, PRIMARY)])
def test_a_win_of_two_percent_is_bought_by_two_percent_of_memory(registered, gate):
    # Six or seven of 300 problems are a significant win of some 2 points; 2 % of memory buys up to 4.
    gates = self_test.run_self_test(registered(300))["gates"]
    assert gates[gate] == CONFIRMED
    assert gates[f"{gate}, with more memory"] == INCONCLUSIVE


def test_a_win_that_memory_cannot_buy_is_not_asked_about():
    # Of 40 problems six are 15 points.
    assert f"{WON}, with more memory" not in self_test.run_self_test(superior(40))["gates"]


def test_equal_answers_with_more_memory_do_not_show_a_margin_of_three_points():
    name = "nothing differs, with more memory"
    assert self_test.run_self_test(lossless(300, "0.03"))["gates"][name] == INCONCLUSIVE
    assert name not in self_test.run_self_test(lossless(300, "0.05"))["gates"]


@pytest.mark.parametrize("plan", [superior(300), lossless(300, "0.03")], ids=["superior", "non_inferior"])
def test_a_judge_that_charges_nothing_is_refused(monkeypatch, plan):
    real = memory_charge.bound_charge
    monkeypatch.setattr(memory_charge, "bound_charge", lambda *given: real(*given)._replace(points=0.0))
    with pytest.raises(self_test.Vacuous, match="with more memory: says CONFIRMED"):
        self_test.run_self_test(plan)
