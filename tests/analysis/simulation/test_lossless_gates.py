"""Rules about the full cache, tried on simulated studies by the real judge."""

import re
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import study
from sampled import sampled

from analysis import rules
from analysis.judgement import judgement
from analysis.rules import smallest_lossless
from analysis.rules.self_test_cases import Outcome, Scenario
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from analysis.simulation import error_rates, self_test
from analysis.simulation.null_settings import TOTAL, Setting
from analysis.simulation.simulated_studies import StudyPlan, planned_contrasts
from analysis.simulation.simulated_studies import simulate_study as made_up
from analysis.stats import memory_matching


def planned(rule: str, problems: int = 120, **decision: Any) -> StudyPlan:
    """crystal against the full cache on two models at two budgets."""
    registered = {"rule": rule, "margin": "0.05", "method": "t", "against": ["full"], "at_least": None}
    content = study.content(**registered | decision)
    content |= {"models": ["qwen", "llama"], "budgets": ["96", "160"]}
    ids = [f"p{number:03d}" for number in range(problems)]
    return StudyPlan(content, study.cells(content), study.items(content, ids))


@pytest.mark.parametrize("rule", ["equivalent", "non_inferior"])
def test_a_rule_about_equality_with_the_full_cache_says_each_verdict_and_has_its_gates(rule):
    found = self_test.run_self_test(planned(rule))
    assert list(found["verdicts"].values()) == [CONFIRMED, INCONCLUSIVE, REFUTED]
    assert found["gates"]["the subject saves no memory"] == INCONCLUSIVE
    assert found["gates"]["one contrast is lost where the subject saves no memory"] == INCONCLUSIVE
    assert not [name for name in found["gates"] if "unmatched" in name]


@pytest.mark.parametrize("others", sampled([None, ["h2o"], ["h2o", "snapkv"]], of=2))
def test_smallest_lossless_says_each_verdict_and_has_its_gates(others):
    found = self_test.run_self_test(planned("smallest_lossless", others=others))
    assert list(found["verdicts"].values()) == [CONFIRMED, INCONCLUSIVE, REFUTED]
    assert found["gates"]["every smaller budget is lost"] == CONFIRMED
    assert found["gates"]["the largest budget saves no memory"] == CONFIRMED
    assert found["gates"]["the subject saves no memory"] == INCONCLUSIVE
    assert ("every contrast of the other arms is lost" in found["gates"]) is bool(others)


def test_arms_that_share_the_level_need_more_problems():
    # Without a difference in 71 problems: 0.95^71 = 0.0262, above 0.05 / 2; in 72 it is 0.0249.
    with pytest.raises(self_test.Vacuous, match=r"even identical answers to 71 .* p = 0.026205 .* alpha 0.025"):
        self_test.run_self_test(planned("smallest_lossless", 71, others=["h2o"]))
    self_test.run_self_test(planned("smallest_lossless", 72, others=["h2o"]))


def without_sequence(contrasts, decision):
    """Each budget on its own: a smaller one may pass after a larger one failed."""
    budgets = {contrast.budget for contrast in contrasts}
    steps = [
        smallest_lossless.fixed_sequence([contrast for contrast in contrasts if contrast.budget == each], 0.05)
        for each in budgets
    ]
    if any(step.passed and step.saves_memory for (step,) in steps):
        return CONFIRMED
    return smallest_lossless.verdict(contrasts, decision)


def without_memory(contrasts, decision):
    return smallest_lossless.verdict([contrast._replace(matched=True) for contrast in contrasts], decision)


def never_refutes(contrasts, decision):
    said = smallest_lossless.verdict(contrasts, decision)
    return INCONCLUSIVE if said == REFUTED else said


def without_models(contrasts, decision):
    """One model is enough."""
    words = {
        smallest_lossless.verdict([contrast for contrast in contrasts if contrast.model == model], decision)
        for model in ("qwen", "llama")
    }
    return CONFIRMED if CONFIRMED in words else smallest_lossless.verdict(contrasts, decision)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (without_sequence, "one contrast of the largest budget is lost by the margin: says CONFIRMED"),
        (without_models, "one contrast of the largest budget is lost by the margin: says CONFIRMED"),
        (without_memory, "every smaller budget is lost and the largest saves no memory: says CONFIRMED"),
        (never_refutes, "every contrast is lost: says INCONCLUSIVE, not REFUTED"),
    ],
)
def test_the_rule_without_one_condition_is_refused_by_name(monkeypatch, rule, says):
    committed = rules.RULES["smallest_lossless"]._replace(verdict=rule)
    monkeypatch.setattr(rules, "RULES", MappingProxyType({"smallest_lossless": committed}))
    with pytest.raises(self_test.Vacuous, match="smallest_lossless: .*" + re.escape(says)):
        self_test.run_self_test(planned("smallest_lossless"))


@pytest.mark.parametrize("rule", ["equivalent", "non_inferior", "smallest_lossless"])
def test_a_judge_that_takes_a_full_cache_for_a_saving_is_refused(monkeypatch, rule):
    real = memory_matching.match_savings
    blind = lambda *slots, tolerance: real(*slots, tolerance=tolerance)._replace(is_matched=True)  # noqa: E731
    monkeypatch.setattr(memory_matching, "match_savings", blind)
    with pytest.raises(self_test.Vacuous, match=r"saves? no memory.*: says"):
        self_test.run_self_test(planned(rule))


# ---------------------------------------------------------------- the simulated studies


def test_a_made_up_study_shares_the_full_caches_answers_between_budgets():
    plan = planned("smallest_lossless", 20, others=["h2o"])
    places = [(contrast.model, contrast.budget, contrast.subject) for contrast in planned_contrasts(plan)]
    assert places == [
        (model, budget, arm) for model in ("qwen", "llama") for budget in ("96", "160") for arm in ("crystal", "h2o")
    ]
    made = made_up(plan, Scenario({0: Outcome(3, 1), 1: Outcome(0, 4), 2: Outcome(5, 0)}, frozenset({3})))
    judged = judgement.judge_study(made)
    seen = [(row["subject"], row["gains"] // 2, row["losses"] // 2) for row in judged["contrasts"]]
    assert seen[:4] == [("crystal", 3, 1), ("h2o", 0, 4), ("crystal", 5, 0), ("h2o", 0, 0)]
    assert [row["saves"] for row in judged["contrasts"]] == [True] * 3 + [False] + [True] * 4
    full = made.lanes[(made.lanes["arm"] == "full") & (made.lanes["model"] == "qwen")]
    assert full.groupby("problem")["correct"].min().sum() == 15
    assert judged["family"] == 8


# ---------------------------------------------------------------- and its gate

GATES = {
    "plain": {"accuracy": "0.9", "truncated": "0.1"},
    "published": {
        "accuracy": "0.5",
        "truncated": "0.1",
        "places": [{"model": "llama", "task": "needle", "published": "0.55", "margin": "0.02"}],
    },
}


RULES = ["equivalent", "non_inferior", "smallest_lossless"]


@pytest.mark.parametrize(("rule", "gate"), sampled(RULES, [*GATES], of=3))
def test_a_full_cache_that_cannot_do_the_task_is_noticed_where_it_is_the_comparator(rule, gate):
    plan = planned(rule)
    gates = self_test.run_self_test(plan._replace(content=plan.content | {"gate": GATES[gate]}))["gates"]
    for name in ("cannot do the task", "cannot do the task, and contrasts are lost"):
        assert gates[f"the full cache {name}"] == INCONCLUSIVE
    assert gates["the answers of the full cache are cut"] == INCONCLUSIVE


@pytest.mark.parametrize(("rule", "gate"), sampled(RULES, [*GATES], of=3))
def test_a_judge_that_does_not_look_at_the_gate_is_refused(monkeypatch, rule, gate):
    monkeypatch.setattr(judgement.gate, "judge_gate", lambda made: None)
    plan = planned(rule)
    with pytest.raises(self_test.Vacuous, match=r"full cache .*: says (CONFIRMED|REFUTED), not INCONCLUSIVE"):
        self_test.run_self_test(plan._replace(content=plan.content | {"gate": GATES[gate]}))


# ---------------------------------------------------------------- how often it errs


@pytest.mark.parametrize("others", [None, ["h2o"]])
def test_a_subject_worse_by_the_margin_at_every_budget_is_seldom_confirmed(others):
    # On one of two models; on the other every answer is that of the full cache.
    plan = planned("smallest_lossless", 201, others=others)
    assert rules.RULES["smallest_lossless"].lossy_indices(planned_contrasts(plan)) == [
        *range(2 * (1 + len(others or [])))
    ]
    setting = error_rates.NullSetting(Setting("symmetric", 0.02, TOTAL))
    found = error_rates.errors_in_setting(plan, setting, 400, np.random.default_rng(3))
    assert found.confirmed.low < 0.05 / (1 + len(others or []))
    assert found.confirmed.share > 0  # the truth is on the margin, where a test errs most
    assert found.refuted.low < 0.05


def test_a_rule_that_does_not_stop_errs_more_often(monkeypatch):
    # Three budgets, each with a chance of its own, would be wrong in up to 14 % of studies.
    plan = planned("smallest_lossless", 201)
    plan.content["budgets"].append("192")
    plan = plan._replace(grid=study.cells(plan.content))
    setting, rng = error_rates.NullSetting(Setting("symmetric", 0.02, TOTAL)), np.random.default_rng(3)
    right = error_rates.errors_in_setting(plan, setting, 400, rng).confirmed
    committed = rules.RULES["smallest_lossless"]._replace(verdict=without_sequence)
    monkeypatch.setattr(rules, "RULES", MappingProxyType({"smallest_lossless": committed}))
    wrong = error_rates.errors_in_setting(plan, setting, 400, rng).confirmed
    assert wrong.low > 0.06
    assert wrong.share > right.high
