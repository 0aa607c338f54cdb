"""Equivalence and non-inferiority: a claim of "lossless" needs a registered margin, not a p above 0.05.

Two one-sided tests (TOST) on problem means (Schuirmann 1987); non-inferiority uses one of them. Their
interval has the coverage 1 - 2 alpha: a claim is supported only if it lies on the right side of the margin.

With few problems that differ both tests are anti-conservative: with one loss in 201, t gives p = 0.08 at a
margin of one point, although with a true loss of 1 % two of five studies show at most one loss. So p is
never below that of `exact_margin_p`. Where many problems differ this costs some power: at a margin of 6
points, 3 instead of 5 % of studies pass on the margin with 150 problems of which a quarter differ.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from analysis.stats import betting, bootstrap, cluster_robust, exact_resampling, restricted_likelihood
from analysis.stats.comparison import Margins
from analysis.stats.interval import problem_means
from analysis.stats.methods import EXACT_BELOW

METHODS = ("t", "bootstrap", "restricted-likelihood", "auto", "betting", "cr2")


def tost(
    difference: ArrayLike,
    margin: float | tuple[float, float],
    *,
    alpha: float = 0.05,
    method: str = "t",
    draws: int = 10_000,
    rng: np.random.Generator | None = None,
    sizes: NDArray[np.float64] | None = None,
) -> Margins:
    """Test the mean of difference[problem, seed] against -margin and margin, or against margin = (low, high),
    points in (-1, 1), by two one-sided tests.

    The null of p_worse is a mean at the lower margin or below, that of p_better one at the upper margin or
    above.
    method: "t" on problem means; "bootstrap", the share of resampled means at or beyond the margin with the
        +1 correction, which needs `rng`; "restricted-likelihood", for differences of -1, 0 and 1; or "auto",
        which is the latter below `EXACT_BELOW` differing problems and t from there on; or "betting" or "cr2", of
        clusters by their sizes[cluster]; without these cr2 is t.

    Non-inferior at alpha: p_worse <= alpha, which requires a limit above the lower margin. Equivalent: both
    p <= alpha. If seeds are scored 0 or 1, p is the larger of the method's and that of `exact_margin_p`; the
    limits are the method's. If all problems have the same difference, most often zero, they bound only the
    share u of other problems: n problems show none with probability (1 - u)^n, and others may differ by
    anything in [-1, 1].

    Raises DegenerateDifference as `interval.problem_means` does, and ValueError for a margin outside (0,
    1], an alpha outside (0, 0.5), an unknown method, or a bootstrap without a generator.
    """
    lower, upper = margin if isinstance(margin, tuple) else (-_check_margin(margin), margin)
    if not (-1 <= lower < 1 and -1 < upper <= 1):
        raise ValueError(f"margin: {margin} is not in [-1, 1]; pass points, not percent")
    if not 0 < alpha < 0.5:
        raise ValueError(f"alpha: {alpha} is not in (0, 0.5); it is the level of one side")
    means = problem_means(difference)
    if method == "restricted-likelihood" or (method == "auto" and np.count_nonzero(means) < EXACT_BELOW):
        return restricted_likelihood.tost(difference, (lower, upper), alpha=alpha)
    if method == "betting":
        return betting.tost(difference, (lower, upper), alpha=alpha, sizes=sizes)
    if np.ptp(means) == 0:
        units = means if sizes is None else cluster_robust.effective_means(means, sizes)
        return _constant_tests(float(means[0]), len(units), (lower, upper), alpha)
    if method == "cr2" and sizes is not None:
        return cluster_robust.tost(means, sizes, (lower, upper), alpha=alpha)
    if method not in METHODS:
        raise ValueError(f"method: {method!r} is unknown; name one of {', '.join(METHODS)}")
    if method in ("t", "auto", "cr2"):
        error = means.std(ddof=1) / np.sqrt(len(means))
        tests = Margins(*map(float, _student(means.mean(), error, len(means), (lower, upper), alpha)))
    elif rng is None:
        raise ValueError("rng: the bootstrap needs a random generator; pass one")
    else:
        tests = _bootstrap(means, bootstrap.resampled_means(means, draws, rng), (lower, upper), alpha)
    values = np.asarray(difference, dtype=np.float64)
    if np.any(values != np.round(values)):
        return tests
    counts = exact_resampling.count_sums(values)[None]
    sides = (counts, -lower), (counts[:, ::-1], upper)
    p_worse, p_better = (float(exact_margin_p(*tail)[0]) for tail in sides)
    return tests._replace(p_worse=max(tests.p_worse, p_worse), p_better=max(tests.p_better, p_better))


def _check_margin(margin: float) -> float:
    if not 0 < margin <= 1:
        raise ValueError(f"margin: {margin} is not in (0, 1]; pass points, not percent")
    return margin


def exact_margin_p(counts: NDArray[np.int64], margin: float) -> NDArray[np.float64]:
    """Return, [study], the probability of a sum at least as large as the observed one if the mean is -margin.

    counts: [study, 2k + 1], the number of problems whose seeds sum to -k, ..., k; equally many problems in
    every study. Under the null a share w = (margin + mean) / (1 + mean) of problems is lost with every seed
    and the others are distributed as observed. 1 for a mean at or below -margin.

    With losses only, all seeds agreeing, it is the binomial tail of at most so many of n at a share of
    `margin`; without a loss it is (1 - margin)^n. Where many problems differ it is slightly above t's p.
    """
    problems, k = int(counts[0].sum()), counts.shape[1] // 2
    sums = counts @ np.arange(-k, k + 1)
    mean = sums / (k * problems)
    share = np.clip((margin + mean) / np.maximum(1 + mean, 1e-12), 0, 1)
    null = (1 - share)[:, None] * counts / problems
    null[:, 0] += share
    tail_probability = exact_resampling.sum_tails(null, problems, sums)[:, 1]
    return np.where(share > 0, np.minimum(tail_probability, 1.0), 1.0)


def tost_of_studies(counts: NDArray[np.int64], margin: float, alpha: float) -> NDArray[np.float64]:
    """Return `tost` by t for many studies, [study, 5], columns as in `Margins`. counts: as in
    `exact_margin_p`. Studies without spread have their mean as limits here.
    """
    distinct, positions = np.unique(counts, axis=0, return_inverse=True)
    problems, k = int(counts[0].sum()), counts.shape[1] // 2
    steps = np.arange(-k, k + 1) / k
    mean = distinct @ steps / problems
    spread = np.maximum(distinct @ steps**2 - problems * mean**2, 1e-12)
    columns = _student(mean, np.sqrt(spread / (problems - 1) / problems), problems, (-margin, margin), alpha)
    exact_p = (exact_margin_p(side, margin) for side in (distinct, distinct[:, ::-1]))
    bounded_p = [np.maximum(p, floor) for p, floor in zip(columns[3:], exact_p, strict=True)]
    return np.stack([*columns[:3], *bounded_p], axis=1)[positions.ravel()]


def _student(
    mean: NDArray[np.float64], error: NDArray[np.float64], problems: int, margins: tuple[float, float], alpha: float
) -> list[NDArray[np.float64]]:
    """Return the fields of `Margins` for one study or for many."""
    freedom = problems - 1
    reach = stats.t.ppf(1 - alpha, freedom) * error
    lower, upper = margins
    worse, better = (stats.t.sf(distance / error, freedom) for distance in (mean - lower, upper - mean))
    return [mean, np.maximum(-1.0, mean - reach), np.minimum(1.0, mean + reach), worse, better]


def _bootstrap(
    means: NDArray[np.float64], resampled: NDArray[np.float64], margins: tuple[float, float], alpha: float
) -> Margins:
    low, high = np.quantile(resampled, [alpha, 1 - alpha])
    lower, upper = margins
    distances = np.round(resampled - lower, 12), np.round(resampled - upper, 12)
    beyond = int((distances[0] <= 0).sum()), int((distances[1] >= 0).sum())
    worse, better = ((count + 1) / (len(resampled) + 1) for count in beyond)
    return Margins(float(means.mean()), float(low), float(high), worse, better)


def _constant_tests(value: float, problems: int, margins: tuple[float, float], alpha: float) -> Margins:
    differing_share = 1 - alpha ** (1 / problems)
    centre = (1 - differing_share) * value
    # The share of other problems, all at -1 or all at 1, at which the mean equals the margin.
    lower, upper = margins
    sides = (value, -lower), (-value, upper)
    shares = [(distance + end) / (1 + end) if end > -1 else 0.0 for end, distance in sides]
    worse, better = (float((1 - min(max(share, 0.0), 1.0)) ** problems) for share in shares)
    return Margins(value, max(-1.0, centre - differing_share), min(1.0, centre + differing_share), worse, better)
