"""Transfer of effects between two models: both effects per cell, whether signs agree, and their difference.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from analysis.stats.comparison import Comparison
from analysis.stats.interval import DegenerateDifference
from analysis.stats.paired_tests import student
from analysis.stats.resampled_units import Clusters, units

__all__ = ["Row", "table"]


class Row(NamedTuple):
    """One cell (task, budget, comparator ...) on both models."""

    cell: str
    primary: Comparison
    transfer: Comparison
    signs: str  # "agree", "oppose", or "open" if an interval reaches zero
    apart: Comparison  # transfer minus primary, -2 to 2, paired by problem


def table(
    primary: Mapping[str, ArrayLike],
    transfer: Mapping[str, ArrayLike],
    *,
    level: float = 0.95,
    clusters: Mapping[str, Clusters] | None = None,
) -> list[Row]:
    """Return a row per cell, in the order of `primary`; t on problem means, not corrected for the number of
    cells.

    primary, transfer: difference[problem, seed] of each cell on that model, on the same problems in the same
        order; the number of seeds may differ. Problem means of the two models are paired, since the same
        problems are hard for both. clusters: of the problems of each cell; None for no clusters.

    Raises DegenerateDifference for cells that one model lacks, or that differ in their problems.
    """
    if not primary or primary.keys() != transfer.keys():
        lacking = sorted(primary.keys() ^ transfer.keys())
        raise DegenerateDifference(f"cells: {lacking} are on one model only; pass the same, at least one")
    of = clusters or {}
    return [_row(cell, primary[cell], transfer[cell], of.get(cell), level) for cell in primary]


def _row(cell: str, primary: ArrayLike, transfer: ArrayLike, clusters: Clusters, level: float) -> Row:
    def compared(difference: ArrayLike) -> Comparison:
        of = units(difference, clusters)
        return of.whole(student(of.values, level=level))

    own, other = compared(primary), compared(transfer)
    means = [np.asarray(each, dtype=np.float64).mean(axis=1) for each in (primary, transfer)]
    if len(means[0]) != len(means[1]):
        raise DegenerateDifference(
            f"{cell}: {len(means[0])} and {len(means[1])} problems; pass the same ones"
        )
    half = compared((means[1] - means[0])[:, None] / 2)
    apart = Comparison(2 * half.mean, 2 * half.low, 2 * half.high, half.p)
    return Row(cell, own, other, _signs(own, other), apart)


def _signs(one: Comparison, other: Comparison) -> str:
    if one.low <= 0 <= one.high or other.low <= 0 <= other.high:
        return "open"
    return "agree" if (one.low > 0) == (other.low > 0) else "oppose"
