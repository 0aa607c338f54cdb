"""Power and error of a method at the planned size, computed before a protocol is locked.

Accuracy differences of k seeds are multiples of 1/k, so a simulated study is described by its counts of
problems at each multiple. Resampling or sign-flipping n of them is an n-fold convolution on that lattice. One
Fourier transform per study gives the tail that draws would estimate, and finite draws are simulated by one
binomial; thousands of studies take seconds.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis.stats import betting, exact_resampling, restricted_likelihood
from analysis.stats.methods import EXACT_BELOW, METHODS

TAIL_DRAWS = 50  # draws expected in one tail at the level of a contrast
BLOCK = 1 << 22  # numbers in memory at a time
WITHOUT_DRAWS = ("t", "exact-bootstrap", "restricted-likelihood", "auto", "betting", "cr2")  # methods that draw nothing


def minimal_detectable_effect(
    problems: int,
    alpha: float,
    *,
    method: str = "sign-flip",
    discordance: float = 0.2,
    power: float = 0.8,
    draws: int = 10_000,
    rng: np.random.Generator,
) -> float | None:
    """Return the smallest true difference (points) that `method` detects with this power, or None.

    A problem is discordant with probability `discordance`, and all its seeds agree; seeds that add
    information only make the detectable effect smaller. The largest possible difference is `discordance`.
    Resolution 0.001.
    """
    check_method(method, problems)
    uniforms = rng.random((4_000, problems))  # shared by all effects, so that power rises with the effect

    def has_power(effect: float) -> bool:
        gained = np.where(uniforms < (discordance + effect) / 2, 1, np.where(uniforms < discordance, -1, 0))
        return bool((p_values(method, count_sums(gained, 1), draws, rng) <= alpha).mean() >= power)

    low, high = 0, int(1000 * discordance)
    if not has_power(high / 1000):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if has_power(middle / 1000) else (middle, high)
    return high / 1000


def draws_needed(alpha: float) -> int:
    """Return the draws with at least 50 expected in each tail; with fewer the seed affects verdicts."""
    return int(np.ceil(2 * TAIL_DRAWS / alpha - 1e-9))


def has_enough_draws(method: str, draws: int, alpha: float, problems: int | None = None) -> bool:
    """Return whether `draws` suffice to decide at `alpha`.

    Methods in `WITHOUT_DRAWS` draw nothing. The p of max-t is adjusted, so pass the alpha of its family. Sign
    flips of few problems are exact (2^problems <= draws): then the smallest attainable p, 2 / 2^problems,
    must reach `alpha`. All other methods need `draws_needed(alpha)`.
    """
    if method in WITHOUT_DRAWS:
        return True
    if method == "sign-flip" and problems is not None:
        if 2.0 ** (1 - problems) > alpha:
            return False
        if problems <= np.log2(max(draws, 1)):
            return True
    return draws >= draws_needed(alpha)


def p_values(
    method: str, counts: NDArray[np.int64], draws: int | None, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return the two-sided p of many simulated studies, [study], as `paired_tests.compare` computes it; for
    max-t that of a single contrast, the sign-flip test; for cr2 that of independent problems, t.

    counts: [study, 2k + 1], the number of problems whose difference is -k/k, ..., k/k.
    draws: None for the limit of p for many draws.
    """
    method = {"max-t": "sign-flip", "cr2": "t"}.get(method, method)
    distinct, positions = np.unique(counts, axis=0, return_inverse=True)
    if method in ("restricted-likelihood", "auto"):
        return _counting_p(method, distinct)[positions]
    if method == "betting":
        betting_p: NDArray[np.float64] = np.minimum(1.0, 2 * betting.p_of_counts(distinct, 0.0).min(axis=1))
        return betting_p[positions]
    steps = np.arange(counts.shape[1]) - counts.shape[1] // 2
    problems = int(counts[0].sum())
    is_enumerated = draws is None or (method == "sign-flip" and problems <= np.log2(max(draws, 1)))
    if method == "t":
        p = _student_p(distinct, steps)[positions]
    else:
        tail_of = _flipped_tail if method == "sign-flip" else _bootstrap_tail
        rows = max(1, BLOCK // exact_resampling.fft_width(2 * int(steps[-1]) * problems + 1))
        blocks = (distinct[start : start + rows] for start in range(0, len(distinct), rows))
        tail = np.concatenate([tail_of(block, steps) for block in blocks])[positions]
        p = 2 * tail
        if draws is not None and method not in WITHOUT_DRAWS and not is_enumerated:
            p = 2 * (rng.binomial(draws, np.clip(tail, 0, 1)) + 1) / (draws + 1)
        p = np.minimum(1.0, p)
        if method == "exact-bootstrap":
            p = np.maximum(p, 2.0 ** (1 - problems))  # as in `bootstrap.exact`
    is_constant = counts.max(axis=1) == problems
    value = np.abs(counts @ steps) / (int(steps[-1]) * problems)
    constant_p = np.where(value == 0, 1.0, np.minimum(1.0, 2 * (1 + value) ** -float(problems)))
    return np.where(is_constant, constant_p, p)  # as in `interval.compare_constant`


def _counting_p(method: str, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return p for the methods that need only counts; counts: distinct rows."""
    k = counts.shape[1] // 2
    few = counts.sum(axis=1) - counts[:, k] < (np.inf if method == "restricted-likelihood" else EXACT_BELOW)
    p = np.empty(len(counts))
    if few.any():
        p[few] = restricted_likelihood.p_values(counts[few])
    if not few.all():
        p[~few] = p_values("t", counts[~few], 1, np.random.default_rng(0))
    return p


def _student_p(counts: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.float64]:
    problems = counts.sum(axis=1)
    mean = counts @ steps / problems
    spread = counts @ steps**2 - problems * mean**2
    error = np.sqrt(np.maximum(spread, 1e-12) / (problems - 1) / problems)
    p: NDArray[np.float64] = 2 * stats.t.sf(np.abs(mean) / error, problems - 1)
    return p


def _bootstrap_tail(counts: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the smaller share of resampled sums at or beyond zero, by convolving the observed counts."""
    problems, k = int(counts[0].sum()), int(steps[-1])
    width = exact_resampling.fft_width(2 * k * problems + 1)
    spectrum = np.exp(-2j * np.pi * np.outer(np.arange(2 * k + 1), np.arange(width // 2 + 1)) / width)
    shares = counts / problems
    resampled = exact_resampling.complex_power(shares @ spectrum.real + 1j * (shares @ spectrum.imag), problems)
    # Two sums over the inverse transform, by Parseval; its entry k * problems is the sum zero.
    tails = np.zeros((2, width))
    tails[0, : k * problems + 1] = tails[1, k * problems : 2 * k * problems + 1] = 1
    weights = np.fft.rfft(tails).conj() / width
    weights[:, 1 : width // 2] *= 2  # frequencies that a real transform omits
    sums = resampled.real @ weights.real.T - resampled.imag @ weights.imag.T
    smaller: NDArray[np.float64] = sums.min(axis=1)
    return smaller


def _flipped_tail(counts: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the share of sign flips whose sum is at least as large as the observed one."""
    problems, k = int(counts[0].sum()), int(steps[-1])
    width = exact_resampling.fft_width(2 * k * problems + 1)
    angles = 2 * np.pi * np.arange(width // 2 + 1) / width
    cosine = np.cos(steps[k + 1 :, None] * angles)  # [step, frequency]: both signs of one problem
    sizes = (counts[:, k + 1 :] + counts[:, k - 1 :: -1]).astype(np.float64)
    # Powers are multiplied as logarithms: one matrix product instead of one power per study.
    magnitude = np.exp(sizes @ np.log(np.maximum(np.abs(cosine), 1e-300)))
    transform = np.where(sizes @ (cosine < 0.0).astype(np.float64) % 2 == 1, -magnitude, magnitude)
    flipped = np.fft.irfft(transform, width)  # entry s is the sum s, entry width - s is the sum -s
    largest = k * problems
    upper = np.cumsum(flipped[:, largest::-1], axis=1)[:, ::-1]  # entry s: share with a sum of at least s
    extreme: NDArray[np.float64] = np.take_along_axis(upper, np.abs(counts @ steps)[:, None], axis=1)[:, 0]
    return extreme


def count_sums(gained: NDArray[np.int64], seeds: int) -> NDArray[np.int64]:
    """Return the counts [study, 2 seeds + 1] for `p_values`, from sums over seeds [study, problem]."""
    studies, width = len(gained), 2 * seeds + 1
    flat = (gained + seeds) + width * np.arange(studies)[:, None]
    return np.bincount(flat.ravel(), minlength=studies * width).reshape(studies, width)


def check_method(method: str, problems: int) -> None:
    if method not in METHODS:
        raise ValueError(f"method: {method!r} is unknown; name one of {', '.join(METHODS)}")
    if problems < 2:
        raise ValueError(f"problems: {problems} are too few to compare; plan at least two")
