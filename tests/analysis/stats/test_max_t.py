"""The max-t method, against a plain enumeration of every joint sign flip and the families it is made for."""

import itertools

import numpy as np
import pytest
from scipy import stats

from analysis.stats.interval import DegenerateDifference
from analysis.stats.max_t import max_t
from analysis.stats.paired_tests import sign_flip, student_t


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def family(problems: int, contrasts: int, seed: int, shift: float = 0.0) -> list[np.ndarray]:
    """Contrasts of one subject, not on a lattice."""
    draw = rng(seed)
    subject = draw.uniform(0, 0.5, (problems, 1))
    return [np.clip(subject - draw.uniform(0, 0.5, (problems, 1)) + shift, -1, 1) for _ in range(contrasts)]


def plain(differences: list[np.ndarray]) -> list[float]:
    """Adjusted p: over all joint sign flips, the share whose largest |t| reaches the contrast's."""
    means = np.concatenate(differences, axis=1)
    observed = np.abs(stats.ttest_1samp(means, 0).statistic)
    reached = np.zeros(means.shape[1])
    signs = list(itertools.product([1.0, -1.0], repeat=len(means)))
    for each in signs:
        largest = np.abs(stats.ttest_1samp(means * np.array(each)[:, None], 0).statistic).max()
        reached += largest >= observed - 1e-9
    return (reached / len(signs)).tolist()


@pytest.mark.parametrize("seed", range(3))
def test_p_is_the_share_of_joint_flips_that_reach_it(seed):
    differences = family(9, 3, seed, 0.08)
    found = max_t([differences], draws=40_000, rng=rng())[0]
    assert [one.p for one in found] == pytest.approx(plain(differences), abs=0.012)


def test_one_contrast_alone_is_the_sign_flip_test():
    difference = family(40, 1, 1, 0.05)[0]
    alone = max_t([[difference]], draws=40_000, rng=rng())[0][0]
    assert alone.p == pytest.approx(sign_flip(difference, draws=40_000, rng=rng()).p, abs=0.01)


def test_the_interval_is_students_with_a_wider_reach():
    differences = family(60, 4, 2, 0.04)
    for one, difference in zip(max_t([differences], rng=rng())[0], differences, strict=True):
        alone, bonferroni = student_t(difference), student_t(difference, level=1 - 0.05 / 4)
        assert one.mean == pytest.approx(alone.mean)
        assert one.high - one.mean == pytest.approx(one.mean - one.low)
        assert alone.high < one.high < 1.05 * (bonferroni.high - one.mean) + one.mean


def test_copies_of_a_contrast_cost_nothing_and_independent_groups_cost_bonferroni():
    one = family(80, 1, 3, 0.03)[0]
    alone = max_t([[one]], draws=20_000, rng=rng())[0][0]
    copies = max_t([[one] * 12], draws=20_000, rng=rng())[0]
    assert len(set(copies)) == 1
    assert copies[0] == pytest.approx(alone, abs=0.006)
    apart = max_t([[one], *([other] for other in family(80, 11, 4))], draws=20_000, rng=rng())[0][0]
    sidak = student_t(one, level=0.95 ** (1 / 12))
    assert (apart.low, apart.high) == pytest.approx((sidak.low, sidak.high), abs=0.004)


@pytest.mark.parametrize("level", [0.95, 0.8])
def test_the_interval_excludes_zero_exactly_when_p_is_at_most_one_minus_level(level):
    seen = set()
    for seed in range(80):
        draw = rng(seed)  # few problems on a lattice: ties with the bound are common
        differences = [draw.choice([-1.0, 0, 1], (8, 1), p=[0.1, 0.3, 0.6]) for _ in range(2)]
        for one in max_t([differences], level=level, draws=199, rng=rng(seed))[0]:
            excludes = not one.low <= 0 <= one.high
            assert excludes == (one.p <= 1 - level + 1e-12), (seed, one)
            seen.add(excludes)
    assert seen == {True, False}


def test_too_few_draws_bound_nothing():
    found = max_t([family(30, 2, 0, 0.2)], draws=18, rng=rng())[0][0]
    assert (found.low, found.high, found.p) == (-1.0, 1.0, pytest.approx(1 / 19))


def test_blocks_of_signs_are_one_sample(monkeypatch):
    differences = family(30, 2, 5, 0.03)
    whole = max_t([differences], draws=20_000, rng=rng())[0]
    monkeypatch.setattr("analysis.stats.max_t.BLOCK", 30 * 7)
    small = max_t([differences], draws=20_000, rng=rng())[0]
    assert [one.p for one in small] == pytest.approx([one.p for one in whole], abs=0.015)


def test_a_contrast_without_spread_is_answered_at_its_bonferroni_level():
    moving = family(50, 1, 0)[0]
    still = max_t([[moving, np.zeros((50, 1))]], rng=rng())[0][1]
    assert (still.mean, still.p) == (0.0, 1.0)
    assert still.high == pytest.approx(1 - 0.025 ** (1 / 50))
    assert max_t([[np.ones((9, 1))]], rng=rng())[0][0].p == 2.0**-8


def test_what_is_no_family_is_refused_by_name():
    with pytest.raises(DegenerateDifference, match="empty family"):
        max_t([], rng=rng())
    with pytest.raises(DegenerateDifference, match="must have the same problems"):
        max_t([[np.zeros((5, 1)), np.zeros((6, 1))]], rng=rng())
    with pytest.raises(DegenerateDifference, match="must have the same problems"):
        max_t([[]], rng=rng())
    with pytest.raises(DegenerateDifference, match="not finite"):
        max_t([[np.array([[np.nan], [0.0]])]], rng=rng())
