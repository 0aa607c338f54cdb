"""Resampling units: problems, or whole clusters of problems where problems come in clusters.

Every method gets one value per unit. The values of clusters of unequal sizes may lie outside [-1, 1], the
range that methods accept; they are divided by a power of two, which is exact in floating point, and results
are multiplied by it again.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.stats import memory_charge, paired_tests
from analysis.stats.clusters import ClusterMeans, cluster_means, cluster_values
from analysis.stats.comparison import Comparison, Margins
from analysis.stats.interval import problem_means

Clusters = Sequence[str] | None  # the cluster of each problem; None if problems are independent


class ResamplingUnits(NamedTuple):
    values: NDArray[np.float64]  # [unit, seed], for clusters [unit, 1], in [-1, 1]
    scale: float  # the divisor of the values

    def rescale(self, comparison: Comparison) -> Comparison:
        """Return a comparison of `values` on the scale of the original differences."""
        if self.scale == 1:
            return comparison
        low, high = max(-1.0, comparison.low * self.scale), min(1.0, comparison.high * self.scale)
        return Comparison(comparison.mean * self.scale, low, high, comparison.p)


def count_units(clusters: Clusters, problems: int) -> int:
    """Return the number of units."""
    return problems if clusters is None else len(set(clusters))


def resampling_units(difference: ArrayLike, clusters: Clusters) -> ResamplingUnits:
    """Return the units of difference[problem, seed], points. Clusters of one problem each are problems.

    Raises DegenerateDifference as `interval.problem_means` and `clusters.cluster_values` do.
    """
    values = np.asarray(difference, dtype=np.float64)
    if clusters is None or len(set(clusters)) == len(clusters) == len(values):
        return ResamplingUnits(values, 1.0)
    cluster_means = cluster_values(problem_means(values), clusters)
    largest = float(np.abs(cluster_means).max())
    scale = 2.0 ** np.ceil(np.log2(largest)) if largest > 1 else 1.0
    return ResamplingUnits(cluster_means[:, None] / scale, float(scale))


def _has_shared(clusters: Clusters) -> bool:
    """Whether any problems share a cluster."""
    return clusters is not None and len(set(clusters)) < len(clusters)


def _bounded_units(difference: ArrayLike, clusters: Clusters) -> ClusterMeans:
    """Return the mean of each unit, in [-1, 1], and its size."""
    means = problem_means(difference)
    return ClusterMeans(means, np.ones(len(means))) if clusters is None else cluster_means(means, clusters)


def compare_at_levels(
    method: str,
    difference: ArrayLike,
    clusters: Clusters,
    levels: Sequence[float],
    *,
    draws: int,
    rng: Callable[[], np.random.Generator],
    null: float = 0.0,
) -> list[Comparison]:
    """Return `paired_tests.compare_at_levels` of units. "betting", "cr2" and "sign-flip" take the mean and the size of
    a cluster.
    """
    if method == "betting":
        from analysis.stats import betting  # a study that registers it loads it

        means, sizes = _bounded_units(difference, clusters)
        return [betting.compare(means[:, None], level=level, null=null, sizes=sizes) for level in levels]
    if method == "cr2" and _has_shared(clusters):
        from analysis.stats import cluster_robust  # a study with clusters loads it

        means, sizes = _bounded_units(difference, clusters)
        return [cluster_robust.compare(means, sizes, level=level, null=null) for level in levels]
    if method == "sign-flip" and _has_shared(clusters):
        means, sizes = _bounded_units(difference, clusters)
        return paired_tests.sign_flip_at_levels(means[:, None], levels, draws=draws, rng=rng(), null=null, sizes=sizes)
    units = resampling_units(difference, clusters)
    comparisons = paired_tests.compare_at_levels(
        method, units.values, levels, draws=draws, rng=rng, null=null / units.scale
    )
    return [units.rescale(comparison) for comparison in comparisons]


def tost(
    difference: ArrayLike,
    clusters: Clusters,
    margin: float,
    points: float,
    *,
    alpha: float,
    method: str = "t",
    draws: int = 10_000,
    rng: np.random.Generator | None = None,
) -> Margins:
    """Return `memory_charge.tost` of units."""
    if method == "betting" or (method == "cr2" and _has_shared(clusters)):
        means, sizes = _bounded_units(difference, clusters)
        return memory_charge.tost(means[:, None], margin, points, alpha=alpha, method=method, sizes=sizes)
    units = resampling_units(difference, clusters)
    tests = memory_charge.tost(
        units.values, margin / units.scale, points / units.scale, alpha=alpha, method=method, draws=draws, rng=rng
    )
    if units.scale == 1:
        return tests
    mean, low, high = (value * units.scale for value in tests[:3])
    return Margins(mean, max(-1.0, low), min(1.0, high), tests.p_worse, tests.p_better)


def compare_simultaneously(
    groups: Sequence[Sequence[tuple[ArrayLike, Clusters, float]]], *, level: float, draws: int, rng: np.random.Generator
) -> list[list[Comparison]]:
    """Return `max_t.max_t` of units. groups: difference, clusters and null of each contrast; contrasts of a
    group share their problems and clusters.
    """
    from analysis.stats import max_t  # a study that registers it loads it

    unit_groups = [
        [(resampling_units(difference, clusters), null) for difference, clusters, null in group] for group in groups
    ]
    group_comparisons = max_t.max_t(
        [[units.values for units, _ in group] for group in unit_groups],
        level=level,
        draws=draws,
        rng=rng,
        nulls=[[null / units.scale for units, null in group] for group in unit_groups],
    )
    return [
        [units.rescale(comparison) for (units, _), comparison in zip(*pair, strict=True)]
        for pair in zip(unit_groups, group_comparisons, strict=True)
    ]
