"""Two one-sided tests, against statsmodels, scipy and hand counts."""

import numpy as np
import pytest
from looped import looped
from scipy import stats
from statsmodels.stats.weightstats import DescrStatsW

from analysis.stats import equivalence
from analysis.stats.equivalence import exact_margin_p, tost, tost_of_studies


def study(problems: int, seed: int, gained: float, lost: float, seeds: int = 2) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return draw.choice([-1.0, 0.0, 1.0], (problems, seeds), p=[lost, 1 - gained - lost, gained])


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@looped("seed", range(5))
@looped("margin", [0.02, 0.05, 0.2])
def test_both_sides_are_statsmodels_tost_and_scipys_one_sided_tests(seed, margin):
    means = study(80, seed, 0.1, 0.08).mean(axis=1)
    found = tost(means[:, None], margin)  # halves, which have no exact chance on whole numbers
    p, (_, worse, _), (_, better, _) = DescrStatsW(means).ttost_mean(-margin, margin)
    assert (found.p_worse, found.p_better) == pytest.approx((worse, better))
    assert max(found.p_worse, found.p_better) == pytest.approx(p)
    assert found.p_worse == pytest.approx(stats.ttest_1samp(means, -margin, alternative="greater").pvalue)
    interval = stats.ttest_1samp(means, 0).confidence_interval(0.90)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


@pytest.mark.parametrize("method", ["t", "bootstrap"])
def test_the_matching_interval_lies_inside_the_margin_exactly_when_the_test_passes(method):
    seen = set()
    for seed in range(60):
        difference = study(60, seed, 0.12, 0.02 + 0.01 * (seed % 12)).mean(axis=1, keepdims=True)
        found = tost(difference, 0.1, alpha=0.04, method=method, draws=4_999, rng=rng())
        assert (found.p_worse <= 0.04) == (found.low > -0.1 + 1e-12), seed
        assert (found.p_better <= 0.04) == (found.high < 0.1 - 1e-12), seed
        seen.add((found.low > -0.1, found.high < 0.1))
    assert seen >= {(True, True), (True, False)}


def test_the_bootstrap_counts_resampled_means_at_or_beyond_each_margin():
    difference = study(25, 3, 0.2, 0.1).mean(axis=1, keepdims=True)
    means = difference[:, 0]
    draw, reps, below, above = rng(), 700, 0, 0
    for _ in range(reps):
        total = sum(round(2 * means[problem]) for problem in draw.integers(0, 25, 25))  # in halves
        below, above = below + (total <= -5), above + (total >= 5)  # 0.1 of 25 problems of two seeds
    found = tost(difference, 0.1, method="bootstrap", draws=reps, rng=rng())
    assert (found.p_worse, found.p_better) == ((below + 1) / (reps + 1), (above + 1) / (reps + 1))


@looped("method", [name for name in equivalence.METHODS if name != "betting"])
def test_answers_that_all_agree_bound_the_share_that_may_not(method):
    # 60 problems without a loss: at a margin of 5 % its chance is 0.95^60 = 4.6 %, at 4 % it is 8.6 %.
    zeros = np.zeros((60, 3))
    for margin, passes in ((0.05, True), (0.04, False)):
        found = tost(zeros, margin, method=method, rng=rng())
        assert (found.p_worse, found.p_better) == pytest.approx(((1 - margin) ** 60,) * 2)
        assert (found.p_worse <= 0.05) is passes is (found.low > -margin)
        assert (found.low, -found.high) == pytest.approx((0.05 ** (1 / 60) - 1,) * 2)


@looped("value", [-1.0, -0.5, 0.5, 1.0])
def test_answers_that_all_differ_alike_are_bounded_in_the_same_way(value):
    found = tost(np.full((9, 2), [value, value]), 0.25, alpha=0.1)
    assert (found.p_worse <= 0.1) == (found.low > -0.25)
    assert (found.p_better <= 0.1) == (found.high < 0.25)
    assert found.p_worse == (1.0 if value < 0 else pytest.approx(((1 - 0.25) / (1 + value)) ** 9))


@looped("method", equivalence.METHODS)
@looped(("lost", "problems"), [(0, 201), (1, 201), (4, 300), (9, 300)])
def test_losses_alone_are_never_surer_than_the_binomial_tail(method, lost, problems):
    # One loss in 201 at a margin of one point: 40 %, where t on its own says 8 %.
    difference = np.repeat([-1.0, 0.0], [lost, problems - lost])[:, None]
    chance = stats.binom.cdf(lost, problems, 0.05)
    assert exact_margin_p(counts(difference), 0.05) == pytest.approx([chance], rel=1e-6)
    found = tost(difference, 0.05, method=method, draws=999, rng=rng())
    assert found.p_worse >= chance * (1 - 1e-6)
    mirrored = tost(-difference, 0.05, method=method, draws=999, rng=rng())
    assert mirrored.p_better >= chance * (1 - 1e-6)


def counts(difference: np.ndarray) -> np.ndarray:
    k = difference.shape[1]
    sums = difference.sum(axis=1)
    return np.array([[int((sums == step).sum()) for step in range(-k, k + 1)]])


def test_the_chance_at_the_margin_is_that_of_drawing_such_studies():
    difference = study(40, 1, 0.12, 0.06)
    mean = difference.mean()
    share = (0.06 + mean) / (1 + mean)
    draw, hits = np.random.default_rng(3), 0
    for _ in range(4_000):
        drawn = difference[draw.integers(0, 40, 40)].mean(axis=1)
        drawn[draw.random(40) < share] = -1.0
        hits += drawn.sum() >= difference.mean(axis=1).sum() - 1e-9
    (chance,) = exact_margin_p(counts(difference), 0.06)
    assert stats.binomtest(hits, 4_000, chance).pvalue > 1e-3


@pytest.mark.parametrize("rare", [0.0, 0.01])
def test_a_study_at_the_margin_passes_no_more_often_than_the_level_where_few_problems_differ(rare):
    # Losses at 3 % more than gains: t alone passes far above 5 % of them.
    draw, studies = np.random.default_rng(4), 4_000
    gained = draw.choice([-1, 0, 1], (studies, 100), p=[0.03 + rare, 0.97 - 2 * rare, rare])
    table = np.stack([(gained == step).sum(axis=1) for step in (-1, 0, 1)], axis=1)
    passed = int((tost_of_studies(table, 0.03, 0.05)[:, 3] <= 0.05).sum())
    assert stats.binomtest(passed, studies, 0.05, alternative="greater").pvalue > 1e-3


def test_many_studies_at_once_have_the_margins_of_each():
    every = [study(30, seed, 0.2, 0.15, seeds=3) for seed in range(20)]
    table = np.concatenate([counts(one) for one in every])
    each = [tost(one, 0.1, alpha=0.02) for one in every]
    assert tost_of_studies(table, 0.1, 0.02) == pytest.approx(np.array(each), abs=1e-9)


def test_a_study_at_the_margin_passes_a_little_less_often_than_the_level_where_many_problems_differ():
    # The truth lies on the margin: 6 % lost more than gained, each seed of its own.
    draw, passed, studies = np.random.default_rng(2), 0, 2_000
    for _ in range(studies):
        difference = draw.choice([-1.0, 0.0, 1.0], (150, 1), p=[0.16, 0.74, 0.10])
        passed += tost(difference, 0.06).p_worse <= 0.05
    assert 0.02 < passed / studies < 0.05


@looped(
    ("change", "says"),
    [
        ({"margin": 0}, "margin: 0"),
        ({"margin": 2.0}, "points, not percent"),
        ({"alpha": 0.5}, "alpha: 0.5"),
        ({"method": "sign-flip"}, "name one of t, bootstrap"),
        ({"method": "bootstrap"}, "needs a random generator"),
        ({"difference": [[0.1]]}, r"1 problem\(s\)"),
        ({"difference": [[np.nan], [0.0]]}, "not finite"),
    ],
)
def test_what_cannot_be_tested_is_refused_by_name(change, says):
    with pytest.raises(ValueError, match=says):
        tost(**({"difference": study(20, 0, 0.2, 0.2), "margin": 0.05} | change))
