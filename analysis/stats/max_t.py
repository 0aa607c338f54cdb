"""Simultaneous intervals and p of a whole family by max-t, with little loss for correlated contrasts.

Bonferroni ignores correlation, but contrasts that share a subject, problems or a budget are correlated. Here
the signs of all contrasts of a problem are flipped together, which preserves their correlation, and every
contrast is compared with the largest |t| of the family (single-step max-t: Westfall & Young 1993, section
2.3; Romano & Wolf 2005).

The family-wise error is exact if a problem's vector of differences is as likely as its negative. Contrasts
with one subject do not satisfy this exactly even when no arm is better (a subject that alone is right wins
all of them, one that alone is wrong loses all, and the two are equally likely only at an accuracy of one
half); the error is then nominal in the limit of many problems.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.stats.comparison import Comparison
from analysis.stats.exact_ends import widen_to_exact
from analysis.stats.interval import DegenerateDifference, compare_constant, problem_means

BLOCK = 1 << 21  # signs in memory at a time
STUDIES_PER_BLOCK = 40  # simulated studies that share their flips


def max_t(
    differences: Sequence[Sequence[ArrayLike]],
    *,
    level: float = 0.95,
    draws: int = 10_000,
    rng: np.random.Generator,
    nulls: Sequence[Sequence[float]] | None = None,
) -> list[list[Comparison]]:
    """Return one comparison per contrast: the intervals cover jointly with probability `level`, and p is
    adjusted for the family.

    differences: groups of contrasts that share their problems, each contrast [problem, seed] with the
        problems in one order. Groups are independent of one another (another task has other problems).
    draws: joint sign flips; p has the +1 correction and is never 0.
    nulls: the null mean difference of every contrast, in the order of `differences`; zero by default. The
        signs of the deviations from it are flipped.

    The interval is mean -+ c standard errors of problem means, where c is the `level` quantile of the
    family's largest |t|, clipped to [-1, 1] and widened to the exact ends at the Bonferroni level; it
    excludes the null exactly when p <= 1 - level. A contrast without spread is not flipped;
    `interval.compare_constant` compares it at its Bonferroni level.
    Raises DegenerateDifference, also for an empty family or problems that are not shared.
    """
    groups = [[problem_means(difference) for difference in group] for group in differences]
    if not groups:
        raise DegenerateDifference("differences: an empty family has no error rate; pass at least one contrast")
    group_nulls = [[0.0] * len(group) for group in groups] if nulls is None else nulls
    if any(len({len(means) for means in group}) != 1 for group in groups):
        raise DegenerateDifference(
            "differences: contrasts of a group must have the same problems; pass arrays of equal length"
        )
    family = sum(len(group) for group in groups)
    largest = np.zeros(draws)
    for group, null_means in zip(groups, group_nulls, strict=True):
        means_and_nulls = zip(group, null_means, strict=True)
        if moving := [means - null for means, null in means_and_nulls if np.ptp(means) > 0]:
            blocks = flipped_t(np.stack(moving, axis=1), draws, rng)
            np.maximum(largest, np.concatenate([block.max(axis=1) for block in blocks]), out=largest)
    largest.sort()
    # The smallest bound that at most a share 1 - level of the draws, the observed one included, reaches.
    exceedances = int(np.floor((draws + 1) * (1 - level) + 1e-9)) - 1
    critical = float(largest[-1 - exceedances]) if exceedances >= 0 else np.inf
    bonferroni_level = 1 - (1 - level) / family
    return [
        [
            widen_to_exact(
                _interval(means, null, largest, critical, bonferroni_level, family),
                difference,
                level=bonferroni_level,
                null=null,
            )
            for difference, means, null in zip(*members, strict=True)
        ]
        for members in zip(differences, groups, group_nulls, strict=True)
    ]


def adjusted_p(groups: Sequence[NDArray[np.float64]], draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the p of `max_t` for many simulated studies, [study, contrast], contrasts in group order.

    groups: problem means [study, problem, contrast]; contrasts of a group share their problems. Blocks of
    studies share their flips.
    """
    studies = len(groups[0])
    blocks = (slice(start, start + STUDIES_PER_BLOCK) for start in range(0, studies, STUDIES_PER_BLOCK))
    return np.concatenate([_adjusted_block([group[block] for group in groups], draws, rng) for block in blocks])


def _adjusted_block(groups: Sequence[NDArray[np.float64]], draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
    largest = np.zeros((draws, len(groups[0])))
    observed = []
    for group in groups:
        count, problems, contrasts = group.shape
        means = np.moveaxis(group, 1, 0).reshape(problems, -1)
        flipped = np.concatenate(list(flipped_t(means, draws, rng)))
        np.maximum(largest, flipped.reshape(draws, count, contrasts).max(axis=2), out=largest)
        observed.append(observed_t(means.sum(axis=0), means).reshape(count, contrasts))
    reached = (largest[:, :, None] >= np.concatenate(observed, axis=1)).sum(axis=0)
    p: NDArray[np.float64] = (1 + reached) / (draws + 1)
    return p


def flipped_t(means: NDArray[np.float64], draws: int, rng: np.random.Generator) -> Iterator[NDArray[np.float64]]:
    """Yield blocks of |t| [draw, contrast], `draws` in total, with the signs of whole problems of
    means[problem, contrast] flipped; 0 for a contrast that is always zero.
    """
    problems = len(means)
    rows = max(1, BLOCK // max(means.shape))
    for start in range(0, draws, rows):
        count = min(rows, draws - start)
        bits = np.unpackbits(rng.integers(0, 256, (count, -(-problems // 8)), dtype=np.uint8), axis=1)
        signs = bits[:, :problems].astype(np.float64) * 2 - 1
        yield observed_t(signs @ means, means)


def observed_t(sums: NDArray[np.float64], means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return |t| of sums[..., contrast]; sign flips do not change the sum of squares of means[problem,
    contrast]. Rounded, so that equal patterns tie.
    """
    problems = len(means)
    spread = np.maximum((means**2).sum(axis=0) - sums**2 / problems, 1e-12)
    error = np.sqrt(spread / (problems - 1) / problems)
    t: NDArray[np.float64] = np.round(np.abs(sums / problems) / error, 9)
    return t


def _interval(
    means: NDArray[np.float64],
    null: float,
    largest: NDArray[np.float64],
    critical: float,
    bonferroni_level: float,
    family: int,
) -> Comparison:
    if constant := compare_constant(means, bonferroni_level, null):
        return constant._replace(p=min(1.0, constant.p * family))
    mean = float(means.mean())
    shifted = means - null
    t = float(observed_t(shifted.sum(keepdims=True), shifted[:, None])[0])
    p = (len(largest) - int(np.searchsorted(largest, t)) + 1) / (len(largest) + 1)
    reach = critical * float(means.std(ddof=1) / np.sqrt(len(means)))
    # Rounded like t, so that an end equals the null if t ties with its bound.
    low, high = (null + round(end - null, 8) for end in (mean - reach, mean + reach))
    return Comparison(mean, max(-1.0, low), min(1.0, high), p)
