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

__all__ = ["compare", "ends", "limits", "margins", "p_values", "shares", "tails"]

HALVINGS = 54  # bisection steps for the tilt: to the last bit
PRINTED = 34  # bisection steps for the tilt at an interval end: 1e-9
ROUNDING = 1e-15  # rounding error of a transform: smaller tails are not distinguished
BLOCK = 1 << 22  # numbers in memory at a time


def compare(difference: ArrayLike, *, level: float = 0.95, null: float = 0.0) -> Comparison:
    """Return the mean of difference[problem, seed], -1, 0 or 1 for every seed, its interval, and the p of
    `null`: twice the smaller tail.

    The interval contains the nulls for which both tails are above (1 - level) / 2. Tails are monotone in the
    null (`null_shares` are ordered by it), so it excludes a null exactly when p <= 1 - level there.
    Raises DegenerateDifference, also for a difference that is not an integer.
    """
    counts = exact_resampling.counted(difference)
    mean = float(problem_means(difference).mean())
    return Comparison(mean, *ends(tuple(counts.tolist()), level), float(p_values(counts[None], null)[0]))


def margins(difference: ArrayLike, margin: tuple[float, float], *, alpha: float = 0.05) -> Margins:
    """Test against margin = (low, high) by two one-sided tests; the limits match them at `alpha`."""
    counts = exact_resampling.counted(difference)
    mean = float(problem_means(difference).mean())
    worse, better = (float(tails(counts[None], at)[0, side]) for at, side in zip(margin, (1, 0), strict=True))
    return Margins(mean, *ends(tuple(counts.tolist()), 1 - 2 * alpha), worse, better)


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
    return _in_blocks(lambda some, at: _tails(some, shares(some, at)), counts, null)


def limits(counts: NDArray[np.int64], *, level: float) -> NDArray[np.float64]:
    """Return the lower and upper end of the interval of `compare`, [study, 2]."""
    return _in_blocks(lambda some, aim: _limits(some, aim[0]), counts, (1 - level) / 2)


def shares(counts: NDArray[np.int64], null: ArrayLike = 0.0) -> NDArray[np.float64]:
    """Return the likeliest shares of the sums -k, ..., k with mean k x null, [study, 2k + 1].

    They are proportional to c_x / (1 + t x / k), -1 <= t <= 1, where the tilt t is the multiplier of the
    mean. At t = 1 an unobserved sum of -k costs no likelihood and takes the share that the mean requires; so
    does k at -1. Every mean is reached at exactly one tilt, and shares are ordered by the tilt.
    """
    k = counts.shape[1] // 2
    aim = np.broadcast_to(k * np.asarray(null, dtype=np.float64), (len(counts),))

    def above(tilt: NDArray[np.float64]) -> NDArray[np.bool_]:
        above: NDArray[np.bool_] = tilted(counts, tilt) @ np.arange(-k, k + 1) > aim
        return above

    return tilted(counts, _crossing(above, len(counts), HALVINGS))


def tilted(counts: NDArray[np.int64], tilt: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the likeliest shares at tilt[study] in [-2, 2], [study, 2k + 1]; a larger tilt lowers the mean.

    Above 1, the tilt minus 1 is the share of an unobserved -k; below -1 likewise for k.
    """
    k = counts.shape[1] // 2
    inner = np.clip(tilt, -1, 1)[:, None]
    slope = 1 + inner * np.arange(-k, k + 1) / k
    # At a slope of zero an observed sum has all the weight.
    weights = np.where(counts > 0, counts / np.maximum(slope, 1e-300), 0)
    found: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    more = np.abs(tilt) - 1
    outside = np.maximum(more, 0)[:, None]
    found = found * (1 - outside)
    found[:, 0] += np.where(tilt > 0, outside[:, 0], 0)
    found[:, -1] += np.where(tilt < 0, outside[:, 0], 0)
    return found


def _tails(counts: NDArray[np.int64], chances: NDArray[np.float64]) -> NDArray[np.float64]:
    problems, k = int(counts[0].sum()), counts.shape[1] // 2
    sums = exact_resampling.convolved(chances, problems)
    at = (counts @ np.arange(-k, k + 1) + k * problems)[:, None]
    below, above = np.cumsum(sums, axis=1), np.cumsum(sums[:, ::-1], axis=1)
    both = np.take_along_axis(below, at, 1), np.take_along_axis(above, 2 * k * problems - at, 1)
    return np.clip(np.concatenate(both, axis=1), ROUNDING, 1.0)


def _limits(counts: NDArray[np.int64], tail: float) -> NDArray[np.float64]:
    """Bisect both ends together; the lower end is where the upper tail falls to `tail`."""
    studies, k = len(counts), counts.shape[1] // 2
    twice, lower = np.concatenate([counts, counts]), np.repeat([True, False], studies)

    def above(tilt: NDArray[np.float64]) -> NDArray[np.bool_]:
        both = _tails(twice, tilted(twice, tilt))
        kept: NDArray[np.bool_] = np.where(lower, both[:, 1] > tail, both[:, 0] <= tail)
        return kept

    ends = tilted(twice, _crossing(above, 2 * studies, PRINTED)) @ np.arange(-k, k + 1) / k
    return np.stack([ends[:studies], ends[studies:]], axis=1)


@lru_cache(maxsize=4096)
def ends(counts: tuple[int, ...], level: float) -> tuple[float, float]:
    """Return `limits` of one study, cached: verdicts and simulated studies request them repeatedly."""
    low, high = limits(np.array(counts)[None], level=level)[0].tolist()
    return low, high


def _crossing(
    above: Callable[[NDArray[np.float64]], NDArray[np.bool_]], studies: int, halvings: int
) -> NDArray[np.float64]:
    """Return the tilt in [-2, 2] from which `is_above` no longer holds, [study], by bisection."""
    low, high = np.full(studies, -2.0), np.full(studies, 2.0)
    for _ in range(halvings):
        middle = (low + high) / 2
        still = above(middle)
        low, high = np.where(still, middle, low), np.where(still, high, middle)
    found: NDArray[np.float64] = (low + high) / 2
    return found


def _in_blocks(
    each: Callable[[NDArray[np.int64], NDArray[np.float64]], NDArray[np.float64]],
    counts: NDArray[np.int64],
    values: ArrayLike,
) -> NDArray[np.float64]:
    problems, k = int(counts[0].sum()), counts.shape[1] // 2
    rows = max(1, BLOCK // exact_resampling.width(2 * k * problems + 1))
    spread = np.broadcast_to(np.asarray(values, dtype=np.float64), (len(counts),))
    blocks = (slice(start, start + rows) for start in range(0, len(counts), rows))
    return np.concatenate([each(counts[block], spread[block]) for block in blocks])
