"""As good as, or no worse than: claims of "lossless" need a margin that was registered, not a p above 0.05.

Two one-sided tests on problem means (Schuirmann 1987), and the one of them that non-inferiority needs. Their
interval has the coverage 1 - 2 alpha: a claim holds only where it lies on the right side of the margin.

With few problems that differ both tests are too sure: one loss in 201, t says p = 0.08 at a margin of one
point, though a share of 1 % lost shows no more than one loss in two of five studies. So p is never below the
exact chance of `at_the_margin`. Where many problems differ that costs some power: 3 instead of 5 % pass on
the margin with 150 problems of which a quarter differ, at a margin of 6 points.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from analysis.stats import bootstrap, exact_resampling, restricted_likelihood
from analysis.stats.comparison import Margins
from analysis.stats.interval import problem_means
from analysis.stats.methods import FEW

__all__ = ["METHODS", "at_the_margin", "margins", "simulated"]

METHODS = ("t", "bootstrap", "restricted-likelihood", "auto")


def margins(
    difference: ArrayLike,
    margin: float | tuple[float, float],
    *,
    alpha: float = 0.05,
    method: str = "t",
    draws: int = 10_000,
    rng: np.random.Generator | None = None,
) -> Margins:
    """Both one-sided tests of the mean of difference[problem, seed]: against -margin and margin, or against
    the two of margin = (low, high), points anywhere in (-1, 1).

    p_worse is of a mean at the lower margin or below, p_better of one at the upper margin or above.
    method: "t" on problem means, or "bootstrap", the share of resampled means at the margin or beyond it
        with the +1 correction, which needs `rng`, or "restricted-likelihood", for differences of -1, 0 and 1,
        or "auto", which is that below `FEW` problems that differ and t from there on.

    Not inferior at alpha: p_worse <= alpha, which takes a limit above the lower margin. Equivalent: both
    p <= alpha. Where seeds are scored 0 or 1, p is the larger of the method's and that of `at_the_margin`;
    the limits are the method's. Problems that all differ alike, most often by nothing, bound only the share
    u of other ones: none in n has the chance (1 - u)^n, and others may differ by anything in [-1, 1].

    Raises DegenerateDifference as `interval.problem_means` does, and ValueError for a margin outside (0,
    1], an alpha outside (0, 0.5), an unknown method, or a bootstrap without a generator.
    """
    lower, upper = margin if isinstance(margin, tuple) else (-_symmetric(margin), margin)
    if not (-1 <= lower < 1 and -1 < upper <= 1):
        raise ValueError(f"margin: {margin} is not in [-1, 1]; pass points, not percent")
    if not 0 < alpha < 0.5:
        raise ValueError(f"alpha: {alpha} is not in (0, 0.5); it is the level of one side")
    means = problem_means(difference)
    if method == "restricted-likelihood" or (method == "auto" and np.count_nonzero(means) < FEW):
        return restricted_likelihood.margins(difference, (lower, upper), alpha=alpha)
    if np.ptp(means) == 0:
        return _without_spread(float(means[0]), len(means), (lower, upper), alpha)
    if method not in METHODS:
        raise ValueError(f"method: {method!r} is unknown; name one of {', '.join(METHODS)}")
    if method in ("t", "auto"):
        error = means.std(ddof=1) / np.sqrt(len(means))
        found = Margins(*map(float, _student(means.mean(), error, len(means), (lower, upper), alpha)))
    elif rng is None:
        raise ValueError("rng: the bootstrap draws; pass a generator")
    else:
        found = _bootstrap(means, bootstrap.resampled_means(means, draws, rng), (lower, upper), alpha)
    values = np.asarray(difference, dtype=np.float64)
    if np.any(values != np.round(values)):
        return found
    counts = exact_resampling.counted(values)[None]
    sides = (counts, -lower), (counts[:, ::-1], upper)
    worse, better = (float(at_the_margin(*side)[0]) for side in sides)
    return found._replace(p_worse=max(found.p_worse, worse), p_better=max(found.p_better, better))


def _symmetric(margin: float) -> float:
    if not 0 < margin <= 1:
        raise ValueError(f"margin: {margin} is not in (0, 1]; pass points, not percent")
    return margin


def at_the_margin(counts: NDArray[np.int64], margin: float) -> NDArray[np.float64]:
    """[study]: the chance of a sum at least as large as that of counts[study, 2k + 1] (problems whose seeds
    sum to -k, ..., k; the same number in every study) where the truth is -margin: a share w of problems is
    lost with every seed and the others are those observed, w = (margin + mean) / (1 + mean). 1 for a mean at
    or below -margin.

    With losses alone, all seeds agreeing, it is the binomial tail: no more than so many of n at a share of
    `margin`; without a loss (1 - margin)^n. Where many problems differ it lies a little above t's p.
    """
    problems, k = int(counts[0].sum()), counts.shape[1] // 2
    sums = counts @ np.arange(-k, k + 1)
    mean = sums / (k * problems)
    share = np.clip((margin + mean) / np.maximum(1 + mean, 1e-12), 0, 1)
    null = (1 - share)[:, None] * counts / problems
    null[:, 0] += share
    tails = np.cumsum(exact_resampling.convolved(null, problems)[:, ::-1], axis=1)
    reached = np.take_along_axis(tails, (k * problems - sums)[:, None], axis=1)[:, 0]
    return np.where(share > 0, np.minimum(reached, 1.0), 1.0)


def simulated(counts: NDArray[np.int64], margin: float, alpha: float) -> NDArray[np.float64]:
    """[study, 5]: `margins` by t of many studies, columns as in `Margins`. counts as in `at_the_margin`;
    studies without any spread have their mean as limits here.
    """
    distinct, place = np.unique(counts, axis=0, return_inverse=True)
    problems, k = int(counts[0].sum()), counts.shape[1] // 2
    steps = np.arange(-k, k + 1) / k
    mean = distinct @ steps / problems
    spread = np.maximum(distinct @ steps**2 - problems * mean**2, 1e-12)
    found = _student(mean, np.sqrt(spread / (problems - 1) / problems), problems, (-margin, margin), alpha)
    exact = (at_the_margin(side, margin) for side in (distinct, distinct[:, ::-1]))
    sure = [np.maximum(p, least) for p, least in zip(found[3:], exact, strict=True)]
    return np.stack([*found[:3], *sure], axis=1)[place.ravel()]


def _student(
    mean: NDArray[np.float64],
    error: NDArray[np.float64],
    problems: int,
    margins: tuple[float, float],
    alpha: float,
) -> list[NDArray[np.float64]]:
    """The fields of `Margins`, of one study or of many."""
    freedom = problems - 1
    reach = stats.t.ppf(1 - alpha, freedom) * error
    lower, upper = margins
    worse, better = (stats.t.sf(away / error, freedom) for away in (mean - lower, upper - mean))
    return [mean, np.maximum(-1.0, mean - reach), np.minimum(1.0, mean + reach), worse, better]


def _bootstrap(
    means: NDArray[np.float64], resampled: NDArray[np.float64], margins: tuple[float, float], alpha: float
) -> Margins:
    low, high = np.quantile(resampled, [alpha, 1 - alpha])
    lower, upper = margins
    away = np.round(resampled - lower, 12), np.round(resampled - upper, 12)
    beyond = int((away[0] <= 0).sum()), int((away[1] >= 0).sum())
    worse, better = ((count + 1) / (len(resampled) + 1) for count in beyond)
    return Margins(float(means.mean()), float(low), float(high), worse, better)


def _without_spread(value: float, problems: int, margins: tuple[float, float], alpha: float) -> Margins:
    other = 1 - alpha ** (1 / problems)
    centre = (1 - other) * value
    # The share of other problems, all at -1 or all at 1, that would put the mean on the margin.
    lower, upper = margins
    sides = (value, -lower), (-value, upper)
    shares = [(away + at) / (1 + at) if at > -1 else 0.0 for at, away in sides]
    worse, better = (float((1 - min(max(share, 0.0), 1.0)) ** problems) for share in shares)
    return Margins(value, max(-1.0, centre - other), min(1.0, centre + other), worse, better)
