"""The type I error of a method for one contrast, at its worst over every null population.

A test is computed once for a pool of studies, and its error follows for every share of problems that differ: a dense
grid is searched, and then its worst neighbourhood.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from analysis.simulation import margin_tests, null_populations, null_settings
from analysis.simulation.error_estimate import LIMIT, TypeOneError
from analysis.simulation.null_settings import GAINS, LOSSES, Setting
from analysis.simulation.study_pool import StudyPool, make_pool
from analysis.stats import power

REFINED = 8  # discordances tried between the neighbours of the worst one, twice
SCREEN_ABOVE = 2_000  # above this many distinct studies, those that t finds clearly insignificant are skipped
SCREEN_P = 0.35  # the p of t above which a study is skipped
SEARCH_STUDIES = 6_000  # drawn for all populations of a kind, where not all studies are enumerated
# Drawn for one population, and at most until its error is known to be below LIMIT or above it.
ESTIMATE_STUDIES, MOST_STUDIES = 2_000, 32_000

TABULATED = ("t", "restricted-likelihood", "auto")  # methods of the table of error rates

Hits = NDArray[np.bool_]


def worst_type_one_error(
    method: str, problems: int, seeds: int, alpha: float, rng: np.random.Generator
) -> TypeOneError:
    """Return how often `method` rejects at `alpha`, two-sided, in the setting where it rejects most often.

    alpha: the corrected level of one contrast. max-t is evaluated as the sign-flip test of a single contrast:
    at its Bonferroni level max-t has at least as much power. Methods that draw are evaluated in the limit of
    many draws. Raises ValueError for an unknown method or fewer than two problems.
    """
    if seeds > 1 and method not in TABULATED:
        first = _error_where_t_errs(method, problems, seeds, alpha, rng)
        if first.exceeds():
            return first
    return max(errors_by_kind(method, problems, seeds, [alpha], rng), key=lambda errors: errors[0].ratio)[0]


def worst_error_of_scores(method: str, problems: int, alpha: float, rng: np.random.Generator) -> TypeOneError:
    """Return `worst_type_one_error` of scores: many problems gain one step of a score and few lose all of it."""
    steps = null_populations.SCORE_STEPS
    first = _error_where_t_errs(method, problems, steps, alpha, rng)
    return first if first.exceeds() else _skewed_error(method, problems, steps, alpha, rng)


def _error_where_t_errs(method: str, problems: int, seeds: int, alpha: float, rng: np.random.Generator) -> TypeOneError:
    """Return the error in the skewed population where t errs most: most methods do too, and few studies show it."""
    worst = _skewed_error("t", problems, seeds, alpha, rng)
    return worst if method == "t" else _skewed_error(method, problems, seeds, alpha, rng, [worst.setting.discordance])


def _skewed_error(
    method: str, problems: int, seeds: int, alpha: float, rng: np.random.Generator, among: Sequence[float] | None = None
) -> TypeOneError:
    """Return the largest two-sided error where many problems gain a step and few lose all. among: discordances."""
    power.check_method(method, problems)

    def p_of(counts: NDArray[np.int64]) -> list[NDArray[np.float64]]:
        return [screened_p_values(method, counts, rng)]

    return _errors_of_kind(Setting(GAINS, 0.0), seeds, 0.0, problems, [alpha], rng, p_of, among)[0][0]


def errors_by_kind(
    method: str, problems: int, seeds: int, levels: Sequence[float], rng: np.random.Generator
) -> list[list[TypeOneError]]:
    """Return the largest errors as [kind][level]. Mirrored kinds are left out: two-sided errors are equal."""
    power.check_method(method, problems)
    return [
        _errors_of_kind(
            kind, seeds, 0.0, problems, levels, rng, lambda counts: [screened_p_values(method, counts, rng)]
        )[0]
        for kind in null_settings.kinds(seeds)
        if kind.kind != LOSSES
    ]


def worst_margin_error(
    method: str, problems: int, seeds: int, margin: float, levels: tuple[float, float], rng: np.random.Generator
) -> TypeOneError:
    """Return the larger error of the one-sided margin tests if the subject is worse by exactly the margin.

    levels: of "not worse by the margin", which is wrong there, and of "worse by more", which is wrong too. A
    rule that requires the first in every contrast errs no more often than one contrast does (Berger 1982),
    one that requires the second in any contrast no more often than all of them together.
    """
    worse, below = margin_errors_by_kind(method, problems, seeds, margin, levels, rng)
    return max([errors[0] for errors in worse] + [errors[1] for errors in below], key=lambda error: error.ratio)


def margin_errors_by_kind(
    method: str, problems: int, seeds: int, margin: float, levels: Sequence[float], rng: np.random.Generator
) -> tuple[list[list[TypeOneError]], list[list[TypeOneError]]]:
    """Return the largest errors of `MarginPValues.worse` and `.below`, each as [kind][level]."""
    power.check_method(method, problems)

    def p_of(counts: NDArray[np.int64]) -> list[NDArray[np.float64]]:
        return [*margin_tests.lower_margin_p(method, counts, margin)]

    both = [
        _errors_of_kind(kind, seeds, margin, problems, levels, rng, p_of)
        for kind in null_settings.kinds(seeds, margin=True)
    ]
    return [worse for worse, _ in both], [below for _, below in both]


def _errors_of_kind(
    kind: Setting,
    seeds: int,
    margin: float,
    problems: int,
    levels: Sequence[float],
    rng: np.random.Generator,
    p_of: Callable[[NDArray[np.int64]], list[NDArray[np.float64]]],
    among: Sequence[float] | None = None,
) -> list[list[TypeOneError]]:
    """Return the largest error of each test in populations of one kind, [test][level].

    p_of: the p of each test, from counts[study, 2 seeds + 1]. among: discordances to try in place of the grid.
    """

    def shares_at(discordance: float) -> NDArray[np.float64]:
        return null_populations.shares(kind._replace(discordance=discordance), seeds, margin)

    def tests_of(
        discordances: Sequence[float], levels: Sequence[float], studies: int
    ) -> tuple[StudyPool, list[NDArray[np.float64]]]:
        pool = make_pool([shares_at(discordance) for discordance in discordances], problems, levels, studies, rng)
        distinct, positions = np.unique(pool.counts, axis=0, return_inverse=True)
        return pool, [p[positions.ravel()] for p in p_of(distinct)]

    def estimate(test: int, share: float, level: float) -> TypeOneError:
        studies = ESTIMATE_STUDIES
        while True:
            pool, tests = tests_of([share], [level], studies)
            error = _error(kind._replace(discordance=share), pool, tests[test] <= level, level, shares_at(share))
            if not error.exceeds() or error.ratio_low > LIMIT or studies >= MOST_STUDIES:
                return error
            studies *= 4

    grid = list(among or null_populations.discordances(kind.kind, seeds))
    searched, p_values = tests_of(grid, levels, SEARCH_STUDIES)
    errors = []
    for test, p in enumerate(p_values):
        worst = [_search(searched, p <= level, grid, shares_at) for level in levels]
        pairs = list(zip(worst, levels, strict=True))
        if searched.studies:  # estimated anew: the largest of many estimates is too large
            errors.append([estimate(test, share, level) for share, level in pairs])
        else:
            errors.append(
                [
                    _error(kind._replace(discordance=share), searched, p <= level, level, shares_at(share))
                    for share, level in pairs
                ]
            )
    return errors


def _search(
    pool: StudyPool, hit: Hits, grid: Sequence[float], shares_at: Callable[[float], NDArray[np.float64]]
) -> float:
    """Return the worst discordance of the grid and, twice, between the neighbours of the worst one."""
    rates = {discordance: pool.rate(shares_at(discordance), hit).rate for discordance in grid}
    for _ in range(2 if len(grid) > 1 else 0):
        tried = sorted(rates)
        place = tried.index(max(tried, key=lambda discordance: rates[discordance]))
        ends = tried[max(0, place - 1)], tried[min(len(tried) - 1, place + 1)]
        for discordance in np.round(np.linspace(*ends, REFINED), 4).tolist():
            rates[discordance] = pool.rate(shares_at(discordance), hit).rate
    return max(rates, key=lambda discordance: rates[discordance])


def _error(setting: Setting, pool: StudyPool, hit: Hits, level: float, shares: NDArray[np.float64]) -> TypeOneError:
    rate, low, high = pool.rate(shares, hit)
    return TypeOneError(rate, rate / level, low / level, high / level, pool.studies, setting)


def screened_p_values(method: str, counts: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the p of counts[study, 2 seeds + 1], [study]; 1 for studies that are skipped."""
    is_near = np.ones(len(counts), dtype=bool)
    if len(counts) > SCREEN_ABOVE:
        is_near = power.p_values("t", counts, None, rng) <= SCREEN_P
    p = np.ones(len(counts))
    p[is_near] = power.p_values(method, counts[is_near], None, rng)
    return p
