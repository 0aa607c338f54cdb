"""The type I error of a method for one contrast, over every null population.

If at most two kinds of problems differ (one seed, or a skewed population), all studies are enumerated with
their probabilities. Otherwise studies are drawn; the seeds of a problem sum to integers, so that equal
studies are tested once.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis.stats import power
from analysis.stats.interval import exact
from analysis.trial import margin_tests, populations
from analysis.trial.populations import Setting

__all__ = ["LIMIT", "Drawn", "TypeOne", "at_margin", "drawn", "over_margins", "over_settings", "type_one"]

LIMIT = 1.2  # times the nominal level; a method or rule above it is refused
STUDIES = 20_000  # simulated for a population that is not enumerated
AT_MARGIN = 4_000  # the same for margin tests, which have twice as many settings
LATTICE = 1 << 25  # numbers transformed at most; larger studies are simulated fewer times
LEFT_OUT = 1e-6  # total probability of the least likely studies, which are not enumerated
SCREENED = 2_000  # above this many distinct studies, those that t finds clearly insignificant are skipped
NOWHERE = 0.35  # the p of t above which a study is skipped


class TypeOne(NamedTuple):
    """The type I error of a method at the planned size, also as a multiple of the nominal level."""

    rate: float
    ratio: float
    ratio_low: (
        float  # 95 % Clopper-Pearson limits of the Monte Carlo estimate; the ratio itself if enumerated
    )
    ratio_high: float
    studies: int  # number of simulated studies; 0 if enumerated
    setting: Setting  # the setting with the largest error

    def exceeds(self, limit: float = LIMIT) -> bool:
        """Return whether the error is above `limit` times nominal beyond Monte Carlo error."""
        return self.ratio_low > limit


class Drawn(NamedTuple):
    """The distinct studies of one population, with weights."""

    counts: NDArray[np.int64]  # [study, 2 seeds + 1]
    weights: NDArray[np.float64]  # [study], the probability of each
    studies: int  # number of simulated studies; 0 if enumerated

    def rate(self, hit: NDArray[np.bool_]) -> tuple[float, float, float]:
        """Return the probability of the studies in `hit`, with its limits."""
        share = float(self.weights[hit].sum())
        if not self.studies:
            return share, share, share
        return share, *exact(round(share * self.studies), self.studies)


def type_one(method: str, problems: int, seeds: int, alpha: float, rng: np.random.Generator) -> TypeOne:
    """Return how often `method` rejects at `alpha`, two-sided, in the setting where it rejects most often.

    alpha: the corrected level of one contrast. max-t is evaluated as the sign-flip test of a single contrast:
    at its Bonferroni level max-t has at least as much power. Methods that draw are evaluated in the limit of
    many draws. Raises ValueError for an unknown method or fewer than two problems.
    """
    return max(over_settings(method, problems, seeds, [alpha], rng), key=lambda one: one[0].ratio)[0]


def over_settings(
    method: str, problems: int, seeds: int, levels: Sequence[float], rng: np.random.Generator
) -> list[list[TypeOne]]:
    """Return the errors as [setting][level]. Mirrored settings are left out: two-sided errors are equal."""
    power.check(method, problems)
    found = []
    for setting in populations.settings(seeds):
        if setting.kind == populations.LOSSES:
            continue
        studies = drawn(populations.shares(setting, seeds), problems, rng)
        p = p_of(method, studies.counts, rng)
        found.append(_at(p, studies, setting, levels))
    return found


def at_margin(
    method: str,
    problems: int,
    seeds: int,
    margin: float,
    levels: tuple[float, float],
    rng: np.random.Generator,
) -> TypeOne:
    """Return the larger error of the one-sided margin tests if the subject is worse by exactly the margin.

    levels: of "not worse by the margin", which is wrong there, and of "worse by more", which is wrong too. A
    rule that requires the first in every contrast errs no more often than one contrast does (Berger 1982),
    one that requires the second in any contrast no more often than all of them together.
    """
    worse, below = over_margins(method, problems, seeds, margin, levels, rng)
    return max([each[0] for each in worse] + [each[1] for each in below], key=lambda one: one.ratio_low)


def over_margins(
    method: str, problems: int, seeds: int, margin: float, levels: Sequence[float], rng: np.random.Generator
) -> tuple[list[list[TypeOne]], list[list[TypeOne]]]:
    """Return the errors of `MarginPValues.worse` and `.below`, each as [setting][level]."""
    power.check(method, problems)
    worse, below = [], []
    for setting in populations.settings(seeds, margin=True):
        studies = drawn(populations.shares(setting, seeds, margin), problems, rng, AT_MARGIN)
        tests = margin_tests.tested(method, studies.counts, margin)
        worse.append(_at(tests.worse, studies, setting, levels))
        below.append(_at(tests.below, studies, setting, levels))
    return worse, below


def _at(p: NDArray[np.float64], studies: Drawn, setting: Setting, levels: Sequence[float]) -> list[TypeOne]:
    rates = [studies.rate(p <= level) for level in levels]
    return [
        TypeOne(rate, rate / level, low / level, high / level, studies.studies, setting)
        for level, (rate, low, high) in zip(levels, rates, strict=True)
    ]


def drawn(
    shares: NDArray[np.float64], problems: int, rng: np.random.Generator, studies: int = STUDIES
) -> Drawn:
    """Enumerate or draw studies of this many problems with sum probabilities shares[2 seeds + 1]."""
    seeds = len(shares) // 2
    differ = [at for at in range(len(shares)) if at != seeds and shares[at] > 0]
    if len(differ) > 2:
        studies = max(2_000, min(studies, LATTICE // (2 * seeds * problems + 1)))
        counts = rng.multinomial(problems, shares / shares.sum(), studies)
        distinct, times = np.unique(counts, axis=0, return_counts=True)
        return Drawn(distinct, times / studies, studies)
    ranges = [np.arange(*_likely(problems, shares[at])) for at in differ]
    grid = np.stack(np.meshgrid(*ranges, indexing="ij"), axis=-1).reshape(-1, len(differ))
    grid = grid[grid.sum(axis=1) <= problems]
    counts = np.zeros((len(grid), len(shares)), dtype=np.int64)
    counts[:, differ] = grid
    counts[:, seeds] = problems - grid.sum(axis=1)
    weights = stats.multinomial.pmf(counts[:, [*differ, seeds]], problems, shares[[*differ, seeds]])
    order = np.argsort(weights)
    likely = order[np.cumsum(weights[order]) > LEFT_OUT]
    return Drawn(counts[likely], weights[likely], 0)


def _likely(problems: int, share: float) -> tuple[int, int]:
    counts = stats.binom.ppf([LEFT_OUT, 1 - LEFT_OUT], problems, share)
    return int(counts[0]), int(counts[1]) + 1


def p_of(method: str, counts: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the p of distinct counts[study, 2 seeds + 1], [study]; 1 for studies that are skipped."""
    near = np.ones(len(counts), dtype=bool)
    if len(counts) > SCREENED:
        near = power.p_values("t", counts, None, rng) <= NOWHERE
    p = np.ones(len(counts))
    p[near] = power.p_values(method, counts[near], None, rng)
    return p
