"""One-sided margin tests of many simulated studies, by which rules with a margin decide."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis.stats import equivalence, restricted_likelihood
from analysis.stats.methods import FEW

__all__ = ["Tests", "tested"]


class Tests(NamedTuple):
    """The p of four one-sided tests, [study] each."""

    worse: NDArray[np.float64]  # small: the mean is above -margin
    better: NDArray[np.float64]  # small: the mean is below the margin
    below: NDArray[np.float64]  # small: the mean and its upper limit are below -margin
    above: NDArray[np.float64]  # small: the mean is above the margin


def tested(method: str, counts: NDArray[np.int64], margin: float) -> Tests:
    """Return the p of `equivalence.tost` by t, restricted-likelihood or auto; its limits at a level are
    beyond the margin if `below` or `above` is at most that level.

    counts: [study, 2k + 1], the number of problems whose seeds sum to -k, ..., k; equally many problems in
    every study.
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
