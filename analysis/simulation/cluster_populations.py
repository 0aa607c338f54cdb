"""Null populations of problems in clusters of the planned sizes, and how often a method errs for one contrast there.

In a symmetric population each problem copies, with probability sqrt(rho), the answer that its cluster drew, and draws
its own otherwise: two problems of a cluster correlate by rho. In a skewed population whole clusters are lost at once,
and single problems are gained elsewhere. Clusters of one problem give the populations of `null_populations` exactly.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis.simulation import null_populations
from analysis.simulation.null_populations import GAINS, LOSSES, SYMMETRIC, Setting
from analysis.simulation.study_pool import LOOK_LEVEL
from analysis.simulation.type_one_error import LIMIT, TypeOneError
from analysis.stats import betting, cluster_robust, power
from analysis.stats.interval import clopper_pearson

Floats = NDArray[np.float64]
CORRELATIONS = (0.0, 0.3, 1.0)
DISCORDANCES = (0.02, 0.05, 0.1, 0.2, 0.4)  # shares of answers that differ, of symmetric populations
TOTAL_LOSSES = (0.003, 0.005, 0.01, 0.02, 0.05, 0.1)  # shares of clusters that are lost
FIRST_STUDIES, STUDIES, MOST_STUDIES = 1_000, 8_000, 128_000  # in every setting, in the worst ones, and at most there
WORST_SETTINGS = 6  # simulated further: by few studies none is surely the worst
BLOCK = 2_000  # studies in memory at a time
NEAR_P = 0.35  # studies that t finds less significant are not tested by methods that draw
MAX_DRAWS = 20_000


class ClusterSetting(NamedTuple):
    """A null population of problems in clusters. correlation: of two problems of a cluster, if symmetric."""

    problems: Setting
    correlation: float

    @property
    def loss_kind(self) -> str:
        return self.problems.loss_kind

    def __str__(self) -> str:
        if self.problems.kind == SYMMETRIC:
            return f"{self.problems}, and problems of a cluster correlate by {self.correlation:g}"
        return f"{self.problems}, by whole clusters"


def cluster_settings(seeds: int, *, margin: bool = False) -> list[ClusterSetting]:
    """Return the settings. Mirrored ones are left out without a margin: two-sided errors are equal."""
    found = []
    for kind in null_populations.kinds(max(seeds, 2), margin=margin):
        if kind.kind == SYMMETRIC:
            found += [
                ClusterSetting(kind._replace(discordance=share), correlation)
                for share in DISCORDANCES
                for correlation in CORRELATIONS
            ]
        elif margin or kind.kind == GAINS:
            found += [
                ClusterSetting(kind._replace(discordance=min(0.98, round(lost * (seeds + 1), 4))), 0.0)
                for lost in TOTAL_LOSSES
            ]
    return found


def draw_cluster_means(
    setting: ClusterSetting,
    sizes: NDArray[np.int64],
    seeds: int,
    studies: int,
    rng: np.random.Generator,
    margin: float = 0.0,
) -> Floats:
    """Return the mean difference of each cluster, [study, cluster]. sizes: [cluster], problems of each."""
    shares = null_populations.shares(setting.problems, seeds, margin)
    steps = np.arange(-seeds, seeds + 1) / seeds
    size = (studies, len(sizes))
    if setting.problems.kind == SYMMETRIC:
        copies = rng.binomial(sizes, np.sqrt(setting.correlation), size)
        common = rng.choice(steps, size, p=shares)
        alike: Floats = (copies * common + _draw_sums(sizes - copies, shares, rng)) / sizes
        return alike
    place = {GAINS: 0, LOSSES: 2 * seeds}[setting.problems.kind]
    single = shares.copy()
    single[place] = 0
    is_whole = rng.random(size) < shares[place]
    drawn = _draw_sums(np.broadcast_to(sizes, size), single / single.sum(), rng) / sizes
    means: Floats = np.where(is_whole, steps[place], drawn)
    return means


def _draw_sums(counts: NDArray[np.int64], shares: Floats, rng: np.random.Generator) -> Floats:
    """Return the sum of `counts`[study, cluster] differences of problems, by their shares[2 seeds + 1]. Only those that
    differ are drawn, since most do not.
    """
    steps = np.linspace(-1, 1, len(shares))
    differs = steps != 0
    differing = rng.binomial(counts, min(1.0, shares[differs].sum()))
    drawn = rng.choice(steps[differs], differing.sum(), p=shares[differs] / shares[differs].sum())
    clusters = np.repeat(np.arange(differing.size), differing.ravel())
    sums: Floats = np.bincount(clusters, drawn, differing.size).astype(np.float64)
    return sums.reshape(counts.shape)


def cluster_tails(
    method: str, means: Floats, sizes: NDArray[np.int64], null: float, draws: int, rng: np.random.Generator
) -> Floats:
    """Return the p of a mean of at most `null` and of at least `null` as the judge computes them, [study, 2].

    means: [study, cluster]. Flips and resamples are shared by the studies; max-t is the sign-flip test of one contrast.
    """
    clusters, problems = len(sizes), sizes.sum()
    mean = means @ sizes / problems
    values = mean[:, None] + clusters / problems * sizes * (means - mean[:, None])
    error = np.maximum(values.std(axis=1, ddof=1), 1e-9) / np.sqrt(clusters)
    tails = stats.t.sf(np.stack([mean - null, null - mean], axis=1) / error[:, None], clusters - 1)
    if method == "t":
        return np.asarray(tails)
    if method == "cr2":
        robust = cluster_robust.robust_mean(means, sizes.astype(float))
        distance = (robust.mean - null) / np.maximum(robust.error, 1e-9)
        return np.asarray(stats.t.sf(np.stack([distance, -distance], axis=1), robust.freedom))
    near = np.flatnonzero(tails.min(axis=1) <= NEAR_P / 2)
    p = np.ones((len(means), 2))
    match method:
        case "betting":
            p[near] = betting.one_sided_p(means[near], null, sizes.astype(float))
        case "sign-flip" | "max-t":
            shifted = values[near] - null if method == "max-t" else sizes * (means[near] - null)
            is_exact = 2.0**clusters <= draws  # as the judge flips them
            bits = np.arange(2**clusters)[:, None] >> np.arange(clusters) & 1 if is_exact else None
            signs = 2.0 * (rng.integers(0, 2, (draws, clusters)) if bits is None else bits) - 1
            flipped, observed = signs @ shifted.T, shifted.sum(axis=1)
            p[near] = np.stack(
                [(flipped >= observed - 1e-9).mean(axis=0), (flipped <= observed + 1e-9).mean(axis=0)], axis=1
            )
        case "bootstrap":
            resampled = rng.multinomial(clusters, np.full(clusters, 1 / clusters), draws) / clusters @ values[near].T
            p[near] = np.stack(
                [(resampled <= null + 1e-12).mean(axis=0), (resampled >= null - 1e-12).mean(axis=0)], axis=1
            )
        case _:
            raise ValueError(f"method: {method} does not take clusters")
    return p


def worst_error_of_clusters(
    method: str,
    sizes: Sequence[int],
    seeds: int,
    levels: tuple[float, float],
    rng: np.random.Generator,
    margin: float | None = None,
) -> TypeOneError:
    """Return the largest error of a method for one contrast over the settings.

    levels: without a margin both are that of the two-sided test; with one, of "not worse by the margin" and of "worse
    by more", as in `type_one_error.worst_margin_error`. The worst settings are simulated until their error is known to
    be below LIMIT or above it. A method that surely errs where t errs most, as most do, is tried nowhere else.
    """
    counts = np.asarray(sizes, dtype=np.int64)
    candidates = cluster_settings(seeds, margin=margin is not None)
    estimate = partial(_estimate, sizes=counts, seeds=seeds, levels=levels, margin=margin, rng=rng)

    def find_worst(method: str) -> list[ClusterSetting]:
        first = [estimate(method, setting=setting, studies=FIRST_STUDIES) for setting in candidates]
        return [error.setting for error in sorted(first, key=lambda error: -error.ratio)[:WORST_SETTINGS]]

    def settle(setting: ClusterSetting) -> TypeOneError:
        studies = STUDIES
        while True:
            error = estimate(method, setting=setting, studies=studies)
            if not error.exceeds() or error.ratio_low > LIMIT or studies >= MOST_STUDIES:
                return error
            studies *= 4

    worst = find_worst("t")
    if method != "t":
        error = estimate(method, setting=worst[0], studies=FIRST_STUDIES)
        if error.ratio_low > LIMIT:
            return error
        worst = find_worst(method)
    errors = []
    for setting in worst:
        errors.append(settle(setting))
        if errors[-1].ratio_low > LIMIT:
            break
    return max(errors, key=lambda error: error.ratio_high)


def _estimate(
    method: str,
    *,
    sizes: NDArray[np.int64],
    seeds: int,
    levels: tuple[float, float],
    margin: float | None,
    setting: ClusterSetting,
    studies: int,
    rng: np.random.Generator,
) -> TypeOneError:
    rejected = np.zeros(2)
    draws = min(MAX_DRAWS, power.draws_needed(min(levels)))
    for start in range(0, studies, BLOCK):
        count = min(BLOCK, studies - start)
        means = draw_cluster_means(setting, sizes, seeds, count, rng, margin or 0.0)
        tails = cluster_tails(method, means, sizes, -(margin or 0.0), draws, rng)
        if margin is None:
            rejected += (2 * tails.min(axis=1) <= levels[0]).sum()
        else:
            rejected += (tails <= levels).sum(axis=0)
    errors = []
    for count, level in zip(rejected.astype(int).tolist(), levels, strict=True):
        low, high = clopper_pearson(count, studies, LOOK_LEVEL)
        share = count / studies
        errors.append(TypeOneError(share, share / level, low / level, high / level, studies, setting))
    return max(errors, key=lambda error: error.ratio)
