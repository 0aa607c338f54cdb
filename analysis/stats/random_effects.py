"""Pooling one effect over studies: fixed effect, random effects and the effect that a further study may have."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats
from statsmodels.stats.meta_analysis import combine_effects

from analysis.stats.interval import DegenerateDifference

MIN_FOR_PREDICTION = 3  # studies; two leave no degree of freedom for the spread between them


class Mean(NamedTuple):
    mean: float
    low: float
    high: float


class PooledEffect(NamedTuple):
    """fixed: the mean of these studies. random: the mean of the population that they are drawn from. tau: the
    standard deviation of effects between studies. prediction: where the effect of a further study lies; None for two
    studies. weights: of the studies in the fixed mean; they sum to 1.
    """

    fixed: Mean
    random: Mean
    tau: float
    prediction: tuple[float, float] | None
    weights: tuple[float, ...]


def pool_effects(effects: Sequence[float], errors: Sequence[float], *, level: float = 0.95) -> PooledEffect:
    """Pool k effects between -1 and 1 with their standard errors; ends of intervals are cut there.

    Weights are inverse variances. tau is Paule and Mandel's (1982); the random-effects interval is Hartung's and
    Knapp's with t of k - 1 degrees of freedom, never narrower than by the errors alone (Roever et al. 2015,
    doi:10.1186/s12874-015-0091-1); the prediction interval is that of Higgins et al. (2009,
    doi:10.1111/j.1467-985X.2008.00552.x), with t of k - 2. Raises DegenerateDifference for fewer than two
    studies and for an error that is not above zero, which would outweigh all others.
    """
    if len(effects) < 2:
        raise DegenerateDifference(f"effects: {len(effects)} study cannot be pooled; pass two or more")
    values, variances = np.asarray(effects, dtype=float), np.asarray(errors, dtype=float) ** 2
    if not (variances > 0).all():
        raise DegenerateDifference("errors: a value is not above zero, so that its study has no weight; leave it out")
    with np.errstate(divide="ignore"):  # of a statistic that is not read, where all effects are equal
        tau_squared = max(float(combine_effects(values, variances, method_re="iterated").tau2), 0.0)
    fixed_weights = 1 / variances / (1 / variances).sum()
    random_weights = 1 / (variances + tau_squared)
    fixed, random = float(values @ fixed_weights), float(values @ random_weights / random_weights.sum())
    spread = random_weights @ (values - random) ** 2 / (len(values) - 1)
    upper, freedom = (1 + level) / 2, len(values) - 1
    fixed_reach = float(stats.norm.ppf(upper) / np.sqrt((1 / variances).sum()))
    random_reach = float(stats.t.ppf(upper, freedom) * np.sqrt(max(1.0, spread) / random_weights.sum()))
    prediction = None
    if len(values) >= MIN_FOR_PREDICTION:
        reach = float(stats.t.ppf(upper, freedom - 1) * np.sqrt(tau_squared + 1 / random_weights.sum()))
        prediction = _cut_ends(random, reach)
    return PooledEffect(
        Mean(fixed, *_cut_ends(fixed, fixed_reach)),
        Mean(random, *_cut_ends(random, random_reach)),
        float(np.sqrt(tau_squared)),
        prediction,
        tuple(map(float, fixed_weights)),
    )


def _cut_ends(mean: float, reach: float) -> tuple[float, float]:
    return max(mean - reach, -1.0), min(mean + reach, 1.0)
