"""Cluster values: what a method resamples in place of problems where problems come in clusters.

The problems of one template, document or subject are not independent. The estimand stays the mean over
problems, whatever the cluster sizes; only its standard error is cluster-robust (Liang & Zeger 1986,
Biometrika 73:13; for evaluations Miller 2024, arXiv:2411.00640).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.stats.interval import DegenerateDifference


class ClusterMeans(NamedTuple):
    means: NDArray[np.float64]  # [cluster], of its problems, in order of first appearance
    sizes: NDArray[np.float64]  # [cluster], the number of its problems


def cluster_values(values: ArrayLike, clusters: Sequence[str]) -> NDArray[np.float64]:
    """Return one value per cluster, in order of first appearance, which a method treats as a problem.

    values: d[i] of n problems, averaged over seeds. clusters: the cluster of each problem, G distinct ones.
    z[c] = mean(d) + (G/n) * (sum of d[i] - mean(d) over the problems i of c): the mean of z is that of d, and
    its standard error, s(z)/sqrt(G), is the cluster-robust one with the factor G/(G-1). If all
    clusters have one size, z[c] is the cluster mean; clusters of one problem return `values`. With unequal
    sizes a z may lie outside the range of the values.

    Values are rounded to twelve decimals, as in `interval.problem_means`. Raises DegenerateDifference for
    another shape, a wrong number of labels, or a single cluster.
    """
    totals = cluster_means(values, clusters)
    mean = np.average(totals.means, weights=totals.sizes)
    sums = totals.sizes * (totals.means - mean)
    cluster_totals: NDArray[np.float64] = np.round(mean + len(sums) / totals.sizes.sum() * sums, 12)
    return cluster_totals


def cluster_means(values: ArrayLike, clusters: Sequence[str]) -> ClusterMeans:
    """Return the mean and the size of each cluster; arguments and errors as in `cluster_values`."""
    problem_values = np.asarray(values, dtype=np.float64)
    if problem_values.ndim != 1 or len(problem_values) != len(clusters):
        raise DegenerateDifference(
            f"clusters: {len(clusters)} labels for values of shape {problem_values.shape}; pass one label per problem"
        )
    positions = {name: index for index, name in enumerate(dict.fromkeys(clusters))}
    if len(positions) < 2:
        raise DegenerateDifference(f"clusters: {len(positions)} cluster(s) have no spread; pass at least two")
    indices = [positions[name] for name in clusters]
    sizes = np.bincount(indices).astype(np.float64)
    return ClusterMeans(np.bincount(indices, problem_values) / sizes, sizes)
