"""Populations of problems in clusters: drawn as they are described, and tested as the judge tests them."""

from collections import Counter

import numpy as np
import pytest
from looped import looped
from sampled import sampled

from analysis.simulation import cluster_populations as populations
from analysis.simulation import study_pool
from analysis.simulation.cluster_populations import ClusterSetting
from analysis.simulation.error_estimate import TypeOneError
from analysis.simulation.null_settings import GAINS, LOSSES, SYMMETRIC, Setting
from analysis.stats import resampled_units

SIZES = np.array([1, 2, 3, 5, 8, 8, 4, 2])


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@looped("method", ["t", "cr2", "betting", "sign-flip"])
def test_a_simulated_study_has_the_p_of_the_judge(method):
    setting = ClusterSetting(Setting(SYMMETRIC, 0.4), 0.3)
    means = populations.draw_cluster_means(setting, SIZES, 3, 40, rng()) / 2 + 0.4
    tails = populations.cluster_tails(method, means, SIZES, 0.0, 5_000, rng())
    names = np.repeat(np.arange(len(SIZES)), SIZES).astype(str).tolist()
    compared = 0
    for study, p in zip(means, 2 * tails.min(axis=1), strict=True):
        answers = np.repeat(study, SIZES)[:, None]
        (judged,) = resampled_units.compare_at_levels(method, answers, names, [0.95], draws=5_000, rng=rng)
        if p < 1:  # where t finds nothing near, other methods are not tried
            assert p == pytest.approx(judged.p, rel=1e-9)
            compared += 1
    assert compared > 5


@pytest.mark.parametrize("correlation", [0.0, 0.3, 1.0])
def test_means_of_clusters_vary_as_much_as_their_correlation_says(correlation):
    """One seed, 20 % of answers differ: the variance of a problem is 0.2, of a mean of n 0.2 (1 + (n - 1) rho) / n."""
    setting = ClusterSetting(Setting(SYMMETRIC, 0.2), correlation)
    means = populations.draw_cluster_means(setting, SIZES, 1, 20_000, rng())
    expected = 0.2 * (1 + (SIZES - 1) * correlation) / SIZES
    assert means.var(axis=0) == pytest.approx(expected, rel=0.06)
    assert means.mean(axis=0) == pytest.approx(np.zeros(len(SIZES)), abs=0.015)


def test_where_whole_clusters_are_lost_the_others_gain_as_much():
    """4 % of problems differ, with three seeds: 1 % of clusters lose all, and problems gain a third elsewhere."""
    means = populations.draw_cluster_means(ClusterSetting(Setting(GAINS, 0.04), 0.0), SIZES, 3, 40_000, rng())
    assert (means[:, 4] == -1).mean() == pytest.approx(0.01, abs=0.002)
    assert means.mean() == pytest.approx(0, abs=0.002)
    assert (means[means != -1] >= 0).all()


@looped("method", ["t", "cr2", "sign-flip", "bootstrap"])
@looped("mean", [0.0, 0.5, -1.0])
def test_studies_without_any_spread_have_the_p_of_the_judge(method, mean):
    means = np.full((1, len(SIZES)), mean)
    answers, names = np.full((SIZES.sum(), 1), mean), np.repeat(np.arange(len(SIZES)), SIZES).astype(str).tolist()
    (judged,) = resampled_units.compare_at_levels(method, answers, names, [0.95], draws=500, rng=rng)
    p = 2 * populations.cluster_tails(method, means, SIZES, 0.0, 500, rng()).min()
    assert min(1.0, p) == pytest.approx(judged.p, rel=1e-9)
    if method in ("t", "cr2"):
        margin = resampled_units.tost(answers, names, 0.1, 0.0, alpha=0.05, method=method)
        worse, _ = populations.cluster_tails(method, means, SIZES, -0.1, 500, rng())[0]
        assert worse == pytest.approx(margin.p_worse, rel=1e-9)


def test_no_population_is_looked_at_more_often_than_its_limits_are_for(monkeypatch):
    looks = Counter()

    def estimate(method, *, setting, studies, **rest):
        looks[setting] += studies > populations.FIRST_STUDIES
        return TypeOneError(0.0125, 1.0, 0.9, 1.3, studies, setting)  # nothing is ever known

    monkeypatch.setattr(populations, "_estimate", estimate)
    populations.worst_error_of_clusters("t", [1, 2, 3] * 4, 1, (0.0125, 0.0125), rng())
    assert max(looks.values()) == len(populations.STUDIES) == study_pool.LOOKS


def test_bets_hold_at_their_worst_and_are_simulated_there():
    holds = populations.worst_error_of_clusters("betting", [5] * 10, 1, (0.0125, 0.0125), rng())
    assert not holds.exceeds()
    assert holds.studies == populations.STUDIES[0]


@pytest.mark.parametrize(("kind", "side"), [(GAINS, 1), (LOSSES, -1)])
def test_where_the_largest_clusters_are_lost_the_others_gain_as_much(kind, side):
    """Two of 8 problems: .3 of them are lost on average, which is 2.4 problems; 17 others gain as many."""
    setting = ClusterSetting(Setting(kind, 0.01), 0.0, 0.3)
    means = side * populations.draw_cluster_means(setting, SIZES, 1, 40_000, rng())
    large = SIZES == 8
    assert (means[:, large] == -1).sum(axis=1).mean() == pytest.approx(0.3, abs=0.01)
    assert set(np.unique(means[:, large])) <= {-1.0, 0.0}
    assert (means[:, ~large] >= 0).all()
    assert (means[:, ~large] @ SIZES[~large]).mean() == pytest.approx(2.4, abs=0.05)
    worse = populations.draw_cluster_means(setting, SIZES, 1, 40_000, rng(), 0.1)
    assert (worse @ SIZES / SIZES.sum()).mean() == pytest.approx(-0.1, abs=0.005)


@pytest.mark.parametrize(
    "case", sampled([("t", [2] * 60), ("cr2", [1] * 160 + [2] * 40), ("sign-flip", [1] * 199 + [2])], of=3)
)
def test_four_intervals_of_clusters_miss_where_few_problems_are_gained_and_none_is_lost(case):
    method, sizes = case
    """Four problems are gained on average. Promised are 93.5 % of studies; bets hold there."""
    generator, names = rng(), np.repeat(np.arange(len(sizes)), sizes).astype(str).tolist()
    truth = 4 / sum(sizes)
    missed = {method: 0, "betting": 0}
    for _ in range(120):
        answers = (generator.random((sum(sizes), 1)) < truth).astype(float)
        for name in missed:
            (found,) = resampled_units.compare_at_levels(name, answers, names, [0.9875], draws=8_000, rng=rng)
            missed[name] += not found.low <= truth <= found.high
    assert (1 - missed[method] / 120) ** 4 < 0.88
    assert missed["betting"] <= 1


@pytest.mark.parametrize(("method", "sizes"), [("t", [2] * 10), ("cr2", [1] * 160 + [2] * 40), ("sign-flip", [2] * 60)])
def test_one_side_errs_far_above_its_level_in_a_skewed_population(method, sizes):
    """Of sign flips too, which need symmetry: clusters of two are lost, and single problems gained."""
    counts, worst = np.array(sizes), 0.0
    for setting in populations.cluster_settings(counts, 1):
        if setting.problems.kind == SYMMETRIC:
            continue
        means = populations.draw_cluster_means(setting, counts, 1, 3_000, rng())
        tails = populations.cluster_tails(method, means, counts, 0.0, 12_000, rng())
        worst = max(worst, float((tails <= 0.00625).mean(axis=0).max()) / 0.00625)
    assert worst > 1.6


def test_the_worst_population_is_not_the_one_with_the_most_errors_in_few_studies():
    """160 clusters of one problem and 40 of two: t has 1.3 to 1.6 x the errors of a side in six populations, and in the
    one that looked worst of these draws 0.95 x.
    """
    sizes, levels = [1] * 160 + [2] * 40, (0.00625, 0.00625)
    error = populations.worst_error_of_clusters("t", sizes, 1, levels, np.random.default_rng(11), 0.0)
    assert error.exceeds()
