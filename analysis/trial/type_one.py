"""How often a method rejects one contrast where nothing differs, over every null population.

Where two kinds of problems differ at most (one seed, or a skewed population) every study is weighed by its
chance and nothing is simulated. Elsewhere studies are drawn; seeds of a problem sum to whole numbers, so that
equal studies are looked at once.
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

LIMIT = 1.2  # times the nominal level; above it a method or a rule is refused
STUDIES = 20_000  # simulated of a population that is not counted out
AT_MARGIN = 4_000  # the same where a margin is tested, of which there are twice as many settings
LATTICE = 1 << 25  # numbers that may be transformed of one; larger studies are simulated fewer times
LEFT_OUT = 1e-6  # chance of all the studies that are not looked at, each less likely than those that are
SCREENED = 2_000  # distinct studies above which those that t finds nowhere near are not looked at
NOWHERE = 0.35  # p of t, of those


class TypeOne(NamedTuple):
    """Type-I error of a method at its own size, as a multiple of the nominal level."""

    rate: float
    ratio: float
    ratio_low: (
        float  # 95 % Clopper-Pearson limits of the Monte Carlo estimate; the ratio where all is counted
    )
    ratio_high: float
    studies: int  # simulated; 0 where every one was weighed by its chance
    setting: Setting  # in which the method erred most

    def exceeds(self, limit: float = LIMIT) -> bool:
        """Above `limit` times nominal by more than Monte Carlo error explains."""
        return self.ratio_low > limit


class Drawn(NamedTuple):
    """Distinct studies of one population."""

    counts: NDArray[np.int64]  # [study, 2 seeds + 1]
    weights: NDArray[np.float64]  # [study], the share of each
    studies: int  # simulated; 0 where every one is weighed by its chance

    def rate(self, hit: NDArray[np.bool_]) -> tuple[float, float, float]:
        """The share of studies that are hit, with its limits."""
        share = float(self.weights[hit].sum())
        if not self.studies:
            return share, share, share
        return share, *exact(round(share * self.studies), self.studies)


def type_one(method: str, problems: int, seeds: int, alpha: float, rng: np.random.Generator) -> TypeOne:
    """How often `method` rejects at `alpha`, two-sided, in the setting where it does so most often.

    alpha: the corrected level of one contrast. Of max-t one contrast without a family is looked at, which is
    the sign-flip test: at its Bonferroni level max-t sees at least as much. Methods that draw are taken at
    the limit of many draws. Raises ValueError for an unknown method or fewer than two problems.
    """
    return max(over_settings(method, problems, seeds, [alpha], rng), key=lambda one: one[0].ratio)[0]


def over_settings(
    method: str, problems: int, seeds: int, levels: Sequence[float], rng: np.random.Generator
) -> list[list[TypeOne]]:
    """[setting][level]. The mirror of a setting is left out: a two-sided test errs alike in both."""
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
    """The same of the two one-sided tests about a margin, where the subject is worse by just that.

    levels: at which "not worse by the margin" is wrong, and at which "worse by more" is not earned. A rule
    that asks for the first in every contrast errs no more often than one contrast does (Berger 1982), one
    that asks for the second in any no more often than all of them together.
    """
    worse, below = over_margins(method, problems, seeds, margin, levels, rng)
    return max([each[0] for each in worse] + [each[1] for each in below], key=lambda one: one.ratio_low)


def over_margins(
    method: str, problems: int, seeds: int, margin: float, levels: Sequence[float], rng: np.random.Generator
) -> tuple[list[list[TypeOne]], list[list[TypeOne]]]:
    """[setting][level] of either test: `margin_tests.Tests.worse` and `below`."""
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
    """Studies of so many problems, each with the chances shares[2 seeds + 1]."""
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
    """[study] of counts[study, 2 seeds + 1], all different; 1 where t finds nothing near, of many studies."""
    near = np.ones(len(counts), dtype=bool)
    if len(counts) > SCREENED:
        near = power.p_values("t", counts, None, rng) <= NOWHERE
    p = np.ones(len(counts))
    p[near] = power.p_values(method, counts[near], None, rng)
    return p
