"""Exact resampling distributions: sums of problems are integers, and their distribution is a convolution.

Seeds are scored 0 or 1, so a problem's difference over k seeds is one of -k, ..., k, and a study is described
by its counts of problems at each of them. The sum of n problems drawn with replacement is a sum of n
independent draws from these shares: an n-fold convolution, computed by one Fourier transform, which covers
all n^n resamples and needs no seed.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.stats.interval import DegenerateDifference, problem_means


def count_sums(difference: ArrayLike) -> NDArray[np.int64]:
    """Return how many problems have the sums -k, ..., k over their seeds, [2k + 1].

    difference: [problem, seed], integers. Raises DegenerateDifference for others.
    """
    problem_means(difference)
    values = np.asarray(difference, dtype=np.float64)
    if np.any(values != np.round(values)):
        raise DegenerateDifference("difference: not -1, 0 or 1 in every seed; resample it with draws")
    seeds = values.shape[1]
    sums = values.sum(axis=1).astype(np.int64)
    return np.bincount(sums + seeds, minlength=2 * seeds + 1)


def resampled_sum_pmf(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the probabilities that n problems drawn with replacement sum to -kn, ..., kn, [study, 2kn + 1].

    counts: [study, 2k + 1], the same n in every study.
    """
    problems = int(counts[0].sum())
    return convolve(counts / problems, problems)


def convolve(chances: NDArray[np.float64], times: int) -> NDArray[np.float64]:
    """Return the distribution of a sum of `times` independent values, [study, 2k times + 1]; each value is
    -k, ..., k with the probabilities chances[study, 2k + 1].
    """
    size = times * (chances.shape[1] - 1) + 1
    spectrum = np.fft.rfft(chances, fft_width(size), axis=1)
    sums: NDArray[np.float64] = np.fft.irfft(complex_power(spectrum, times), fft_width(size), axis=1)[:, :size]
    return np.maximum(sums, 0.0)  # rounding errors are about 1e-17 around zero


def fft_width(size: int) -> int:
    """Return the smallest power of two that is at least `size`, as the width of a transform."""
    return 1 << (size - 1).bit_length()


def complex_power(base: NDArray[np.complex128], exponent: int) -> NDArray[np.complex128]:
    """Return `base` to an integer power by squaring; a general complex power takes ten times as long."""
    power = np.ones_like(base)
    while exponent:
        if exponent & 1:
            power *= base
        exponent >>= 1
        if exponent:
            base = base * base
    return power
