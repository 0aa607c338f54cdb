"""The restricted-likelihood test: exact on the lattice, under the likeliest shares with the null's mean.

Seeds are scored 0 or 1, so a problem's seeds sum to -k, ..., k and a study is described by its counts of
problems at each sum. Of all distributions of these sums whose mean is the null's, the test takes the one
that is likeliest given the counts. p is the probability that n such problems sum to at least, or at most, the
observed sum: an estimated p, as in Storer & Kim (1990) for two proportions and Lloyd (2008) in general. The
likeliest shares are those of empirical likelihood (Owen 1988), except that sums that were not observed may
have a share too.

The test assumes no form of the distribution, so it is valid for few and for skewed differences: gains of one
seed may be balanced by unobserved losses of all seeds. With one seed and no difference under the null, gains
and losses get equal shares. Gains alone have the binomial tail and the upper end of Clopper & Pearson (1934).
Problems that all agree need no special case: none in n differs with probability (1 - u)^n if a share u does.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.stats import exact_resampling
from analysis.stats.comparison import Comparison, Margins
from analysis.stats.interval import problem_means

HALVINGS = 54  # bisection steps for the tilt: to the last bit
END_HALVINGS = 34  # bisection steps for the tilt at an interval end: 1e-9
ROUNDING = 1e-15  # rounding error of a transform: smaller tails are not distinguished
BLOCK = 1 << 22  # numbers in memory at a time


def compare(difference: ArrayLike, *, level: float = 0.95, null: float = 0.0) -> Comparison:
    """Return the mean of difference[problem, seed], -1, 0 or 1 for every seed, its interval, and the p of
    `null`: twice the smaller tail.

    The interval contains the nulls for which both tails are above (1 - level) / 2. Tails are monotone in the
    null (`null_shares` are ordered by it), so it excludes a null exactly when p <= 1 - level there.
    Raises DegenerateDifference, also for a difference that is not an integer.
    """
    counts = exact_resampling.count_sums(difference)
    mean = float(problem_means(difference).mean())
    return Comparison(mean, *cached_limits(tuple(counts.tolist()), level), float(p_values(counts[None], null)[0]))


def tost(difference: ArrayLike, margin: tuple[float, float], *, alpha: float = 0.05) -> Margins:
    """Test against margin = (low, high) by two one-sided tests; the limits match them at `alpha`."""
    counts = exact_resampling.count_sums(difference)
    mean = float(problem_means(difference).mean())
    p_worse, p_better = (float(tails(counts[None], end)[0, side]) for end, side in zip(margin, (1, 0), strict=True))
    return Margins(mean, *cached_limits(tuple(counts.tolist()), 1 - 2 * alpha), p_worse, p_better)


def p_values(counts: NDArray[np.int64], null: ArrayLike = 0.0) -> NDArray[np.float64]:
    """Return the two-sided p of `null`, [study]; null: in points, one value or [study].

    counts: [study, 2k + 1], the number of problems whose seeds sum to -k, ..., k; equally many problems in
    every study.
    """
    p: NDArray[np.float64] = np.minimum(1.0, 2 * tails(counts, null).min(axis=1))
    return p


def tails(counts: NDArray[np.int64], null: ArrayLike = 0.0) -> NDArray[np.float64]:
    """Return the probabilities of a sum at most, and at least, as large as the observed one under the null,
    [study, 2]. The second is the p of a mean at `null` or below.
    """
    return _in_blocks(lambda block, nulls: _tails(block, null_shares(block, nulls)), counts, null)


def limits(counts: NDArray[np.int64], *, level: float) -> NDArray[np.float64]:
    """Return the lower and upper end of the interval of `compare`, [study, 2]."""
    return _in_blocks(lambda block, tail: _limits(block, tail[0]), counts, (1 - level) / 2)


def null_shares(counts: NDArray[np.int64], null: ArrayLike = 0.0) -> NDArray[np.float64]:
    """Return the likeliest shares of the sums -k, ..., k with mean k x null, [study, 2k + 1].

    They are proportional to c_x / (1 + t x / k), -1 <= t <= 1, where the tilt t is the multiplier of the
    mean. At t = 1 an unobserved sum of -k costs no likelihood and takes the share that the mean requires; so
    does k at -1. Every mean is reached at exactly one tilt, and shares are ordered by the tilt.
    """
    k = counts.shape[1] // 2
    target = np.broadcast_to(k * np.asarray(null, dtype=np.float64), (len(counts),))

    def is_above(tilt: NDArray[np.float64]) -> NDArray[np.bool_]:
        is_higher: NDArray[np.bool_] = tilted_shares(counts, tilt) @ np.arange(-k, k + 1) > target
        return is_higher

    return tilted_shares(counts, _bisect_tilt(is_above, len(counts), HALVINGS))


def tilted_shares(counts: NDArray[np.int64], tilt: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the likeliest shares at tilt[study] in [-2, 2], [study, 2k + 1]; a larger tilt lowers the mean.

    Above 1, the tilt minus 1 is the share of an unobserved -k; below -1 likewise for k.
    """
    k = counts.shape[1] // 2
    inner = np.clip(tilt, -1, 1)[:, None]
    slope = 1 + inner * np.arange(-k, k + 1) / k
    # At a slope of zero an observed sum has all the weight.
    weights = np.where(counts > 0, counts / np.maximum(slope, 1e-300), 0)
    shares: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    excess = np.abs(tilt) - 1
    unobserved_share = np.maximum(excess, 0)[:, None]
    shares = shares * (1 - unobserved_share)
    shares[:, 0] += np.where(tilt > 0, unobserved_share[:, 0], 0)
    shares[:, -1] += np.where(tilt < 0, unobserved_share[:, 0], 0)
    return shares


def _tails(counts: NDArray[np.int64], chances: NDArray[np.float64]) -> NDArray[np.float64]:
    problems, k = int(counts[0].sum()), counts.shape[1] // 2
    observed = counts @ np.arange(-k, k + 1)
    return np.clip(exact_resampling.sum_tails(chances, problems, observed), ROUNDING, 1.0)


def _limits(counts: NDArray[np.int64], tail: float) -> NDArray[np.float64]:
    """Bisect both ends together; the lower end is where the upper tail falls to `tail`."""
    studies, k = len(counts), counts.shape[1] // 2
    stacked, is_lower = np.concatenate([counts, counts]), np.repeat([True, False], studies)

    def is_above(tilt: NDArray[np.float64]) -> NDArray[np.bool_]:
        observed_tails = _tails(stacked, tilted_shares(stacked, tilt))
        is_inside: NDArray[np.bool_] = np.where(is_lower, observed_tails[:, 1] > tail, observed_tails[:, 0] <= tail)
        return is_inside

    ends = tilted_shares(stacked, _bisect_tilt(is_above, 2 * studies, END_HALVINGS)) @ np.arange(-k, k + 1) / k
    return np.stack([ends[:studies], ends[studies:]], axis=1)


@lru_cache(maxsize=4096)
def cached_limits(counts: tuple[int, ...], level: float) -> tuple[float, float]:
    """Return `limits` of one study, cached: verdicts and simulated studies request them repeatedly."""
    low, high = limits(np.array(counts)[None], level=level)[0].tolist()
    return low, high


def _bisect_tilt(
    is_above: Callable[[NDArray[np.float64]], NDArray[np.bool_]], studies: int, halvings: int
) -> NDArray[np.float64]:
    """Return the tilt in [-2, 2] from which `is_above` no longer holds, [study], by bisection."""
    low, high = np.full(studies, -2.0), np.full(studies, 2.0)
    for _ in range(halvings):
        middle = (low + high) / 2
        still_above = is_above(middle)
        low, high = np.where(still_above, middle, low), np.where(still_above, high, middle)
    tilts: NDArray[np.float64] = (low + high) / 2
    return tilts


def _in_blocks(
    compute: Callable[[NDArray[np.int64], NDArray[np.float64]], NDArray[np.float64]],
    counts: NDArray[np.int64],
    values: ArrayLike,
) -> NDArray[np.float64]:
    problems, k = int(counts[0].sum()), counts.shape[1] // 2
    rows = max(1, BLOCK // exact_resampling.fft_width(2 * k * problems + 1))
    spread = np.broadcast_to(np.asarray(values, dtype=np.float64), (len(counts),))
    blocks = (slice(start, start + rows) for start in range(0, len(counts), rows))
    return np.concatenate([compute(counts[block], spread[block]) for block in blocks])
