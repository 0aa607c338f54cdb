"""Shares of answers, with limits that count problems: answers to one problem are not independent."""

import math
from statistics import NormalDist
from typing import Any, NamedTuple

__all__ = ["Share", "share"]


class Share(NamedTuple):
    """`having` of `of` answers, as a share (0 to 1) with its 95 % limits; NaN of no answers."""

    share: float
    low: float
    high: float
    having: int
    of: int


def share(answers: Any, having: Any, among: Any) -> Share:
    """The share of the answers `among` that are `having`.

    answers: lanes of `analysis.studies.study_files.read`; having, among: booleans, one a lane.

    Wilson's limits (1927) at the effective number of answers, their number over the design effect of drawing
    whole problems (Franco et al. 2019, J. Survey Statistics and Methodology 7:334; linearised variance of the
    ratio, without their correction for degrees of freedom). Never more than the answers there are: with one
    seed these are Wilson's limits. Where all answers are alike nothing tells the design effect, and a problem
    counts once.
    """
    among = among.astype(bool)
    having = having.astype(bool) & among
    count, of = int(having.sum()), int(among.sum())
    if of == 0:
        return Share(math.nan, math.nan, math.nan, 0, 0)
    mean = count / of
    problem = answers["problem"]
    residual = (having - mean * among).groupby(problem).sum()
    independent, clustered = of * mean * (1 - mean), float((residual**2).sum())
    if independent == 0:
        size = float(problem[among].nunique())
    else:
        size = of * independent / max(independent, clustered)
    return Share(mean, *_wilson(mean, size), count, of)


def _wilson(mean: float, size: float) -> tuple[float, float]:
    z = NormalDist().inv_cdf(0.975)
    centre = mean + z**2 / (2 * size)
    half = z * math.sqrt(mean * (1 - mean) / size + z**2 / (4 * size**2))
    low, high = ((centre + sign * half) / (1 + z**2 / size) for sign in (-1, 1))
    return max(0.0, low), min(1.0, high)
