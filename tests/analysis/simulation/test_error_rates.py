"""The error of the whole decision, against probabilities that are worked out otherwise."""

import numpy as np
import pytest
import study
from scipy import stats

from analysis.simulation import error_rates
from analysis.simulation.null_settings import Setting
from analysis.simulation.simulated_studies import StudyPlan


def plan(problems: int, seeds: int = 1, **decision) -> StudyPlan:
    content = study.content(**decision) | {"seeds": [*range(seeds)]}
    ids = [str(number) for number in range(problems)]
    return StudyPlan(content, study.cells(content), study.items(content, ids))


USUAL = Setting("symmetric", 0.17)


def errors(planned: StudyPlan, setting: Setting = USUAL) -> error_rates.DecisionErrors:
    return error_rates.errors_in_setting(planned, error_rates.NullSetting(setting), 2_000, np.random.default_rng(5))


def test_one_contrast_errs_as_often_as_the_exact_test_of_mcnemar():
    # 17 % of 20 problems discordant: p of the exact test, weighed by how often each count comes up.
    level, confirmed = 0.1, 0.0
    for discordant in range(21):
        wins = [won for won in range(discordant + 1) if 2 * won > discordant]
        significant = [won for won in wins if stats.binomtest(won, discordant).pvalue <= level]
        share = sum(stats.binom.pmf(won, discordant, 0.5) for won in significant)
        confirmed += stats.binom.pmf(discordant, 20, 0.17) * share
    found = errors(plan(20, against=["snapkv"], alpha=str(level), method="sign-flip", draws=200_000))
    assert found.studies == 2_000
    for one in (found.confirmed, found.refuted):  # both sides are alike, and one contrast decides each
        assert one.low < confirmed < one.high
    assert 0.005 < confirmed < 0.05


def test_contrasts_that_share_the_subject_are_won_together_more_often_than_by_chance():
    two = plan(200, alpha="0.2", method="t", at_least=2)
    alone = errors(plan(200, alpha="0.1", method="t", against=["snapkv"])).confirmed.share
    assert errors(two).confirmed.low > 2 * alone**2
    assert alone == pytest.approx(0.05, abs=0.015)


def test_the_exact_bootstrap_errs_as_the_drawn_one_does_without_draws():
    planned = plan(60, method="exact-bootstrap", against=["snapkv"])
    for name in ("draws", "seed"):
        del planned.content["decision"][name]
    exact, drawn = errors(planned), errors(plan(60, method="bootstrap", against=["snapkv"]))
    assert drawn.confirmed.low < exact.confirmed.share < drawn.confirmed.high


def test_seeds_of_a_problem_are_not_taken_for_problems():
    # Sixty problems of nine seeds hold the level; 540 independent answers would not have been sixty problems.
    found = errors(plan(60, seeds=9, against=["snapkv"], method="t", alpha="0.05"))
    assert found.confirmed.share == pytest.approx(0.025, abs=0.012)


def test_a_large_family_is_simulated_in_parts(monkeypatch):
    planned = plan(40, method="t")
    whole = errors(planned)
    monkeypatch.setattr(error_rates, "LATTICE", 2_000 * 2 * 81 // 3)
    parts = errors(planned)
    assert parts.studies == whole.studies == 2_000
    assert parts.wrong.low < whole.wrong.share < parts.wrong.high


def test_what_a_lock_holds_has_no_floats():
    printed = error_rates.format_errors(errors(plan(30, method="t")))
    assert set(printed) == {"studies", "discordance", "setting", "confirmed", "refuted"}
    assert all(isinstance(value, str) for value in printed["confirmed"].values())


def test_max_t_decides_more_often_than_bonferroni_and_holds_its_level():
    four = {"against": ["snapkv", "h2o", "random", "streaming"], "alpha": "0.1"}
    shares = {}
    for method in ("t", "max-t"):
        planned = plan(120, method=method, **four)
        found = errors(planned)
        shares[method] = found.confirmed.share + found.refuted.share
    assert shares["t"] < shares["max-t"]
    assert stats.binomtest(round(2_000 * shares["max-t"]), 2_000, 0.1, alternative="greater").pvalue > 1e-3


@pytest.mark.parametrize("rule", ["equivalent", "non_inferior"])
def test_a_rule_with_a_margin_is_tried_where_the_subject_is_worse_by_the_margin(rule):
    planned = plan(200, rule=rule, margin="0.1", method="t", at_least=None, against=["snapkv"])
    found = errors(planned)
    # One contrast at alpha: CONFIRMED errs at most that often, and so does REFUTED, on the other side.
    for one in (found.confirmed, found.refuted):
        assert one.share > 0.01
        assert one.low < 0.05
    sure = errors(plan(200, rule=rule, margin="0.3", method="t", at_least=None, against=["snapkv"]))
    assert sure.confirmed.low < 0.05


@pytest.mark.parametrize("contrasts", [2, pytest.param(8, marks=pytest.mark.soak)])
def test_branch_is_tried_where_the_subject_is_better_on_the_transfer_model_alone(contrasts):
    """A rule without the correction for the cells of a model confirms in more than twice the nominal 2.5 %."""
    budgets = [f"0.{number}" for number in range(1, contrasts + 1)]
    content = study.content(
        rule="branch",
        primary_model="qwen2",
        transfer_model="llama",
        at_least=None,
        method="t",
        alpha="0.05",
        against=["snapkv"],
    ) | {"models": ["qwen2", "llama"], "budgets": budgets}
    planned = StudyPlan(content, study.cells(content), study.items(content, [str(number) for number in range(287)]))
    found = error_rates.decision_errors(planned, np.random.default_rng(1), [Setting("symmetric", 0.1)])
    assert "the subject is better on the transfer model" in str(found.setting)
    assert not found.exceeds(0.05)
    assert found.confirmed.high < 0.031
    shipped = error_rates.decision_errors(
        planned._replace(judging=1), np.random.default_rng(1), [Setting("symmetric", 0.1)]
    )
    assert shipped.confirmed.low > 0.031
    assert shipped.exceeds(0.05)


def test_a_rule_is_refused_while_the_upper_limit_of_its_error_exceeds_the_promise():
    rate = error_rates.RateEstimate
    setting = error_rates.NullSetting(USUAL)
    unsure = error_rates.DecisionErrors(
        rate(0.02, 0.01, 0.03), rate(0.03, 0.02, 0.04), rate(0.05, 0.04, 0.07), 100, setting, False
    )
    assert unsure.exceeds(0.05)
    assert not unsure.surely_exceeds(0.05)
    assert not unsure._replace(wrong=rate(0.05, 0.045, 0.058)).exceeds(0.05)
    one_sided = unsure._replace(wrong=rate(0.05, 0.045, 0.058), confirmed=rate(0.03, 0.028, 0.032))
    assert one_sided.exceeds(0.05)
    assert not one_sided._replace(has_margin=True).exceeds(0.05)


def test_superior_is_tried_where_one_contrast_fewer_than_asked_is_better():
    planned = plan(60, method="t", at_least=2, alpha="0.05")
    found = error_rates.decision_errors(planned, np.random.default_rng(1), [USUAL])
    assert "the subject is better in 1 of " in str(found.setting)
