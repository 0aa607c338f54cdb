"""Cluster values: their mean is that of the problems, their standard error the cluster-robust one."""

import math

import numpy as np
import pytest

from analysis.stats.clusters import cluster_values
from analysis.stats.interval import DegenerateDifference

UNEQUAL = [1.0, 1.0, 0.0, -1.0, 0.5, 0.0, 1.0]
OF = ["a", "a", "b", "a", "c", "b", "c"]


def test_the_values_of_a_hand_count():
    # Mean .5 of 4 problems in 2 clusters: a has 1 + 1 + 0, so .5 + 2/4 * .5; b has 0, so .5 - 2/4 * .5.
    assert cluster_values([1, 1, 0, 0], ["a", "a", "a", "b"]).tolist() == [0.75, 0.25]


def test_clusters_of_one_problem_are_the_problems():
    assert cluster_values(UNEQUAL, [f"p{i}" for i in range(7)]).tolist() == UNEQUAL


def test_clusters_of_one_size_have_their_means():
    assert cluster_values([1, 0, -1, -1, 0.5, 0], ["x", "x", "y", "y", "z", "z"]) == pytest.approx([0.5, -1, 0.25])


def test_the_standard_error_is_the_cluster_robust_one_of_the_mean():
    """The sandwich of an intercept alone, by a plain loop: sqrt(sum over clusters of (sum of residuals)^2)
    / n, times sqrt(G / (G - 1)).
    """
    mean = sum(UNEQUAL) / 7
    sums = dict.fromkeys(OF, 0.0)
    for value, name in zip(UNEQUAL, OF, strict=True):
        sums[name] += value - mean
    robust = math.sqrt(sum(one**2 for one in sums.values()) * 3 / 2) / 7
    found = cluster_values(UNEQUAL, OF)
    assert found.mean() == pytest.approx(mean)
    assert found.std(ddof=1) / math.sqrt(3) == pytest.approx(robust)


def test_a_cluster_counts_once_however_often_its_problem_is_repeated():
    once = np.random.default_rng(1).normal(size=20) / 5
    names = [str(i) for i in range(20)]
    assert cluster_values(np.repeat(once, 5), np.repeat(names, 5).tolist()) == pytest.approx(once)


def test_the_order_is_that_of_first_appearance():
    assert cluster_values([0, 1, 1, 0], ["z", "a", "a", "z"]).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("values", "clusters", "says"),
    [
        ([0.0, 1.0], ["a"], "1 labels for values of shape"),
        ([[0.0], [1.0]], ["a", "b"], "one label per problem"),
        ([0.0, 1.0], ["a", "a"], "at least two"),
    ],
)
def test_what_no_error_can_be_had_of_is_refused(values, clusters, says):
    with pytest.raises(DegenerateDifference, match=says):
        cluster_values(values, clusters)
