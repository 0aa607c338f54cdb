"""A pool of studies whose weight is known in every null population, so that a test is computed once for all of them.

If at most two kinds of problems differ, the pool is every likely study. Otherwise studies are drawn from a mixture of
populations, many of them tilted towards a difference, and weighed by the ratio of chances (mixture importance
sampling: Owen & Zhou 2000, JASA 95:135): a test that rejects once in a thousand studies is then met in many.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Floats = NDArray[np.float64]
DROPPED_CHANCE = 1e-6  # of the likeliest studies; those beyond are not enumerated
NEAR_ZERO = 1e-300
LOOKS = 3  # at an error at most, each at more studies
LOOK_LEVEL = 1 - 0.05 / LOOKS  # of the limits of one look: those of all hold together at 95 % (Bonferroni)


class RateLimits(NamedTuple):
    """A rate with its limits, 95 % over all looks; all three are equal if it was counted."""

    rate: float
    low: float
    high: float


class StudyPool(NamedTuple):
    """Studies and the logarithm of what weighs each of them besides its chance."""

    counts: NDArray[np.int64]  # [study, 2 seeds + 1]
    log_base: Floats  # [study]
    studies: int  # number of drawn studies; 0 if enumerated

    def weights(self, shares: Floats) -> Floats:
        """Return the weight of each study in the population of shares[2 seeds + 1], [study]."""
        weights: Floats = np.exp(self.log_base + log_chance(self.counts, shares))
        return weights

    def rate(self, shares: Floats, hit: NDArray[np.bool_]) -> RateLimits:
        """Return the chance of the studies in `hit`[study] in this population."""
        weights = self.weights(shares)
        rate = float(weights[hit].sum())
        if not self.studies:
            return RateLimits(rate, rate, rate)
        variance = float((weights[hit] ** 2).sum()) - rate**2 / self.studies
        none_hit = -np.log((1 - LOOK_LEVEL) / 2) * float(weights.max())
        reach = stats.norm.isf((1 - LOOK_LEVEL) / 2) * np.sqrt(max(variance, 0.0)) if hit.any() else none_hit
        return RateLimits(rate, max(0.0, rate - reach), rate + reach)


def log_chance(counts: NDArray[np.int64], shares: Floats) -> Floats:
    """Return the logarithm of the product of shares over the problems of each study, [study]."""
    chance: Floats = counts.astype(np.float64) @ np.log(np.maximum(shares, NEAR_ZERO))
    return chance


def make_pool(
    populations: Sequence[Floats], problems: int, levels: Sequence[float], studies: int, rng: np.random.Generator
) -> StudyPool:
    """Return a pool for these populations of one kind, and those between them.

    populations: shares[2 seeds + 1] each. levels: of the tests, to which the tilts lead.
    studies: drawn at least, where not all are enumerated.
    """
    differ = [place for place in range(len(populations[0])) if place != len(populations[0]) // 2]
    differ = [place for place in differ if max(shares[place] for shares in populations) > 0]
    if len(differ) <= 2:
        return _enumerate(populations, problems, differ)
    steps = (np.arange(len(populations[0])) - len(populations[0]) // 2).astype(np.float64)
    ends = {float(stats.norm.isf(level / 2)) for level in (min(levels), max(levels))}
    reaches = [0.0, *sorted(ends), *sorted(-end for end in ends)]  # tilts, in standard errors of the mean
    proposals: list[Floats] = []
    for shares in populations:
        spread = np.sqrt(problems * float(shares @ steps**2 - (shares @ steps) ** 2))
        unscaled = [shares * np.exp(reach / spread * steps) for reach in reaches]
        proposals += [tilted / tilted.sum() for tilted in unscaled]
    each_count = -(-studies // len(proposals))
    counts = np.concatenate([rng.multinomial(problems, shares, each_count) for shares in proposals])
    chances = np.stack([log_chance(counts, shares) for shares in proposals])
    mixture = special.logsumexp(chances, axis=0) - np.log(len(proposals))
    return StudyPool(counts, -mixture - np.log(len(counts)), len(counts))


def _enumerate(populations: Sequence[Floats], problems: int, differ: Sequence[int]) -> StudyPool:
    """Return every study that is likely in one of the populations; `differ`: places of the kinds that differ."""
    is_likely = np.zeros((problems + 1,) * len(differ), dtype=bool)
    for shares in populations:
        is_likely[tuple(slice(*_likely_range(problems, shares[place])) for place in differ)] = True
    cells = np.argwhere(is_likely)
    cells = cells[cells.sum(axis=1) <= problems]
    counts = np.zeros((len(cells), len(populations[0])), dtype=np.int64)
    counts[:, differ] = cells
    counts[:, len(populations[0]) // 2] = problems - cells.sum(axis=1)
    return StudyPool(counts, special.gammaln(problems + 1) - special.gammaln(counts + 1).sum(axis=1), 0)


def _likely_range(problems: int, share: float) -> tuple[int, int]:
    counts = stats.binom.ppf([DROPPED_CHANCE, 1 - DROPPED_CHANCE], problems, share)
    return int(counts[0]), int(counts[1]) + 1
