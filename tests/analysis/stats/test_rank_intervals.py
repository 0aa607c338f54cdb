"""Simultaneous intervals of ranks: by hand, by the pairwise intervals, and how often they miss."""

import numpy as np
import pytest

from analysis.stats.interval import DegenerateDifference
from analysis.stats.rank_intervals import RankedArms, rank_arms


def rank(*arms, seed=0, draws=999):
    group = RankedArms([np.asarray(arm, dtype=float)[:, None] for arm in arms])
    return rank_arms([group], draws=draws, rng=np.random.default_rng(seed))[0]


def test_ranks_of_arms_that_differ_everywhere_and_nowhere():
    right, half, wrong = np.ones(60), np.tile([1, 0], 30), np.zeros(60)
    assert [(arm.first, arm.last) for arm in rank(half, right, wrong)] == [(2, 2), (1, 1), (3, 3)]
    assert [(arm.first, arm.last) for arm in rank(half, half, half)] == 3 * [(1, 3)]
    assert [(arm.first, arm.last) for arm in rank(right, half, half)] == [(1, 1), (2, 3), (2, 3)]
    assert [arm.mean for arm in rank(half, right)] == [0.5, 1.0]


def test_groups_are_one_family():
    """A difference that is significant alone is not beside many groups of noise."""
    rng = np.random.default_rng(3)
    arms = [np.array([*np.ones(8), *np.zeros(52)])[:, None], np.array([*np.zeros(8), *np.zeros(51), 1.0])[:, None]]
    noise = [[rng.integers(0, 2, (60, 1)).astype(float) for _ in range(6)] for _ in range(4)]
    alone = rank_arms([RankedArms(arms)], draws=1999, rng=np.random.default_rng(0))[0]
    beside = rank_arms([RankedArms(arms), *map(RankedArms, noise)], draws=1999, rng=np.random.default_rng(0))[0]
    assert [(arm.first, arm.last) for arm in alone] == [(1, 1), (2, 2)]
    assert [(arm.first, arm.last) for arm in beside] == 2 * [(1, 2)]


def test_true_ranks_are_missed_in_no_more_studies_than_the_level_says():
    """Four arms, two of them equal: an interval has to hold every rank that a tie may be given. 200 studies at 80 %."""
    chances, true = (0.3, 0.5, 0.5, 0.6), [(4, 4), (2, 3), (2, 3), (1, 1)]
    rng, missed = np.random.default_rng(5), 0
    for _ in range(200):
        arms = [(rng.random((80, 1)) < chance).astype(float) for chance in chances]
        ranks = rank_arms([RankedArms(arms)], level=0.8, draws=199, rng=rng)[0]
        missed += any(arm.first > first or arm.last < last for arm, (first, last) in zip(ranks, true, strict=True))
    assert missed <= 0.2 * 200 + 3 * (0.2 * 0.8 * 200) ** 0.5


def test_one_arm_has_no_rank():
    with pytest.raises(DegenerateDifference):
        rank(np.ones(4))
