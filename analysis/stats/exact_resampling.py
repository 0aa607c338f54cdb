"""Exact resampling distributions: sums of problems are integers, and their distribution is a convolution.

Seeds are scored 0 or 1, so a problem's difference over k seeds is one of -k, ..., k, and a study is described
by its counts of problems at each of them. The sum of n problems drawn with replacement is a sum of n
independent draws from these shares: an n-fold convolution, computed by one Fourier transform, which covers
all n^n resamples and needs no seed.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.stats.interval import DegenerateDifference, problem_means

NEGLIGIBLE = 40.0  # minus the logarithm of a chance that is left out
# So few studies are judged and not simulated: nothing is left out, since looks take the normal quantile of a tiny p.
JUDGED = 2


def count_sums(difference: ArrayLike) -> NDArray[np.int64]:
    """Return how many problems have the sums -k, ..., k over their seeds, [2k + 1].

    difference: [problem, seed], integers. Raises DegenerateDifference for others.
    """
    problem_means(difference)
    values = np.asarray(difference, dtype=np.float64)
    if np.any(values != np.round(values)):
        raise DegenerateDifference("difference: is not -1, 0 or 1 in every seed; resample it with draws instead")
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


def sum_tails(chances: NDArray[np.float64], times: int, observed: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the chances that a sum as in `convolve` is at most, and at least, observed[study], [study, 2].

    Of many studies only sums near their mean are computed, by a narrower transform: by Bernstein's inequality all
    others together have a chance of less than exp(-NEGLIGIBLE), which is below the rounding error of the transform.
    """
    k = chances.shape[1] // 2
    steps = np.arange(-k, k + 1)
    mean = chances @ steps
    variance = np.maximum(chances @ steps**2 - mean**2, 0.0)
    jumps = NEGLIGIBLE * 2 * k / 3
    reach = jumps + np.sqrt(jumps**2 + 2 * NEGLIGIBLE * times * float(variance.max()))
    width = fft_width(2 * int(reach) + 3)
    if len(chances) <= JUDGED or width >= 2 * k * times + 1:
        lowest = np.full(len(chances), -k * times)
        sums = convolve(chances, times)
    else:
        lowest = np.rint(times * mean).astype(np.int64) - width // 2
        # The transform has the sum s at entry s + k times, modulo its width.
        cyclic = np.fft.irfft(complex_power(np.fft.rfft(chances, width, axis=1), times), width, axis=1)
        entries = (lowest[:, None] + k * times + np.arange(width)) % width
        sums = np.maximum(np.take_along_axis(cyclic, entries, 1), 0.0)
    place, last = (observed - lowest)[:, None], sums.shape[1] - 1
    inside = np.clip(place, 0, last)
    below = np.take_along_axis(np.cumsum(sums, axis=1), inside, 1)
    above = np.take_along_axis(np.cumsum(sums[:, ::-1], axis=1), last - inside, 1)
    return np.concatenate([np.where(place < 0, 0.0, below), np.where(place > last, 0.0, above)], axis=1)


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
