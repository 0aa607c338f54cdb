"""Transfer of effects between two models: both effects per cell, whether signs agree, and their difference."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from analysis.stats.comparison import Comparison
from analysis.stats.interval import DegenerateDifference
from analysis.stats.paired_tests import student_t
from analysis.stats.resampled_units import Clusters, resampling_units


class TransferRow(NamedTuple):
    """One cell (task, budget, comparator ...) on both models."""

    cell: str
    primary: Comparison
    transfer: Comparison
    signs: str  # "agree", "oppose", or "open" if an interval reaches zero
    apart: Comparison  # transfer minus primary, -2 to 2, paired by problem


def transfer_table(
    primary: Mapping[str, ArrayLike],
    transfer: Mapping[str, ArrayLike],
    *,
    level: float = 0.95,
    clusters: Mapping[str, Clusters] | None = None,
) -> list[TransferRow]:
    """Return a row per cell, in the order of `primary`; t on problem means, not corrected for the number of cells.

    primary, transfer: difference[problem, seed] of each cell on that model, on the same problems in the same
        order; the number of seeds may differ. Problem means of the two models are paired, since the same
        problems are hard for both. clusters: of the problems of each cell; None for no clusters.

    Raises DegenerateDifference for cells that one model lacks, or that differ in their problems.
    """
    if not primary or primary.keys() != transfer.keys():
        lacking = sorted(primary.keys() ^ transfer.keys())
        raise DegenerateDifference(f"cells: {lacking} are on one model only; pass the same, at least one")
    cell_clusters = clusters or {}
    return [_transfer_row(cell, primary[cell], transfer[cell], cell_clusters.get(cell), level) for cell in primary]


def _transfer_row(cell: str, primary: ArrayLike, transfer: ArrayLike, clusters: Clusters, level: float) -> TransferRow:
    def compare(difference: ArrayLike) -> Comparison:
        units = resampling_units(difference, clusters)
        return units.rescale(student_t(units.values, level=level))

    primary_result, transfer_result = compare(primary), compare(transfer)
    means = [np.asarray(values, dtype=np.float64).mean(axis=1) for values in (primary, transfer)]
    if len(means[0]) != len(means[1]):
        raise DegenerateDifference(f"{cell}: {len(means[0])} and {len(means[1])} problems; pass the same ones")
    half = compare((means[1] - means[0])[:, None] / 2)
    change = Comparison(2 * half.mean, 2 * half.low, 2 * half.high, half.p)
    return TransferRow(cell, primary_result, transfer_result, _compare_signs(primary_result, transfer_result), change)


def _compare_signs(primary: Comparison, transfer: Comparison) -> str:
    if primary.low <= 0 <= primary.high or transfer.low <= 0 <= transfer.high:
        return "open"
    return "agree" if (primary.low > 0) == (transfer.low > 0) else "oppose"
