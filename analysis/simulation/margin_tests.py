"""One-sided margin tests of many simulated studies, by which rules with a margin decide."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis.stats import betting, equivalence, restricted_likelihood
from analysis.stats.methods import EXACT_BELOW


class MarginPValues(NamedTuple):
    """The p of four one-sided tests, [study] each."""

    worse: NDArray[np.float64]  # small: the mean is above -margin
    better: NDArray[np.float64]  # small: the mean is below the margin
    below: NDArray[np.float64]  # small: the mean and its upper limit are below -margin
    above: NDArray[np.float64]  # small: the mean is above the margin


def margin_p_values(method: str, counts: NDArray[np.int64], margin: float) -> MarginPValues:
    """Return the p of `equivalence.tost` by t, cr2, restricted-likelihood, auto or betting; its limits at a level are
    beyond the margin if `below` or `above` is at most that level.

    counts: [study, 2k + 1], the number of problems whose seeds sum to -k, ..., k; equally many problems in
    every study.
    """
    if method == "betting":
        lower, upper = (betting.p_of_counts(counts, null) for null in (-margin, margin))
        return MarginPValues(lower[:, 0], upper[:, 1], lower[:, 1], upper[:, 0])
    k = counts.shape[1] // 2
    few = np.full(len(counts), method == "restricted-likelihood")
    if method == "auto":
        few |= counts.sum(axis=1) - counts[:, k] < EXACT_BELOW
    p = np.empty((4, len(counts)))
    if few.any():
        lower, upper = (restricted_likelihood.tails(counts[few], null) for null in (-margin, margin))
        p[:, few] = [lower[:, 1], upper[:, 0], lower[:, 0], upper[:, 1]]
    if not few.all():
        p[:, ~few] = _student_p(counts[~few], margin)
    return MarginPValues(*p)


def _student_p(counts: NDArray[np.int64], margin: float) -> list[NDArray[np.float64]]:
    problems, k = int(counts[0].sum()), counts.shape[1] // 2
    mean, worse, better = equivalence.tost_of_studies(counts, margin, 0.05)[:, [0, 3, 4]].T
    spread = np.maximum(counts @ np.arange(-k, k + 1) ** 2 / k**2 - problems * mean**2, 1e-12)
    error = np.sqrt(spread / (problems - 1) / problems)
    below, above = (stats.t.cdf(distance / error, problems - 1) for distance in (mean + margin, margin - mean))
    return [worse, better, below, above]
