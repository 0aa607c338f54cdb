"""A test of the mean of bounded differences that holds at any skew: bets against the null, and their capital.

A gambler who starts with 1 stakes a share u of the capital on every unit. If the mean is at most m, the expected
capital is at most 1 whatever the distribution in [-1, 1], so that 1 / capital is a p value (Ville 1939; Waudby-Smith &
Ramdas 2024, JRSS B 86:1, section 4). The capital is averaged over a grid of constant shares u ("grid Kelly", their
appendix B.5), which leaves no order of the units to choose. Constant shares also hold where units have different
means: the product of 1 + u (mean_c - m) is at most exp(u sum of (mean_c - m)), so that the null is about their mean.

A cluster of size n_c is one unit with the stake u n_c / (the largest size); the null is then about the mean over
problems.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

from analysis.stats.comparison import Comparison, Margins
from analysis.stats.interval import problem_means

Floats = NDArray[np.float64]
# Shares of the capital that are staked: Gauss-Legendre nodes in the square root of u, so that most are small.
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(32)
STAKES: Floats = ((1 + _NODES) / 2) ** 2
LOG_WEIGHTS: Floats = np.log(_NODE_WEIGHTS / 2)
RESOLUTION = 1e-9  # of an interval end, points


def log_capital(means: Floats, null: float, sizes: Floats | None = None) -> Floats:
    """Return the logarithm of the capital of bets that the mean is above `null`, [...].

    means: [..., unit], each in [-1, 1]. null: in (-1, 1). sizes: [unit], the problems of each cluster. A unit
    multiplies the capital by 1 - s + s (1 + mean) / (1 + null) with s = u size / (largest size), which falls as
    `null` rises.
    """
    shares = np.ones(means.shape[-1]) if sizes is None else sizes / sizes.max()
    returns = shares * ((1 + means) / (1 + null) - 1)
    logs = np.stack([np.log1p(stake * returns).sum(axis=-1) for stake in STAKES], axis=-1)
    capital: Floats = special.logsumexp(logs + LOG_WEIGHTS, axis=-1)
    return capital


def compare(
    difference: ArrayLike, *, level: float = 0.95, null: float = 0.0, sizes: Floats | None = None
) -> Comparison:
    """Compare difference[problem, seed], or cluster means[cluster, 1] with their sizes[cluster], by bets both ways.

    p is twice that of the better direction. The interval is all means that the test does not reject at 1 - level;
    it excludes `null` exactly where p <= 1 - level. Raises DegenerateDifference as `interval.problem_means` does.
    """
    means = problem_means(difference)
    low, high = _limits(means, (1 - level) / 2, sizes)
    p = min(1.0, 2 * float(one_sided_p(means, null, sizes).min()))
    if p > 1 - level:  # an end may differ from `null` by the resolution of the search
        low, high = min(low, null), max(high, null)
    return Comparison(_mean(means, sizes), low, high, p)


def tost(difference: ArrayLike, margins: tuple[float, float], *, alpha: float, sizes: Floats | None = None) -> Margins:
    """Return both one-sided tests against margins (low, high), and limits with coverage 1 - 2 alpha; arguments as
    in `compare`.
    """
    means = problem_means(difference)
    p_worse, p_better = (one_sided_p(means, margin, sizes)[side] for side, margin in enumerate(margins))
    return Margins(_mean(means, sizes), *_limits(means, alpha, sizes), float(p_worse), float(p_better))


def one_sided_p(means: Floats, null: float, sizes: Floats | None = None) -> Floats:
    """Return the p of a mean of at most `null` and of at least `null`, [..., 2]; arguments as in `log_capital`."""
    sides = [log_capital(side * means, side * null, sizes) for side in (1, -1)]
    p: Floats = np.exp(-np.maximum(np.stack(sides, axis=-1), 0.0))
    return p


def p_of_counts(counts: NDArray[np.int64], null: float) -> Floats:
    """Return the p of a mean of at most `null` and of at least `null`, [study, 2].

    counts: [study, 2k + 1], the number of problems whose seeds sum to -k, ..., k.
    """
    steps = np.arange(counts.shape[1]) / (counts.shape[1] // 2) - 1
    sides = []
    for values, mean in ((steps, null), (-steps, -null)):
        factors = np.log1p(np.outer((1 + values) / (1 + mean) - 1, STAKES))
        sides.append(special.logsumexp(counts @ factors + LOG_WEIGHTS, axis=1))
    p: Floats = np.exp(-np.maximum(np.stack(sides, axis=1), 0.0))
    return p


def _mean(means: Floats, sizes: Floats | None) -> float:
    return float(np.average(means, weights=sizes))


def _limits(means: Floats, alpha: float, sizes: Floats | None) -> tuple[float, float]:
    """Return the limits of the means that neither one-sided test rejects at `alpha`."""
    return _lower_limit(means, alpha, sizes), -_lower_limit(-means, alpha, sizes)


def _lower_limit(means: Floats, alpha: float, sizes: Floats | None) -> float:
    mean, enough = _mean(means, sizes), -math.log(alpha)
    lowest = -1 + RESOLUTION
    if mean <= lowest or log_capital(means, lowest, sizes) < enough:
        return -1.0
    return float(optimize.brentq(lambda null: log_capital(means, null, sizes) - enough, lowest, mean, xtol=RESOLUTION))
