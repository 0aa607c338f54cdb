"""What a method can see at the planned size, and how often it errs there: known before a protocol is locked.

Accuracy differences of k seeds are multiples of 1/k, so a simulated study is its counts of problems at each
multiple. Resampling or sign-flipping n of them is an n-fold convolution on that lattice. One Fourier
transform per study gives the tail that draws would estimate, and the finite draws are one binomial; thousands
of studies take seconds.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from analysis.stats import exact_resampling
from analysis.stats.interval import exact
from analysis.stats.methods import METHODS

__all__ = [
    "TypeOne",
    "counted",
    "draws_enough",
    "draws_needed",
    "minimal_detectable_effect",
    "p_values",
    "type_one",
]

TAIL_DRAWS = 50  # draws expected in one tail at the level of a contrast
DISCORDANCES = (0.25, 0.17, 0.10)  # shares of discordant pairs under which a method has to hold its level
STUDIES = 20_000  # simulated at each of them
LATTICE = 1 << 25  # numbers that may be transformed at each; larger studies are simulated fewer times
BLOCK = 1 << 22  # numbers held at a time
EXACT = ("t", "exact-bootstrap")  # methods that draw nothing


class TypeOne(NamedTuple):
    """Type-I error of a method at its own size, as a multiple of the nominal level."""

    rate: float
    ratio: float
    ratio_low: float  # 95 % Clopper-Pearson limits of the Monte Carlo estimate
    ratio_high: float
    studies: int
    discordance: float  # the share of discordant pairs at which the method erred most

    def exceeds(self, limit: float = 1.2) -> bool:
        """Above `limit` times nominal by more than Monte Carlo error explains."""
        return self.ratio_low > limit


def type_one(
    method: str,
    problems: int,
    seeds: int,
    alpha: float,
    rng: np.random.Generator,
    draws: int = 10_000,
) -> TypeOne:
    """How often `method` rejects at `alpha` when both arms solve each problem with the same chance.

    The worst of three null populations, reported with a Monte Carlo interval.

    A problem's chance is drawn from Beta(a, a), a < 1: many easy and many hard problems, few between. Its
    seeds are independent given that, in both arms: that the arms of a study share random numbers is not
    simulated. a sets the share of discordant pairs, a / (2a + 1): 25, 17 and 10 %. Problems are then
    independent and alike, so that a study's counts are one multinomial draw.
    alpha: the corrected level of one contrast. Of max-t, here and below, one contrast without a family is
    looked at, which is the sign-flip test: at its Bonferroni level max-t sees at least as much.
    Raises ValueError for an unknown method or fewer than two problems.
    """
    _check(method, problems)
    studies = max(2_000, min(STUDIES, LATTICE // (2 * seeds * problems + 1)))
    rows = max(1, BLOCK // (problems * (2 * seeds + 1)))

    def error(discordance: float) -> TypeOne:
        null, rejected = _null(discordance / (1 - 2 * discordance), seeds), 0
        for start in range(0, studies, rows):
            counts = rng.multinomial(problems, null, min(rows, studies - start))
            rejected += int((p_values(method, counts, draws, rng) <= alpha).sum())
        low, high = exact(rejected, studies)
        rate = rejected / studies
        return TypeOne(rate, rate / alpha, low / alpha, high / alpha, studies, discordance)

    return max(map(error, DISCORDANCES), key=lambda error: error.rate)


def _null(a: float, seeds: int) -> NDArray[np.float64]:
    """[2 seeds + 1]: the chance that a problem's seeds, solved by the one arm less those by the other, are
    -seeds, ..., seeds: two binomials that share a chance from Beta(a, a).
    """
    one = np.arange(seeds + 1)
    both = special.comb(seeds, one)[:, None] * special.comb(seeds, one)
    solved = one[:, None] + one
    both *= np.exp(special.betaln(a + solved, a + 2 * seeds - solved) - special.betaln(a, a))
    sums = np.array([both.trace(offset) for offset in range(-seeds, seeds + 1)])
    shares: NDArray[np.float64] = sums / sums.sum()
    return shares


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
    """Smallest true difference (points) that `method` finds at `alpha` with this power, or None.

    A problem is discordant with probability `discordance`, and all its seeds agree: seeds that add
    information only make the effect smaller. The largest possible difference is `discordance` itself.
    Resolution 0.001.
    """
    _check(method, problems)
    uniforms = rng.random((4_000, problems))  # shared by all effects, so that power rises with the effect

    def found(effect: float) -> bool:
        gained = np.where(uniforms < (discordance + effect) / 2, 1, np.where(uniforms < discordance, -1, 0))
        return bool((p_values(method, counted(gained, 1), draws, rng) <= alpha).mean() >= power)

    low, high = 0, int(1000 * discordance)
    if not found(high / 1000):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if found(middle / 1000) else (middle, high)
    return high / 1000


def draws_needed(alpha: float) -> int:
    """Draws that leave at least 50 expected in each tail; with fewer the verdict depends on the seed."""
    return int(np.ceil(2 * TAIL_DRAWS / alpha - 1e-9))


def draws_enough(method: str, draws: int, alpha: float, problems: int | None = None) -> bool:
    """Whether `draws` can decide at `alpha`.

    t and the exact bootstrap draw nothing. The p of max-t is adjusted: pass the alpha of its family. Sign
    flips of few enough problems are exact (2^problems <= draws): then the smallest attainable p,
    2 / 2^problems, must reach `alpha`. Everything else needs `draws_needed(alpha)`.
    """
    if method in EXACT:
        return True
    if method == "sign-flip" and problems is not None:
        if 2.0 ** (1 - problems) > alpha:
            return False
        if 2.0**problems <= draws:
            return True
    return draws >= draws_needed(alpha)


def p_values(
    method: str, counts: NDArray[np.int64], draws: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Two-sided p of many simulated studies, as `paired_tests.COMPARE` of that name gives it;
    for max-t that of a contrast without a family, the sign-flip test.

    counts: [study, 2k + 1], problems whose difference is -k/k, ..., k/k. Returns [study].
    """
    method = "sign-flip" if method == "max-t" else method
    distinct, place = np.unique(counts, axis=0, return_inverse=True)
    steps = np.arange(counts.shape[1]) - counts.shape[1] // 2
    problems = int(counts[0].sum())
    exact = method in EXACT or (method == "sign-flip" and 2.0**problems <= draws)
    if method == "t":
        p = _student(distinct, steps)[place]
    else:
        of = _flipped_tail if method == "sign-flip" else _bootstrap_tail
        rows = max(1, BLOCK // exact_resampling.width(2 * int(steps[-1]) * problems + 1))
        blocks = (distinct[start : start + rows] for start in range(0, len(distinct), rows))
        tail = np.concatenate([of(block, steps) for block in blocks])[place]
        drawn = rng.binomial(draws, np.clip(tail, 0, 1))
        p = np.minimum(1.0, 2 * tail if exact else 2 * (drawn + 1) / (draws + 1))
        if method == "exact-bootstrap":
            p = np.maximum(p, 2.0 ** (1 - problems))  # as `bootstrap.exact`
    flat = counts.max(axis=1) == problems
    value = np.abs(counts @ steps) / (int(steps[-1]) * problems)
    alike = np.where(value == 0, 1.0, np.minimum(1.0, 2 * (1 + value) ** -float(problems)))
    return np.where(flat, alike, p)  # as `interval.without_spread`


def _student(counts: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.float64]:
    problems = counts.sum(axis=1)
    mean = counts @ steps / problems
    spread = counts @ steps**2 - problems * mean**2
    error = np.sqrt(np.maximum(spread, 1e-12) / (problems - 1) / problems)
    p: NDArray[np.float64] = 2 * stats.t.sf(np.abs(mean) / error, problems - 1)
    return p


def _bootstrap_tail(counts: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.float64]:
    """Smaller share of resampled sums at or beyond zero: the observed distribution, convolved n times."""
    problems, k = int(counts[0].sum()), int(steps[-1])
    width = exact_resampling.width(2 * k * problems + 1)
    waves = np.exp(-2j * np.pi * np.outer(np.arange(2 * k + 1), np.arange(width // 2 + 1)) / width)
    shares = counts / problems
    resampled = exact_resampling.raised(shares @ waves.real + 1j * (shares @ waves.imag), problems)
    # Two sums over the transform back, by Parseval; entry k * problems of it is the sum zero.
    tails = np.zeros((2, width))
    tails[0, : k * problems + 1] = tails[1, k * problems : 2 * k * problems + 1] = 1
    weights = np.fft.rfft(tails).conj() / width
    weights[:, 1 : width // 2] *= 2  # the frequencies that a real transform leaves out
    sums = resampled.real @ weights.real.T - resampled.imag @ weights.imag.T
    smaller: NDArray[np.float64] = sums.min(axis=1)
    return smaller


def _flipped_tail(counts: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.float64]:
    """Share of sign flips whose sum is at least as large as the observed one."""
    problems, k = int(counts[0].sum()), int(steps[-1])
    width = exact_resampling.width(2 * k * problems + 1)
    angles = 2 * np.pi * np.arange(width // 2 + 1) / width
    cosine = np.cos(steps[k + 1 :, None] * angles)  # [step, frequency]: one problem's two signs
    sizes = (counts[:, k + 1 :] + counts[:, k - 1 :: -1]).astype(np.float64)
    # Their powers are multiplied as logarithms: one matrix product instead of a power for every study.
    magnitude = np.exp(sizes @ np.log(np.maximum(np.abs(cosine), 1e-300)))
    transform = np.where(sizes @ (cosine < 0.0).astype(np.float64) % 2 == 1, -magnitude, magnitude)
    flipped = np.fft.irfft(transform, width)  # entry s is the sum s, entry width - s the sum -s
    largest = k * problems
    upper = np.cumsum(flipped[:, largest::-1], axis=1)[:, ::-1]  # entry s: share with a sum of at least s
    extreme: NDArray[np.float64] = np.take_along_axis(upper, np.abs(counts @ steps)[:, None], axis=1)[:, 0]
    return extreme


def counted(gained: NDArray[np.int64], seeds: int) -> NDArray[np.int64]:
    """[study, problem] sums over seeds, -seeds to seeds, to the counts [study, 2 seeds + 1] of `p_values`."""
    studies, width = len(gained), 2 * seeds + 1
    flat = (gained + seeds) + width * np.arange(studies)[:, None]
    return np.bincount(flat.ravel(), minlength=studies * width).reshape(studies, width)


def _check(method: str, problems: int) -> None:
    if method not in METHODS:
        raise ValueError(f"method: {method!r} is unknown; name one of {', '.join(METHODS)}")
    if problems < 2:
        raise ValueError(f"problems: {problems} cannot be compared; plan at least two")
