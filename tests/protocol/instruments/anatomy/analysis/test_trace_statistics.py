"""Means over traces, against scipy, a plain enumeration of all flips, and the clusters of other methods."""

import itertools

import numpy as np
import pytest
from scipy import stats

from analysis.stats.clusters import cluster_values
from protocol.instruments.anatomy.analysis.trace_statistics import (
    aggregate_units,
    bootstrap_t,
    family_p,
    means,
    one_sided_p,
    t_limits,
)


def table(traces: int = 9, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.1, 0.3, (traces, 4))


def test_p_and_limits_are_students():
    values = table()
    values[0, 1] = np.nan
    of = means(values)
    for sign, side in ((1, "greater"), (-1, "less")):
        expected = [stats.ttest_1samp(c[np.isfinite(c)], 0, alternative=side).pvalue for c in values.T]
        assert one_sided_p(of, sign) == pytest.approx(expected, abs=1e-12)
    low, high = t_limits(of, 0.9)
    for at, column in enumerate(values.T):
        ends = stats.ttest_1samp(column[np.isfinite(column)], 0).confidence_interval(0.9)
        assert (low[at], high[at]) == pytest.approx((ends.low, ends.high), abs=1e-12)


def test_equal_units_are_judged_by_their_signs_and_one_unit_not_at_all():
    of = means(np.full((8, 1), 0.25))
    assert one_sided_p(of, 1) == pytest.approx(2**-8)
    assert one_sided_p(of, -1) == 1.0
    assert one_sided_p(means(np.zeros((8, 1))), 1) == 1.0
    assert np.isnan(one_sided_p(means(np.full((1, 1), 0.25)), 1)).all()
    assert np.isnan(bootstrap_t(np.full((8, 1), 0.25), 0.9, 50, np.random.default_rng(0))).all()


def test_clusters_are_those_of_every_other_method():
    values, names = table(6), ["a", "b", "a", "c", "a", "b"]
    values[1, 0] = np.nan
    found = aggregate_units(values, names)
    for column in (1, 2, 3):
        assert found[:, column] == pytest.approx(cluster_values(values[:, column], names), abs=1e-9)
    kept = np.isfinite(values[:, 0])
    own = cluster_values(values[kept, 0], [name for name, known in zip(names, kept, strict=True) if known])
    assert sorted(found[:, 0]) == pytest.approx(sorted(own), abs=1e-9)
    assert np.isnan(aggregate_units(np.array([[np.nan], [1.0], [2.0]]), ["a", "b", "b"])[0, 0])
    assert aggregate_units(values, list("abcdef")) is values


def plain(values: np.ndarray) -> list[float]:
    """Over all joint flips, the share in which the largest |t| reaches that of the column."""

    def t(table: np.ndarray) -> np.ndarray:
        n = np.isfinite(table).sum(axis=0)
        found: np.ndarray = np.abs(np.nanmean(table, axis=0)) / np.nanstd(table, axis=0, ddof=1) * np.sqrt(n)
        return found

    observed, signs = t(values), list(itertools.product([1.0, -1.0], repeat=len(values)))
    largest = [t(values * np.array(each)[:, None]).max() for each in signs]
    return [float(np.mean([one >= own - 1e-9 for one in largest])) for own in observed]


def test_family_p_is_the_share_of_joint_flips_whose_largest_t_reaches_it():
    values = table(9, 3)[:, :3]
    values[0, 2] = np.nan  # one trace in which a signal is constant
    found = family_p(values, 20_000, np.random.default_rng(0))
    assert found == pytest.approx(plain(values), abs=0.012)


def test_a_column_of_few_units_takes_no_part():
    values = table(9, 3)
    values[2:, 3] = np.nan
    values[:2, 3] = 0.9, 0.90001  # would be the largest t by far
    found = family_p(values, 500, np.random.default_rng(0))
    assert np.isnan(found[3])
    assert found[:3] == pytest.approx(family_p(values[:, :3], 500, np.random.default_rng(0)))
    assert np.isnan(family_p(values[:7], 500, np.random.default_rng(0))).all()


def test_the_bootstrap_covers_a_skewed_mean_about_as_often_as_it_says():
    draw, covered = np.random.default_rng(1), 0
    for _ in range(150):
        low, high = bootstrap_t(draw.beta(1, 4, (14, 1)), 0.9, 199, draw)
        covered += bool(low[0] <= 0.2 <= high[0])
    # 0.9 -+ 3 standard errors of 150 studies
    assert 0.825 <= covered / 150 <= 0.975
