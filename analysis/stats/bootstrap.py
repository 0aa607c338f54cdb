"""Paired bootstrap over problems: drawn, drawn for a whole family at once, and exact.

Two intervals (Efron & Tibshirani 1993, chapters 13 and 14): "percentile", and "bca", which corrects it for
bias and for a spread that changes with the mean. The seeds of a problem are averaged first, so a problem is
drawn with all of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from analysis.stats import exact_resampling
from analysis.stats.comparison import Comparison
from analysis.stats.interval import DegenerateDifference, problem_means, without_spread

__all__ = ["KINDS", "Limits", "exact", "exact_limits", "family", "paired", "resampled_means"]

BLOCK = 1 << 20  # indices held at a time
FAMILY_BLOCK = 1 << 17  # and of a family, whose weights are counted in a fast cache
KINDS = ("percentile", "bca")


class Limits(NamedTuple):
    """Of many studies, [study] each, as in `Comparison`."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    p: NDArray[np.float64]


def paired(
    difference: ArrayLike,
    *,
    reps: int = 10_000,
    level: float = 0.95,
    rng: np.random.Generator,
    kind: str = "percentile",
) -> Comparison:
    """The mean difference with its interval, resampling whole problems, and its two-sided p.

    difference: [problem, seed], subject minus comparator, in accuracy points.
    p: twice the smaller share of resampled means on either side of zero (zero counts on both), with the +1
        correction: it is never 0. For "bca" these two shares are corrected as the ends of the interval are.

    Without any spread between problems `interval.without_spread` answers instead.

    Sound from about 200 problems; below that `power.type_one` tells how far off it is.
    Raises DegenerateDifference (a ValueError) for fewer than two problems or a difference that is not finite.
    """
    _check(kind)
    means = problem_means(difference)
    flat = without_spread(means, level)
    return flat or _drawn(means, resampled_means(means, reps, rng), level, kind)


def family(
    differences: Sequence[ArrayLike],
    *,
    reps: int = 10_000,
    level: float = 0.95,
    rng: np.random.Generator,
    kind: str = "percentile",
) -> list[Comparison]:
    """The same for all contrasts of a family on one set of draws, an interval each at `level`.

    differences: of every contrast, [problem, seed]; the problems are the same and in one order.

    Problems with the same difference in every contrast are counted, not drawn one by one: a draw is its
    number of problems of each kind (a multinomial), and all draws are one matrix product.
    """
    _check(kind)
    each = [problem_means(difference) for difference in differences]
    if len({len(means) for means in each}) != 1:
        raise DegenerateDifference("differences: pass contrasts on the same problems, at least one")
    resampled = _resampled_family(np.stack(each, axis=1), reps, rng)
    return [
        without_spread(means, level) or _drawn(means, drawn, level, kind)
        for means, drawn in zip(each, resampled.T, strict=True)
    ]


def exact(difference: ArrayLike, *, level: float = 0.95, kind: str = "percentile") -> Comparison:
    """What `paired` tends to as its draws grow: every resample with its own weight, no seed.

    difference: [problem, seed], -1, 0 or 1 in every seed. An end is the first resampled mean at which the
    cumulative weight reaches its share. p has no correction, but is never below the sign test's 2^(1-n).
    Raises DegenerateDifference, also for a difference that is not whole.
    """
    _check(kind)
    means = problem_means(difference)
    if flat := without_spread(means, level):
        return flat
    found = exact_limits(exact_resampling.counted(difference)[None], level=level, kind=kind)
    return Comparison(float(means.mean()), *(float(values[0]) for values in found))


def exact_limits(counts: NDArray[np.int64], *, level: float = 0.95, kind: str = "percentile") -> Limits:
    """`exact` for many studies at once. counts: [study, 2k + 1], problems whose seeds sum to -k, ..., k;
    the same number of problems in each. A study without spread has low = high and p = 1 here.
    """
    problems, k = int(counts[0].sum()), counts.shape[1] // 2
    below = np.cumsum(
        exact_resampling.resampled(counts), axis=1
    )  # entry s: weight of sums of at most s - k problems
    middle = k * problems
    steps = np.arange(-k, k + 1)
    tails = np.stack([below[:, middle], 1 - below[:, middle - 1]], axis=1)
    ends = np.array([(1 - level) / 2, (1 + level) / 2])
    shares = np.broadcast_to(ends, tails.shape)
    if kind == "bca":
        observed = (counts @ steps + middle)[:, None]
        upto = np.take_along_axis(below, observed, axis=1)
        under = np.take_along_axis(below, np.maximum(observed - 1, 0), axis=1) * (observed > 0)
        shift = special.ndtri(np.clip((upto + under) / 2, 1e-15, 1 - 1e-15))
        bend = _acceleration(counts, steps / k)[:, None]
        shares = _bent(shares, shift, bend)
        tails = _unbent(tails, shift, bend, 1e-15)
    place = [(below < share[:, None] - 1e-12).sum(axis=1) for share in shares.T]
    low, high = (np.minimum(at, 2 * middle) / middle - 1 for at in place)
    p = np.clip(2 * tails.min(axis=1), 2.0 ** (1 - problems), 1.0)
    return Limits(low, high, p)


def _drawn(means: NDArray[np.float64], resampled: NDArray[np.float64], level: float, kind: str) -> Comparison:
    reps, mean = len(resampled), float(means.mean())
    shares = np.array([(1 - level) / 2, (1 + level) / 2])
    near_zero = np.round(resampled, 12)
    least = 1 + np.array([(near_zero <= 0).sum(), (near_zero >= 0).sum()])
    tails = least / (reps + 1)
    if kind == "bca":
        near = np.round(resampled - mean, 12)
        centre = ((near < 0).sum() + (near <= 0).sum()) / (2 * reps)
        shift = special.ndtri(np.clip(centre, 0.5 / reps, 1 - 0.5 / reps))
        values, counts = np.unique(means, return_counts=True)
        bend = _acceleration(counts[None], values)[0]
        shares = _bent(shares, shift, bend)
        tails = _unbent(tails, shift, bend, 1 / (reps + 1))
    low, high = np.quantile(resampled, shares)
    return Comparison(mean, float(low), float(high), float(min(1.0, 2 * tails.min())))


def _acceleration(counts: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """[study]: how fast the standard error grows with the mean, by the jackknife; 0 without spread."""
    problems = counts.sum(axis=1)
    apart = values - (counts @ values / problems)[:, None]
    spread, lean = ((counts * apart**power).sum(axis=1) for power in (2, 3))
    bend: NDArray[np.float64] = lean / (6 * np.maximum(spread, 1e-12) ** 1.5)
    return bend


def _bent(
    shares: NDArray[np.float64], shift: NDArray[np.float64], bend: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The shares of the resampled means that BCa reads its ends at (chapter 14, equation 14.10)."""
    moved = shift + special.ndtri(shares)
    found: NDArray[np.float64] = special.ndtr(shift + moved / (1 - bend * moved))
    return found


def _unbent(
    tails: NDArray[np.float64], shift: NDArray[np.float64], bend: NDArray[np.float64], least: float
) -> NDArray[np.float64]:
    """[..., 2]: the nominal shares at which BCa would read its lower and its upper end at zero. tails: of the
    resampled means on either side of it, taken to be at least `least` away from 0 and 1.
    """
    upward = np.array([1.0, -1.0])
    moved = upward * special.ndtri(np.clip(tails, least, 1 - least)) - shift
    found: NDArray[np.float64] = special.ndtr(upward * (moved / (1 + bend * moved) - shift))
    return found


def resampled_means(means: NDArray[np.float64], reps: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """[reps]. Blocks continue one stream: the draws equal `rng.integers(0, n, (reps, n))`, as in scipy."""
    problems = len(means)
    rows = max(1, BLOCK // problems)
    starts = range(0, reps, rows)
    blocks = (rng.integers(0, problems, (min(rows, reps - start), problems)) for start in starts)
    return np.concatenate([means[block].mean(axis=1) for block in blocks])


def _resampled_family(means: NDArray[np.float64], reps: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """[reps, contrast] from means[problem, contrast]."""
    problems = len(means)
    kinds, kind_of = np.unique(means, axis=0, return_inverse=True)
    kind_of = kind_of.ravel().astype(np.int32)
    small = np.min_scalar_type(problems - 1)  # narrow integers are drawn several at a time
    found = np.empty((reps, means.shape[1]))
    rows = max(1, FAMILY_BLOCK // problems)
    for start in range(0, reps, rows):
        count = min(rows, reps - start)
        drawn = kind_of.take(rng.integers(0, problems, (count, problems), dtype=small))
        drawn += np.arange(count, dtype=np.int32)[:, None] * len(kinds)
        weights = np.bincount(drawn.ravel(), minlength=count * len(kinds)).reshape(count, len(kinds))
        found[start : start + count] = weights.astype(np.float64) @ kinds / problems
    return found


def _check(kind: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"kind: {kind!r} is unknown; name percentile or bca")
