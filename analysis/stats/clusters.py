"""Problems that hang together: what a method that resamples problems resamples where they come in clusters.

The problems of one template, document or subject are not independent. The estimand stays the mean over
problems, whatever the sizes of the clusters; only its error is that of clusters (Liang & Zeger 1986,
Biometrika 73:13; for evaluations Miller 2024, arXiv:2411.00640).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.stats.interval import DegenerateDifference

__all__ = ["clustered"]


def clustered(values: ArrayLike, clusters: Sequence[str]) -> NDArray[np.float64]:
    """One value a cluster, in the order in which clusters first appear, to be given to a method as if each
    were a problem.

    values: d[i] of n problems, their seeds averaged. clusters: that of each problem, G different ones.
    z[c] = mean(d) + (G/n) * (sum of d[i] - mean(d) over the problems i of c): the mean of z is that of d, and
    its standard error, s(z)/sqrt(G), is the cluster-robust one with the factor G/(G-1). Where all clusters
    have one size, z[c] is the mean of the cluster; clusters of one problem give back `values`. With unequal
    sizes a z may lie outside the range of the values.

    Rounded to twelve decimals, as `interval.problem_means`. Raises DegenerateDifference for another shape, a
    label too many or too few, or a single cluster.
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
