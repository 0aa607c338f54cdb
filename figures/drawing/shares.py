"""Shares of answers and mean scores with confidence limits over problems: answers to one problem are not
independent, nor are problems of one cluster.
"""

import math
from collections.abc import Iterable
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Share(NamedTuple):
    """`n_matching` of `n_total` answers, as a share (0 to 1) with its 95 % limits; NaN for no answers. For
    scores `n_matching` is the sum, and the share their mean.
    """

    share: float
    low: float
    high: float
    n_matching: float
    n_total: int

    @property
    def scored(self) -> bool:
        """Whether some answer has a fractional score, as far as the sum shows it."""
        return self.n_matching != int(self.n_matching)


def axis_label(shares: Iterable[Share]) -> str:
    """Return the label of an axis with these shares."""
    return "mean score, %" if any(entry.scored for entry in shares) else "correct answers, %"


def compute_share(answers: Any, matches: Any, among: Any) -> Share:
    """Return the share of the answers `among` that are `matches`.

    answers: lanes of `analysis.judgement.study_files.read_study`; matches, among: booleans, one for each lane;
    matches may be scores from 0 to 1, which need no value outside `among`.

    Wilson's limits (1927) at the effective number of answers, their number over the design effect of drawing
    whole problems (Franco et al. 2019, J. Survey Statistics and Methodology 7:334; linearised variance of the
    ratio, without their correction for degrees of freedom). Never more than the number of answers: with one
    seed these are Wilson's limits. If all answers are equal, the design effect cannot be estimated, and a
    problem counts once. For problems in clusters, whole clusters are drawn. Scores vary no more than right
    and wrong answers of the same mean, so their limits are conservative.
    """
    among = among.astype(bool)
    matches = matches.astype(float).where(among, 0.0)
    count, total = round(float(matches.sum()), 6), int(among.sum())
    if total == 0:
        return Share(math.nan, math.nan, math.nan, 0, 0)
    mean = count / total
    problem = answers["cluster" if "cluster" in answers else "problem"]
    residual = (matches - mean * among).groupby(problem).sum()
    independent, clustered = total * mean * (1 - mean), float((residual**2).sum())
    problem_count = float(problem[among].nunique())
    size = problem_count if independent == 0 else total * independent / max(independent, clustered)
    return Share(mean, *_wilson(mean, size), int(count) if count == int(count) else count, total)


def mean_share(shares: NDArray[np.float64]) -> Share:
    """Return the mean of a share of each unit, such as the tokens of a trace; NaN if a unit has none.

    Wilson's limits at the number of answers with the variance of this mean; at most one for each unit if all
    units are equal, since their spread cannot be estimated then.
    """
    finite = shares[np.isfinite(shares)]
    if len(finite) == 0:
        return Share(math.nan, math.nan, math.nan, 0, 0)
    mean = min(1.0, max(0.0, float(finite.mean())))
    variance = float(finite.var(ddof=1)) / len(finite) if len(finite) > 1 else 0.0
    size = mean * (1 - mean) / variance if variance > 1e-12 else float(len(finite))
    return Share(mean, *_wilson(mean, size), round(float(finite.sum()), 6), len(finite))


def _wilson(mean: float, size: float) -> tuple[float, float]:
    z = NormalDist().inv_cdf(0.975)
    centre = mean + z**2 / (2 * size)
    half = z * math.sqrt(mean * (1 - mean) / size + z**2 / (4 * size**2))
    low, high = ((centre + sign * half) / (1 + z**2 / size) for sign in (-1, 1))
    return max(0.0, low), min(1.0, high)
