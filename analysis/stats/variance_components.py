"""Where the variance of a paired difference comes from, problems or seeds, and what more of either would buy.

An answer is its arm's mean, an effect of the problem and one of the seed within it, each with one variance
an arm and one correlation between the arms. From the balanced layout [problem, seed] of both arms, by the
method of moments (Searle, Casella & McCulloch 1992, section 4.3, with the products of the two arms beside
their squares).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from analysis.stats.interval import DegenerateDifference

__all__ = ["Components", "components", "power_at", "smallest_effect"]


class Components(NamedTuple):
    """Variances in squared points. An estimate of a small variance may be negative; it is left so, since a
    mean over contrasts would otherwise be biased. Correlations are NaN where an arm shows no variance.
    """

    problem: float  # of the difference, between problems
    seed: float  # of the difference, between seeds of one problem
    problem_own: float
    problem_other: float
    problem_correlation: float  # of the arms' problem effects
    seed_own: float
    seed_other: float
    seed_correlation: float  # of the arms' answers with one seed, beside the problem's

    def variance(self, problems: int, seeds: int) -> float:
        """Of the mean difference over so many problems and seeds; at least 0."""
        return max(0.0, self.problem + self.seed / seeds) / problems

    @property
    def share_of_seeds(self) -> float:
        """Of the variance with one seed, what more seeds could take away."""
        return self.seed / (self.problem + self.seed)


def components(own: ArrayLike, other: ArrayLike) -> Components:
    """From the scores of both arms, [problem, seed] each, problems and seeds in one order.

    Raises DegenerateDifference for another shape, unequal shapes, fewer than two problems or seeds, a value
    that is not finite, and differences that are all the same.
    """
    scores = [np.asarray(arm, dtype=np.float64) for arm in (own, other)]
    if scores[0].shape != scores[1].shape or scores[0].ndim != 2:
        raise DegenerateDifference(
            f"own, other: shapes {scores[0].shape}, {scores[1].shape}; pass [problem, seed] of the same lanes"
        )
    both = np.stack(scores)  # [arm, problem, seed]
    _, problems, seeds = both.shape
    if problems < 2 or seeds < 2:
        raise DegenerateDifference(
            f"{problems} problem(s), {seeds} seed(s): two of each tell their variances apart"
        )
    if not np.isfinite(both).all():
        raise DegenerateDifference("own, other: a score is not finite; decide on missing first")
    if np.ptp(both[0] - both[1]) == 0:
        raise DegenerateDifference("own, other: every lane differs alike; there is no variance to divide")
    means = both.mean(axis=2)
    apart = (both - means[:, :, None]).reshape(2, -1)
    within = apart @ apart.T / (problems * (seeds - 1))
    between = np.cov(means) - within / seeds
    sign = np.array([1.0, -1.0])
    return Components(
        float(sign @ between @ sign),
        float(sign @ within @ sign),
        *_parts(between),
        *_parts(within),
    )


def _parts(matrix: NDArray[np.float64]) -> tuple[float, float, float]:
    """Both variances and the correlation."""
    own, other = float(matrix[0, 0]), float(matrix[1, 1])
    product = own * other if min(own, other) > 1e-15 else np.nan
    return own, other, float(np.clip(matrix[0, 1] / np.sqrt(product), -1, 1))


def power_at(effect: float, variance: float, problems: int, alpha: float = 0.05) -> float:
    """How often Student's t on problem means finds `effect` (points), two-sided at alpha, by the noncentral
    t.

    variance: of the mean difference, `Components.variance`; normal problem means are assumed.
    """
    freedom = problems - 1
    reach, shift = stats.t.ppf(1 - alpha / 2, freedom), effect / np.sqrt(variance)
    return float(stats.nct.sf(reach, freedom, shift) + stats.nct.cdf(-reach, freedom, shift))


def smallest_effect(variance: float, problems: int, alpha: float = 0.05, power: float = 0.8) -> float:
    """The true difference (points) found with this power, the other error's share being negligible."""
    freedom = problems - 1
    reach = stats.t.ppf(1 - alpha / 2, freedom) + stats.t.ppf(power, freedom)
    return float(reach * np.sqrt(variance))
