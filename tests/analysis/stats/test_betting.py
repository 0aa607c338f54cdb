"""Bets on a bounded mean: against a plain loop over stakes, and their level where most tests err."""

import math

import numpy as np
import pytest
from scipy import stats

from analysis.simulation import margin_tests
from analysis.stats import betting, power
from analysis.stats.paired_tests import student_t
from analysis.stats.resampled_units import compare_at_levels, tost

SCORES = np.array([0.3, -0.2, 1.0, 0.0, 0.0, 0.7, -1.0, 0.4, 0.9, 0.25])


def capital_by_loop(values, null, sizes=None):
    """The average over stakes of the product of what each unit returns."""
    nodes, weights = np.polynomial.legendre.leggauss(32)
    largest = max(sizes) if sizes else 1
    total = 0.0
    for node, weight in zip(nodes, weights, strict=True):
        stake, capital = ((1 + node) / 2) ** 2, 1.0
        for place, value in enumerate(values):
            share = stake * (sizes[place] / largest if sizes else 1)
            capital *= 1 - share + share * (1 + value) / (1 + null)
        total += weight / 2 * capital
    return total


@pytest.mark.parametrize("null", [0.0, 0.1, -0.3])
def test_the_capital_is_the_average_over_stakes_of_a_loop_over_units(null):
    assert betting.log_capital(SCORES, null) == pytest.approx(math.log(capital_by_loop(SCORES, null)))
    sizes = [1, 5, 2, 1, 1, 3, 2, 4, 1, 1]
    found = betting.log_capital(SCORES, null, np.array(sizes, float))
    assert found == pytest.approx(math.log(capital_by_loop(SCORES, null, sizes)))
    above, below = (capital_by_loop(side * SCORES, side * null) for side in (1, -1))
    p = betting.compare(SCORES[:, None], null=null).p
    assert p == pytest.approx(min(1, 2 / max(above, below)))


def test_the_interval_is_all_means_that_are_not_rejected():
    found = betting.compare(SCORES[:, None], level=0.8)
    for end, inside in ((found.low, 1e-6), (found.high, -1e-6)):
        assert betting.compare(SCORES[:, None], null=end + inside).p > 0.2
        assert betting.compare(SCORES[:, None], null=end - inside).p < 0.2
    tested = betting.tost(SCORES[:, None], (-0.5, 0.9), alpha=0.1)
    assert tested[1:3] == pytest.approx(found[1:3], abs=1e-8)
    assert tested.p_worse == pytest.approx(1 / capital_by_loop(SCORES, -0.5))
    assert tested.p_better == pytest.approx(1 / capital_by_loop(-SCORES, -0.9))


@pytest.mark.parametrize(("lost", "problems"), [(0.01, 200), (0.003, 287), (0.03, 60)])
def test_bets_hold_where_most_problems_gain_a_little_and_few_lose_much(lost, problems):
    """60 % gain, and few lose 0.8, so that the mean is zero: counted out over both numbers."""
    gain, level = lost * 0.8 / 0.6, 0.025
    errors = {"betting": 0.0, "t": 0.0}
    for few in range(int(stats.binom.isf(1e-7, problems, lost)) + 1):
        many = np.arange(*stats.binom.interval(1 - 1e-7, problems - few, 0.6 / (1 - lost))).astype(int)
        chance = stats.binom.pmf(few, problems, lost) * stats.binom.pmf(many, problems - few, 0.6 / (1 - lost))
        studies = np.zeros((len(many), problems))
        studies[:, :few] = -0.8
        for study, number in zip(studies, many, strict=True):
            study[few : few + number] = gain
        wins = np.exp(-betting.log_capital(studies, 0.0)) <= level
        errors["betting"] += chance[wins].sum()
        found = [student_t(study[:, None]) for study in studies]
        errors["t"] += chance[[one.mean > 0 and one.p <= 2 * level for one in found]].sum()
    assert errors["betting"] <= level
    assert errors["t"] > 2 * level


def test_clusters_of_one_problem_are_problems_and_larger_ones_are_staked_by_their_size():
    rng = np.random.default_rng(0)
    difference = rng.uniform(-0.4, 0.8, (30, 2)).round(6)
    labels = {"own": [str(place) for place in range(30)], "uneven": ["a"] * 12 + ["b"] * 6 + [*"cdefghijklmn"]}
    plain, own, uneven = (
        compare_at_levels("betting", difference, clusters, [0.9], draws=1, rng=lambda: rng)[0]
        for clusters in (None, labels["own"], labels["uneven"])
    )
    assert plain == own
    assert uneven.mean == pytest.approx(plain.mean)
    means = difference.mean(axis=1)
    units = [means[:12].mean(), means[12:18].mean(), *means[18:]]
    sizes = [12, 6, *[1] * 12]
    assert uneven.p == pytest.approx(min(1, 2 / capital_by_loop(units, 0.0, sizes)))
    margins = tost(difference, labels["uneven"], 0.2, 0.0, alpha=0.05, method="betting")
    assert margins.p_worse == pytest.approx(1 / capital_by_loop(units, -0.2, sizes))
    assert margins[1:3] == pytest.approx(uneven[1:3])


def test_bets_hold_where_large_clusters_win_what_small_ones_lose():
    """The problems of one cluster of 10 gain 0.5, those of ten clusters of 1 lose it: the mean is zero."""
    sizes, expected = np.array([10.0, *[1.0] * 10]), np.array([0.5, *[-0.5] * 10])
    returns = 1 + np.outer(betting.STAKES, sizes / 10 * expected)
    assert (np.prod(returns, axis=1) <= 1).all()  # the expected capital of each stake, since clusters are independent


def test_counts_of_right_and_wrong_answers_give_the_same_p():
    counts = np.array([[1, 2, 30, 4, 3], [0, 0, 40, 0, 0], [0, 9, 20, 1, 10]])
    for row, p, tests in zip(
        counts,
        power.p_values("betting", counts, None, np.random.default_rng(0)),
        np.transpose(margin_tests.margin_p_values("betting", counts, 0.1)),
        strict=True,
    ):
        means = np.repeat([-1, -0.5, 0, 0.5, 1], row)[:, None]
        assert p == pytest.approx(betting.compare(means).p)
        margins = betting.tost(means, (-0.1, 0.1), alpha=0.05)
        assert tests[::2] == pytest.approx([margins.p_worse, margins.p_better])
        assert (tests[1] <= 0.05) == (margins.high < -0.1)
