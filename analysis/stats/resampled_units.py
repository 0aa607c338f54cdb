"""Resampling units: problems, or whole clusters of problems where problems come in clusters.

Every method gets one value per unit. The values of clusters of unequal sizes may lie outside [-1, 1], the
range that methods accept; they are divided by a power of two, which is exact in floating point, and results
are multiplied by it again.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.stats import equal_memory, max_t, paired_tests
from analysis.stats.clusters import clustered
from analysis.stats.comparison import Comparison, Margins
from analysis.stats.interval import problem_means

__all__ = ["Clusters", "Units", "compare_at", "margins", "number", "simultaneous", "units"]

Clusters = Sequence[str] | None  # the cluster of each problem; None if problems are independent


class Units(NamedTuple):
    values: NDArray[np.float64]  # [unit, seed], for clusters [unit, 1], in [-1, 1]
    scale: float  # the divisor of the values

    def whole(self, found: Comparison) -> Comparison:
        """Return a comparison of `values` on the scale of the original differences."""
        if self.scale == 1:
            return found
        low, high = max(-1.0, found.low * self.scale), min(1.0, found.high * self.scale)
        return Comparison(found.mean * self.scale, low, high, found.p)


def number(clusters: Clusters, problems: int) -> int:
    """Return the number of units."""
    return problems if clusters is None else len(set(clusters))


def units(difference: ArrayLike, clusters: Clusters) -> Units:
    """Return the units of difference[problem, seed], points. Clusters of one problem each are problems.

    Raises DegenerateDifference as `interval.problem_means` and `clusters.cluster_values` do.
    """
    values = np.asarray(difference, dtype=np.float64)
    if clusters is None or len(set(clusters)) == len(clusters) == len(values):
        return Units(values, 1.0)
    each = clustered(problem_means(values), clusters)
    largest = float(np.abs(each).max())
    scale = 2.0 ** np.ceil(np.log2(largest)) if largest > 1 else 1.0
    return Units(each[:, None] / scale, float(scale))


def compare_at(
    method: str,
    difference: ArrayLike,
    clusters: Clusters,
    levels: Sequence[float],
    *,
    draws: int,
    rng: Callable[[], np.random.Generator],
    null: float = 0.0,
) -> list[Comparison]:
    """Return `paired_tests.compare_at_levels` of units."""
    of = units(difference, clusters)
    found = paired_tests.compare_at(method, of.values, levels, draws=draws, rng=rng, null=null / of.scale)
    return [of.whole(each) for each in found]


def margins(
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
    of = units(difference, clusters)
    found = equal_memory.margins(
        of.values,
        margin / of.scale,
        points / of.scale,
        alpha=alpha,
        method=method,
        draws=draws,
        rng=rng,
    )
    if of.scale == 1:
        return found
    mean, low, high = (one * of.scale for one in found[:3])
    return Margins(mean, max(-1.0, low), min(1.0, high), found.p_worse, found.p_better)


def simultaneous(
    groups: Sequence[Sequence[tuple[ArrayLike, Clusters, float]]],
    *,
    level: float,
    draws: int,
    rng: np.random.Generator,
) -> list[list[Comparison]]:
    """Return `max_t.max_t` of units. groups: difference, clusters and null of each contrast; contrasts of a
    group share their problems and clusters.
    """
    of = [[(units(difference, clusters), null) for difference, clusters, null in group] for group in groups]
    found = max_t.max_t(
        [[one.values for one, _ in group] for group in of],
        level=level,
        draws=draws,
        rng=rng,
        nulls=[[null / one.scale for one, null in group] for group in of],
    )
    return [
        [one.whole(each) for (one, _), each in zip(*pair, strict=True)]
        for pair in zip(of, found, strict=True)
    ]
