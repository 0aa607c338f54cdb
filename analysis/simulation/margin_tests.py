"""One-sided margin tests of many simulated studies, by which rules with a margin decide."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis.stats import betting, equivalence, restricted_likelihood
from analysis.stats.methods import EXACT_BELOW

Floats = NDArray[np.float64]


class MarginPValues(NamedTuple):
    """The p of four one-sided tests, [study] each."""

    worse: Floats  # small: the mean is above -margin
    below: Floats  # small: the mean and its upper limit are below -margin
    better: Floats  # small: the mean is below the margin
    above: Floats  # small: the mean is above the margin


def margin_p_values(method: str, counts: NDArray[np.int64], margin: float) -> MarginPValues:
    """Return the p of `equivalence.tost` by t, cr2, restricted-likelihood, auto or betting; its limits at a level are
    beyond the margin if `below` or `above` is at most that level.

    counts: [study, 2k + 1], the number of problems whose seeds sum to -k, ..., k; equally many problems in
    every study.
    """
    return MarginPValues(*lower_margin_p(method, counts, margin), *lower_margin_p(method, counts[:, ::-1], margin))


def lower_margin_p(method: str, counts: NDArray[np.int64], margin: float) -> tuple[Floats, Floats]:
    """Return `worse` and `below` of `margin_p_values`; those of mirrored counts are `better` and `above`."""
    if method == "betting":
        worse, below = betting.p_of_counts(counts, -margin).T
        return worse, below
    k = counts.shape[1] // 2
    few = np.full(len(counts), method == "restricted-likelihood")
    if method == "auto":
        few |= counts.sum(axis=1) - counts[:, k] < EXACT_BELOW
    p = np.empty((2, len(counts)))
    if few.any():
        p[:, few] = restricted_likelihood.tails(counts[few], -margin)[:, ::-1].T
    if not few.all():
        p[:, ~few] = _student_p(counts[~few], margin)
    return p[0], p[1]


def _student_p(counts: NDArray[np.int64], margin: float) -> Floats:
    problems, k = int(counts[0].sum()), counts.shape[1] // 2
    mean, worse = equivalence.tost_of_studies(counts, margin, 0.05)[:, [0, 3]].T
    spread = np.maximum(counts @ np.arange(-k, k + 1) ** 2 / k**2 - problems * mean**2, 1e-12)
    error = np.sqrt(spread / (problems - 1) / problems)
    return np.stack([worse, stats.t.cdf((mean + margin) / error, problems - 1)])
