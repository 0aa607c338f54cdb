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

from analysis.simulation import margin_tests, null_populations
from analysis.simulation.null_populations import Setting
from analysis.stats import power
from analysis.stats.interval import clopper_pearson

__all__ = [
    "LIMIT",
    "StudyDistribution",
    "TypeOneError",
    "draw_studies",
    "errors_by_setting",
    "margin_errors_by_setting",
    "worst_margin_error",
    "worst_type_one_error",
]

LIMIT = 1.2  # times the nominal level; a method or rule above it is refused
STUDIES = 20_000  # simulated for a population that is not enumerated
MARGIN_STUDIES = 4_000  # the same for margin tests, which have twice as many settings
LATTICE = 1 << 25  # numbers transformed at most; larger studies are simulated fewer times
DROPPED_CHANCE = 1e-6  # total probability of the least likely studies, which are not enumerated
SCREEN_ABOVE = 2_000  # above this many distinct studies, those that t finds clearly insignificant are skipped
SCREEN_P = 0.35  # the p of t above which a study is skipped


class TypeOneError(NamedTuple):
    """The type I error of a method at the planned size, also as a multiple of the nominal level."""

    rate: float
    ratio: float
    ratio_low: float  # 95 % Clopper-Pearson limits of the Monte Carlo estimate; the ratio itself if enumerated
    ratio_high: float
    studies: int  # number of simulated studies; 0 if enumerated
    setting: Setting  # the setting with the largest error

    def exceeds(self, limit: float = LIMIT) -> bool:
        """Return whether the error is above `limit` times nominal beyond Monte Carlo error."""
        return self.ratio_low > limit


class StudyDistribution(NamedTuple):
    """The distinct studies of one population, with weights."""

    counts: NDArray[np.int64]  # [study, 2 seeds + 1]
    weights: NDArray[np.float64]  # [study], the probability of each
    studies: int  # number of simulated studies; 0 if enumerated

    def rate(self, hit: NDArray[np.bool_]) -> tuple[float, float, float]:
        """Return the probability of the studies in `hit`, with its limits."""
        share = float(self.weights[hit].sum())
        if not self.studies:
            return share, share, share
        return share, *clopper_pearson(round(share * self.studies), self.studies)


def worst_type_one_error(
    method: str, problems: int, seeds: int, alpha: float, rng: np.random.Generator
) -> TypeOneError:
    """Return how often `method` rejects at `alpha`, two-sided, in the setting where it rejects most often.

    alpha: the corrected level of one contrast. max-t is evaluated as the sign-flip test of a single contrast:
    at its Bonferroni level max-t has at least as much power. Methods that draw are evaluated in the limit of
    many draws. Raises ValueError for an unknown method or fewer than two problems.
    """
    return max(errors_by_setting(method, problems, seeds, [alpha], rng), key=lambda errors: errors[0].ratio)[0]


def errors_by_setting(
    method: str, problems: int, seeds: int, levels: Sequence[float], rng: np.random.Generator
) -> list[list[TypeOneError]]:
    """Return the errors as [setting][level]. Mirrored settings are left out: two-sided errors are equal."""
    power.check_method(method, problems)
    setting_errors = []
    for setting in null_populations.settings(seeds):
        if setting.kind == null_populations.LOSSES:
            continue
        studies = draw_studies(null_populations.shares(setting, seeds), problems, rng)
        p = screened_p_values(method, studies.counts, rng)
        setting_errors.append(_errors_at_levels(p, studies, setting, levels))
    return setting_errors


def worst_margin_error(
    method: str,
    problems: int,
    seeds: int,
    margin: float,
    levels: tuple[float, float],
    rng: np.random.Generator,
) -> TypeOneError:
    """Return the larger error of the one-sided margin tests if the subject is worse by exactly the margin.

    levels: of "not worse by the margin", which is wrong there, and of "worse by more", which is wrong too. A
    rule that requires the first in every contrast errs no more often than one contrast does (Berger 1982),
    one that requires the second in any contrast no more often than all of them together.
    """
    worse, below = margin_errors_by_setting(method, problems, seeds, margin, levels, rng)
    return max([errors[0] for errors in worse] + [errors[1] for errors in below], key=lambda error: error.ratio_low)


def margin_errors_by_setting(
    method: str, problems: int, seeds: int, margin: float, levels: Sequence[float], rng: np.random.Generator
) -> tuple[list[list[TypeOneError]], list[list[TypeOneError]]]:
    """Return the errors of `MarginPValues.worse` and `.below`, each as [setting][level]."""
    power.check_method(method, problems)
    worse, below = [], []
    for setting in null_populations.settings(seeds, margin=True):
        studies = draw_studies(null_populations.shares(setting, seeds, margin), problems, rng, MARGIN_STUDIES)
        tests = margin_tests.margin_p_values(method, studies.counts, margin)
        worse.append(_errors_at_levels(tests.worse, studies, setting, levels))
        below.append(_errors_at_levels(tests.below, studies, setting, levels))
    return worse, below


def _errors_at_levels(
    p: NDArray[np.float64], studies: StudyDistribution, setting: Setting, levels: Sequence[float]
) -> list[TypeOneError]:
    rates = [studies.rate(p <= level) for level in levels]
    return [
        TypeOneError(rate, rate / level, low / level, high / level, studies.studies, setting)
        for level, (rate, low, high) in zip(levels, rates, strict=True)
    ]


def draw_studies(
    shares: NDArray[np.float64], problems: int, rng: np.random.Generator, studies: int = STUDIES
) -> StudyDistribution:
    """Enumerate or draw studies of this many problems with sum probabilities shares[2 seeds + 1]."""
    seeds = len(shares) // 2
    differ = [position for position in range(len(shares)) if position != seeds and shares[position] > 0]
    if len(differ) > 2:
        studies = max(2_000, min(studies, LATTICE // (2 * seeds * problems + 1)))
        counts = rng.multinomial(problems, shares / shares.sum(), studies)
        distinct, times = np.unique(counts, axis=0, return_counts=True)
        return StudyDistribution(distinct, times / studies, studies)
    ranges = [np.arange(*_likely_range(problems, shares[position])) for position in differ]
    grid = np.stack(np.meshgrid(*ranges, indexing="ij"), axis=-1).reshape(-1, len(differ))
    grid = grid[grid.sum(axis=1) <= problems]
    counts = np.zeros((len(grid), len(shares)), dtype=np.int64)
    counts[:, differ] = grid
    counts[:, seeds] = problems - grid.sum(axis=1)
    weights = stats.multinomial.pmf(counts[:, [*differ, seeds]], problems, shares[[*differ, seeds]])
    order = np.argsort(weights)
    likely = order[np.cumsum(weights[order]) > DROPPED_CHANCE]
    return StudyDistribution(counts[likely], weights[likely], 0)


def _likely_range(problems: int, share: float) -> tuple[int, int]:
    counts = stats.binom.ppf([DROPPED_CHANCE, 1 - DROPPED_CHANCE], problems, share)
    return int(counts[0]), int(counts[1]) + 1


def screened_p_values(method: str, counts: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the p of distinct counts[study, 2 seeds + 1], [study]; 1 for studies that are skipped."""
    is_near = np.ones(len(counts), dtype=bool)
    if len(counts) > SCREEN_ABOVE:
        is_near = power.p_values("t", counts, None, rng) <= SCREEN_P
    p = np.ones(len(counts))
    p[is_near] = power.p_values(method, counts[is_near], None, rng)
    return p
