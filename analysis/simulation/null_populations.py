"""Null populations: distributions of seed differences if no arm is better, or one is worse by the margin.

Evictions that change little make few answers differ, and unevenly: many problems gain a seed and few lose all
of them. A method has to keep its level in each of these settings.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import special

from analysis.simulation.null_settings import GAINS, SYMMETRIC, TOTAL, Setting

SYMMETRIC_RANGE = (0.003, 0.45)  # shares of answers that differ
TOTAL_RANGE = (0.001, 0.15)  # shares of problems that lose all seeds while others gain one
GRID_SIZE = 24
# Scores lie on a lattice of so many steps: 60 % of the problems gain 0.013 where 1 % lose 0.8.
SCORE_STEPS = 60


def discordances(kind: str, seeds: int) -> list[float]:
    """Return a dense grid of discordances of this kind, in ascending order."""
    low, high = SYMMETRIC_RANGE if kind == SYMMETRIC else (end * (seeds + 1) for end in TOTAL_RANGE)
    return [round(share, 4) for share in np.geomspace(low, min(high, 0.98), GRID_SIZE).tolist()]


def shares(setting: Setting, seeds: int, margin: float = 0.0) -> NDArray[np.float64]:
    """Return the probabilities that a problem's seeds (solved by the subject minus solved by the comparator)
    sum to -seeds, ..., seeds, [2 seeds + 1]. Their mean is zero, or -margin.

    Symmetric: the probability to solve a problem is drawn from Beta(a, a), with many easy and many hard
    problems, and is the same for both arms; seeds are independent given it. a / (2a + 1) is the share of
    answers that differ. Many small losses: each correct answer of the subject is lost with probability 2 x
    margin.

    Otherwise a problem that is lost to the margin does not differ elsewhere: few total losses are all seeds
    of a share `margin` of the problems, small ones one seed of a share `seeds` x margin (up to one half).
    """
    if setting.kind == SYMMETRIC and setting.loss_kind != TOTAL:
        return _beta_binomial_shares(setting.discordance, seeds, 1 - 2 * margin)
    if setting.kind == SYMMETRIC:
        chances = _beta_binomial_shares(setting.discordance, seeds, 1.0)
    else:
        chances, total = np.zeros(2 * seeds + 1), setting.discordance / (seeds + 1)
        side = 1 if setting.kind == GAINS else -1
        chances[seeds + side], chances[seeds - side * seeds] = seeds * total, total
        chances[seeds] += 1 - chances.sum()
    lost = seeds if setting.loss_kind == TOTAL or margin * seeds > 0.5 else 1
    share = margin * seeds / lost
    chances *= 1 - share
    chances[seeds - lost] += share
    return chances


def _beta_binomial_shares(discordance: float, seeds: int, kept_share: float) -> NDArray[np.float64]:
    """Return the shares if both arms solve a problem with one probability from Beta(a, a), of which the
    subject retains `kept_share`.

    The integrands are polynomials of degree at most 2 seeds, which Gauss-Jacobi quadrature integrates
    exactly.
    """
    a = discordance / (1 - 2 * discordance)
    nodes, weights = special.roots_jacobi(seeds + 1, a - 1, a - 1)
    chance = (1 + nodes) / 2
    subject_solved, comparator_solved = (
        _binomial_pmf(seeds, node_chance) for node_chance in (kept_share * chance, chance)
    )
    joint = np.einsum("n,no,ns->os", weights / weights.sum(), subject_solved, comparator_solved)
    diagonals = np.array([joint.trace(-offset) for offset in range(-seeds, seeds + 1)])
    shares: NDArray[np.float64] = np.maximum(diagonals, 0) / diagonals.sum()
    return shares


def _binomial_pmf(seeds: int, chance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return binomial probabilities, [node, solved]."""
    solved = np.arange(seeds + 1)
    probabilities: NDArray[np.float64] = special.comb(seeds, solved) * (
        chance[:, None] ** solved * (1 - chance[:, None]) ** (seeds - solved)
    )
    return probabilities
