"""Two one-sided tests, against statsmodels, scipy and hand counts."""

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.weightstats import DescrStatsW

from analysis import equivalence
from analysis.decisions import CONFIRMED, INCONCLUSIVE, REFUTED
from analysis.equivalence import Margins, margins
from analysis.interval import DegenerateDifference


def study(problems: int, seed: int, gained: float, lost: float, seeds: int = 2) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return draw.choice([-1.0, 0.0, 1.0], (problems, seeds), p=[lost, 1 - gained - lost, gained])


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("margin", [0.02, 0.05, 0.2])
def test_both_sides_are_statsmodels_tost_and_scipys_one_sided_tests(seed, margin):
    difference = study(80, seed, 0.1, 0.08)
    means = difference.mean(axis=1)
    found = margins(difference, margin)
    p, (_, worse, _), (_, better, _) = DescrStatsW(means).ttost_mean(-margin, margin)
    assert (found.p_worse, found.p_better) == pytest.approx((worse, better))
    assert max(found.p_worse, found.p_better) == pytest.approx(p)
    assert found.p_worse == pytest.approx(stats.ttest_1samp(means, -margin, alternative="greater").pvalue)
    interval = stats.ttest_1samp(means, 0).confidence_interval(0.90)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


@pytest.mark.parametrize("method", equivalence.METHODS)
def test_the_matching_interval_lies_inside_the_margin_exactly_when_the_test_passes(method):
    seen = set()
    for seed in range(60):
        difference = study(60, seed, 0.12, 0.02 + 0.01 * (seed % 12))
        found = margins(difference, 0.1, alpha=0.04, method=method, draws=4_999, rng=rng())
        assert (found.p_worse <= 0.04) == (found.low > -0.1 + 1e-12), seed
        assert (found.p_better <= 0.04) == (found.high < 0.1 - 1e-12), seed
        seen.add((found.low > -0.1, found.high < 0.1))
    assert seen >= {(True, True), (True, False)}


def test_the_bootstrap_counts_resampled_means_at_or_beyond_each_margin():
    difference = study(25, 3, 0.2, 0.1)
    means = difference.mean(axis=1)
    draw, reps, below, above = rng(), 700, 0, 0
    for _ in range(reps):
        total = sum(round(2 * means[problem]) for problem in draw.integers(0, 25, 25))  # in halves
        below, above = below + (total <= -5), above + (total >= 5)  # 0.1 of 25 problems of two seeds
    found = margins(difference, 0.1, method="bootstrap", draws=reps, rng=rng())
    assert (found.p_worse, found.p_better) == ((below + 1) / (reps + 1), (above + 1) / (reps + 1))


@pytest.mark.parametrize("method", equivalence.METHODS)
def test_answers_that_all_agree_bound_the_share_that_may_not(method):
    # 60 problems without a loss: at a margin of 5 % its chance is 0.95^60 = 4.6 %, at 4 % it is 8.6 %.
    zeros = np.zeros((60, 3))
    for margin, passes in ((0.05, True), (0.04, False)):
        found = margins(zeros, margin, method=method, rng=rng())
        assert found.p_worse == found.p_better == pytest.approx((1 - margin) ** 60)
        assert (found.p_worse <= 0.05) is passes is (found.low > -margin)
        assert found.low == -found.high == pytest.approx(0.05 ** (1 / 60) - 1)


@pytest.mark.parametrize("value", [-1.0, -0.5, 0.5, 1.0])
def test_answers_that_all_differ_alike_are_bounded_in_the_same_way(value):
    found = margins(np.full((9, 2), [value, value]), 0.25, alpha=0.1)
    assert (found.p_worse <= 0.1) == (found.low > -0.25)
    assert (found.p_better <= 0.1) == (found.high < 0.25)
    assert found.p_worse == (1.0 if value < 0 else pytest.approx(((1 - 0.25) / (1 + value)) ** 9))


def test_equal_arms_pass_as_often_as_the_level_allows_at_the_margin():
    # The truth lies on the margin: 6 % lost more than gained, each seed of its own.
    draw, passed, studies = np.random.default_rng(2), 0, 2_000
    for _ in range(studies):
        difference = draw.choice([-1.0, 0.0, 1.0], (150, 1), p=[0.16, 0.74, 0.10])
        passed += margins(difference, 0.06).p_worse <= 0.05
    assert stats.binomtest(passed, studies, 0.05).pvalue > 1e-3


def at(low: float, high: float, worse: float, better: float) -> Margins:
    return Margins((low + high) / 2, low, high, worse, better)


INSIDE, BETTER, OPEN, WORSE = (
    at(-0.01, 0.01, 0.001, 0.001),
    at(0.06, 0.09, 0.0001, 0.99),
    at(-0.07, 0.02, 0.2, 0.01),
    at(-0.12, -0.06, 0.999, 0.0001),
)


@pytest.mark.parametrize(
    ("family", "equivalent", "non_inferior"),
    [
        ([INSIDE], CONFIRMED, CONFIRMED),
        ([INSIDE, INSIDE], CONFIRMED, CONFIRMED),
        ([INSIDE, OPEN], INCONCLUSIVE, INCONCLUSIVE),
        ([INSIDE, BETTER], REFUTED, CONFIRMED),
        ([INSIDE, WORSE], REFUTED, REFUTED),
        ([OPEN, WORSE], REFUTED, REFUTED),
    ],
)
def test_every_contrast_must_hold_and_one_beyond_the_margin_refutes(family, equivalent, non_inferior):
    assert equivalence.equivalent(family, 0.05, 0.05) == equivalent
    assert equivalence.non_inferior(family, 0.05, 0.05) == non_inferior


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"margin": 0}, "margin: 0"),
        ({"margin": 2.0}, "points, not percent"),
        ({"alpha": 0.5}, "alpha: 0.5"),
        ({"method": "sign-flip"}, "name t or bootstrap"),
        ({"method": "bootstrap"}, "pass a generator"),
        ({"difference": [[0.1]]}, r"1 problem\(s\)"),
        ({"difference": [[np.nan], [0.0]]}, "not finite"),
    ],
)
def test_what_cannot_be_tested_is_refused_by_name(change, says):
    with pytest.raises(ValueError, match=says):
        margins(**({"difference": study(20, 0, 0.2, 0.2), "margin": 0.05} | change))


@pytest.mark.parametrize("rule", [equivalence.equivalent, equivalence.non_inferior])
def test_an_empty_family_claims_nothing(rule):
    with pytest.raises(DegenerateDifference, match="empty family"):
        rule([], 0.05, 0.05)
