"""Few or uneven clusters: the mean over problems with the bias-reduced cluster-robust error, CR2.

Student's t of cluster values takes every cluster for one of the same size: with 8 to 40 clusters of uneven sizes its
nominal 5 % are up to 13 % (docs/decisions/42-scores-and-clusters.md). CR2 corrects the error for what a large cluster
pulls the mean towards itself (Bell & McCaffrey 2002), and has as many degrees of freedom as its own variance shows, by
Satterthwaite's approximation (Pustejovsky & Tipton 2018, JBES 36:672). That depends on how problems of a cluster
correlate, which few clusters cannot show: the smaller number is taken, of those for independent problems and for
problems all alike.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis.stats.comparison import Comparison, Margins
from analysis.stats.interval import compare_constant

Floats = NDArray[np.float64]


class RobustMean(NamedTuple):
    mean: Floats  # over problems, [...]
    error: Floats  # CR2 standard error, [...]
    freedom: float  # degrees of freedom, which the sizes alone decide


def robust_mean(means: Floats, sizes: Floats) -> RobustMean:
    """Return the mean over problems with its CR2 error. means: [..., cluster]; sizes: [cluster], two at least.

    With w the shares of the problems the variance is the sum of w^2 / (1 - w) (means - mean)^2; with clusters of one
    size it is that of Student's t, with G - 1 degrees of freedom.
    """
    weights = sizes / sizes.sum()
    corrected = weights**2 / (1 - weights)
    mean = means @ weights
    residual_maker = np.eye(len(weights)) - weights
    form = residual_maker.T @ (corrected[:, None] * residual_maker)  # the variance as a quadratic form of the means
    freedom = min(_satterthwaite(form, variances) for variances in (1 / sizes, np.ones(len(sizes))))
    return RobustMean(mean, np.sqrt((means - mean[..., None]) ** 2 @ corrected), freedom)


def compare(means: Floats, sizes: Floats, *, level: float = 0.95, null: float = 0.0) -> Comparison:
    """Compare cluster means[cluster] by t with the CR2 error; p is that of a mean of `null`.

    Clusters that all have one mean are left to `interval.compare_constant`, as many as they weigh.
    """
    if np.ptp(means) == 0 and (constant := compare_constant(effective_means(means, sizes), level, null)):
        return constant
    mean, error, freedom = _robust_study(means, sizes)
    reach = float(stats.t.ppf((1 + level) / 2, freedom)) * error
    p = 2 * float(stats.t.sf(abs(mean - null) / error, freedom))
    return Comparison(mean, max(-1.0, mean - reach), min(1.0, mean + reach), p)


def tost(means: Floats, sizes: Floats, margins: tuple[float, float], *, alpha: float) -> Margins:
    """Return both one-sided tests against margins (low, high), and limits with coverage 1 - 2 alpha."""
    mean, error, freedom = _robust_study(means, sizes)
    reach = float(stats.t.ppf(1 - alpha, freedom)) * error
    worse, better = (float(stats.t.sf(gap / error, freedom)) for gap in (mean - margins[0], margins[1] - mean))
    return Margins(mean, max(-1.0, mean - reach), min(1.0, mean + reach), worse, better)


def _robust_study(means: Floats, sizes: Floats) -> tuple[float, float, float]:
    robust = robust_mean(means, sizes)
    return float(robust.mean), float(robust.error), robust.freedom


def effective_means(means: Floats, sizes: Floats) -> Floats:
    """Return the first means, as many as the clusters weigh: n^2 over the sum of squared sizes, two at least."""
    return means[: max(2, int(sizes.sum() ** 2 / (sizes @ sizes) + 1e-9))]


def _satterthwaite(form: Floats, variances: Floats) -> float:
    """Return the degrees of freedom of a quadratic form of independent means with these variances[cluster]."""
    scale = np.sqrt(variances)
    scaled = scale[:, None] * form * scale
    return float(np.trace(scaled) ** 2 / (scaled**2).sum())
