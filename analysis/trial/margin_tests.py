"""The one-sided tests about a margin, of many simulated studies: what decides a rule with a margin."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis.stats import equivalence, restricted_likelihood
from analysis.stats.methods import FEW

__all__ = ["Tests", "tested"]


class Tests(NamedTuple):
    """p of four one-sided tests, [study] each."""

    worse: NDArray[np.float64]  # small: the mean lies above -margin, not worse by it
    better: NDArray[np.float64]  # small: below the margin
    below: NDArray[np.float64]  # small: below -margin, so that the upper limit does
    above: NDArray[np.float64]  # small: above the margin


def tested(method: str, counts: NDArray[np.int64], margin: float) -> Tests:
    """As `equivalence.margins` by t, restricted-likelihood or auto, whose limits at a level lie beyond the
    margin where `below` or `above` is at most that level.

    counts: [study, 2k + 1], problems whose seeds sum to -k, ..., k; the same number in every study.
    """
    k = counts.shape[1] // 2
    few = np.full(len(counts), method == "restricted-likelihood")
    if method == "auto":
        few |= counts.sum(axis=1) - counts[:, k] < FEW
    found = np.empty((4, len(counts)))
    if few.any():
        lower, upper = (restricted_likelihood.tails(counts[few], at) for at in (-margin, margin))
        found[:, few] = [lower[:, 1], upper[:, 0], lower[:, 0], upper[:, 1]]
    if not few.all():
        found[:, ~few] = _student(counts[~few], margin)
    return Tests(*found)


def _student(counts: NDArray[np.int64], margin: float) -> list[NDArray[np.float64]]:
    problems, k = int(counts[0].sum()), counts.shape[1] // 2
    mean, worse, better = equivalence.simulated(counts, margin, 0.05)[:, [0, 3, 4]].T
    spread = np.maximum(counts @ np.arange(-k, k + 1) ** 2 / k**2 - problems * mean**2, 1e-12)
    error = np.sqrt(spread / (problems - 1) / problems)
    below, above = (stats.t.cdf(away / error, problems - 1) for away in (mean + margin, margin - mean))
    return [worse, better, below, above]
