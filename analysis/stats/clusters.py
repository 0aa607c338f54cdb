"""Cluster values: what a method resamples in place of problems where problems come in clusters.

The problems of one template, document or subject are not independent. The estimand stays the mean over
problems, whatever the cluster sizes; only its standard error is cluster-robust (Liang & Zeger 1986,
Biometrika 73:13; for evaluations Miller 2024, arXiv:2411.00640).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.stats.interval import DegenerateDifference

__all__ = ["clustered"]


def clustered(values: ArrayLike, clusters: Sequence[str]) -> NDArray[np.float64]:
    """Return one value per cluster, in order of first appearance, which a method treats as a problem.

    values: d[i] of n problems, averaged over seeds. clusters: the cluster of each problem, G distinct ones.
    z[c] = mean(d) + (G/n) * (sum of d[i] - mean(d) over the problems i of c): the mean of z is that of d, and
    its standard error, s(z)/sqrt(G), is the cluster-robust one with the factor G/(G-1). If all
    clusters have one size, z[c] is the cluster mean; clusters of one problem return `values`. With unequal
    sizes a z may lie outside the range of the values.

    Values are rounded to twelve decimals, as in `interval.problem_means`. Raises DegenerateDifference for
    another shape, a wrong number of labels, or a single cluster.
    """
    each = np.asarray(values, dtype=np.float64)
    if each.ndim != 1 or len(each) != len(clusters):
        raise DegenerateDifference(
            f"clusters: {len(clusters)} labels for values of shape {each.shape}; pass one label a problem"
        )
    place = {name: index for index, name in enumerate(dict.fromkeys(clusters))}
    if len(place) < 2:
        raise DegenerateDifference(f"clusters: {len(place)} cluster(s) show no spread; pass at least two")
    mean = each.mean()
    sums = np.bincount([place[name] for name in clusters], each - mean, minlength=len(place))
    found: NDArray[np.float64] = np.round(mean + len(place) / len(each) * sums, 12)
    return found
