"""Populations of problems in clusters: drawn as they are described, and tested as the judge tests them."""

import numpy as np
import pytest

from analysis.simulation import cluster_populations as populations
from analysis.simulation.cluster_populations import ClusterSetting
from analysis.simulation.null_populations import GAINS, SYMMETRIC, Setting
from analysis.stats import resampled_units

SIZES = np.array([1, 2, 3, 5, 8, 8, 4, 2])


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("method", ["t", "cr2", "betting", "sign-flip"])
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


def test_a_method_that_errs_where_t_does_is_tried_in_few_studies_and_one_that_holds_in_all():
    errs, holds = (
        populations.worst_error_of_clusters(method, [5] * 10, 1, (0.0125, 0.0125), rng())
        for method in ("bootstrap", "betting")
    )
    assert errs.ratio_low > populations.LIMIT
    assert errs.studies == populations.FIRST_STUDIES
    assert not holds.exceeds()
    assert holds.studies >= populations.STUDIES


def test_the_worst_population_is_not_the_one_with_the_most_errors_in_few_studies():
    """160 clusters of one problem and 40 of two: t has 1.3 to 1.6 x the errors of a side in six populations, and in the
    one that looked worst of these draws 0.95 x.
    """
    sizes, levels = [1] * 160 + [2] * 40, (0.00625, 0.00625)
    error = populations.worst_error_of_clusters("t", sizes, 1, levels, np.random.default_rng(11), 0.0)
    assert error.exceeds()
