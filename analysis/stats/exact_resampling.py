"""Sums of problems as whole numbers: what resampling every possible way would give, by convolution.

Seeds are scored 0 or 1, so a problem's difference over k seeds is one of -k, ..., k, and a study is its
counts of problems at each of them. The sum of n problems drawn with replacement is then a sum of n
independent draws from these shares: the n-fold convolution, one Fourier transform, with the weight of all
n^n resamples and no seed.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.stats.interval import DegenerateDifference, problem_means

__all__ = ["convolved", "counted", "raised", "resampled", "width"]


def counted(difference: ArrayLike) -> NDArray[np.int64]:
    """[2k + 1]: how many problems have the sums -k, ..., k over their seeds.

    difference: [problem, seed], whole numbers. Raises DegenerateDifference for others.
    """
    problem_means(difference)
    values = np.asarray(difference, dtype=np.float64)
    if np.any(values != np.round(values)):
        raise DegenerateDifference("difference: not -1, 0 or 1 in every seed; resample it with draws")
    seeds = values.shape[1]
    sums = values.sum(axis=1).astype(np.int64)
    return np.bincount(sums + seeds, minlength=2 * seeds + 1)


def resampled(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """[study, 2kn + 1]: the chance that n problems drawn with replacement sum to -kn, ..., kn.

    counts: [study, 2k + 1], the same n in every study.
    """
    problems = int(counts[0].sum())
    return convolved(counts / problems, problems)


def convolved(chances: NDArray[np.float64], times: int) -> NDArray[np.float64]:
    """[study, 2k times + 1]: of a sum of so many independent values, each -k, ..., k with the
    chances[study, 2k + 1].
    """
    size = times * (chances.shape[1] - 1) + 1
    waves = np.fft.rfft(chances, width(size), axis=1)
    sums: NDArray[np.float64] = np.fft.irfft(raised(waves, times), width(size), axis=1)[:, :size]
    return np.maximum(sums, 0.0)  # rounding leaves 1e-17 on either side of zero


def width(least: int) -> int:
    """Of a transform of at least so many numbers: a power of two."""
    return 1 << (least - 1).bit_length()


def raised(base: NDArray[np.complex128], exponent: int) -> NDArray[np.complex128]:
    """By squaring: a general complex power costs ten times as much."""
    power = np.ones_like(base)
    while exponent:
        if exponent & 1:
            power *= base
        exponent >>= 1
        if exponent:
            base = base * base
    return power
