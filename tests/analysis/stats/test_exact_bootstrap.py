"""The exact bootstrap, against plain loops and the drawn one."""

import itertools

import numpy as np
import pytest

from analysis.stats import bootstrap, exact_resampling, power
from analysis.stats.interval import DegenerateDifference


def study(problems: int, seeds: int, seed: int, lost: float = 0.2) -> np.ndarray:
    draw = np.random.default_rng(seed)
    values = draw.choice([-1.0, 0.0, 1.0], (problems, seeds), p=[lost, 0.5, 0.5 - lost])
    values[0], values[1] = 1.0, 0.0
    return values


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_exact_interval_is_that_of_every_resample_written_out():
    difference = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0], [-1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    means = difference.mean(axis=1)
    every = np.sort([np.mean(each) for each in itertools.product(means, repeat=6)]).round(12)
    found = bootstrap.exact(difference)
    assert found.low == pytest.approx(every[np.ceil(0.025 * 6**6).astype(int) - 1])
    assert found.high == pytest.approx(every[np.ceil(0.975 * 6**6).astype(int) - 1])
    assert found.p == pytest.approx(2 * (every <= 0).mean())


@pytest.mark.parametrize(("problems", "seeds"), [(12, 1), (60, 3)])
def test_draws_tend_to_the_exact_bootstrap(problems, seeds):
    difference = study(problems, seeds, problems)
    exact = bootstrap.exact(difference)
    drawn = bootstrap.paired(difference, reps=60_000, rng=rng())
    step = 1 / (problems * seeds)
    assert drawn.mean == pytest.approx(exact.mean)
    assert (drawn.low, drawn.high) == pytest.approx((exact.low, exact.high), abs=1.01 * step)
    assert drawn.p == pytest.approx(exact.p, abs=0.01)


def test_many_studies_at_once_are_answered_one_by_one():
    counts = rng(2).multinomial(30, [0.1, 0.1, 0.5, 0.2, 0.1], 50)
    found = bootstrap.exact_limits(counts, level=0.9)
    for row, low, high, p in zip(counts, *found, strict=True):
        sums = np.repeat([-2, -1, 0, 1, 2], row)
        lanes = np.stack([np.sign(sums), np.where(np.abs(sums) == 2, np.sign(sums), 0)], axis=1)
        assert bootstrap.exact(lanes, level=0.9)[1:] == pytest.approx((low, high, p))


def test_an_exact_interval_excludes_zero_at_the_level_of_its_own_p():
    seen = 0
    for seed in range(30):
        difference = study(25, 2, seed, 0.2)
        p = bootstrap.exact(difference).p
        if not 1e-6 < p < 0.9:
            continue
        rejected, kept = (bootstrap.exact(difference, level=1 - p * near) for near in (1 + 1e-6, 1 - 1e-6))
        assert not rejected.low <= 0 <= rejected.high
        assert kept.low <= 0 <= kept.high
        seen += 1
    assert seen > 15


def test_the_exact_p_is_the_share_that_planning_uses():
    counts = rng(3).multinomial(60, [0.05, 0.1, 0.1, 0.5, 0.1, 0.1, 0.05], 40)
    planned = power.p_values("bootstrap", counts, 10**9, rng())
    assert bootstrap.exact_limits(counts).p == pytest.approx(planned, abs=1e-3)


def test_endless_draws_leave_no_p_below_the_sign_tests():
    all_won = np.array([[1.0, 1.0]] * 8 + [[1.0, 0.0]])
    assert bootstrap.exact(all_won).p == 2.0**-8


def test_the_chances_of_sums_are_those_of_a_plain_convolution():
    counts = np.array([[1, 2, 3], [0, 5, 1]])
    for row, found in zip(counts, exact_resampling.resampled_sum_pmf(counts), strict=True):
        expected = np.array([1.0])
        for _ in range(6):
            expected = np.convolve(expected, row / 6)
        assert found == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("times", [6, 400])
def test_the_tails_of_sums_are_those_of_a_plain_convolution(times):
    """Few large losses and many small gains; sums at the mean, in the tails, and as far away as they can be."""
    shares = np.array([[0.01, 0, 0, 0.95, 0.04, 0, 0], [0.1, 0.1, 0.1, 0.4, 0.1, 0.1, 0.1], [0, 0, 0, 1, 0, 0, 0]])
    for row in shares:
        chances = np.array([1.0])
        for _ in range(times):
            chances = np.convolve(chances, row)
        studies = np.tile(row, (exact_resampling.JUDGED + 1, 1))
        for observed in (-3 * times, -times // 10 - 9, 0, 2, times // 20, 3 * times):
            place = observed + 3 * times
            expected = chances[: place + 1].sum(), chances[place:].sum()
            for several in (studies, studies[:1]):
                found = exact_resampling.sum_tails(several, times, np.full(len(several), observed))[0]
                assert found == pytest.approx(expected, abs=5e-13, rel=1e-9)


def test_no_spread_is_answered_as_by_the_other_methods():
    for found in (bootstrap.exact(np.zeros((50, 2))), bootstrap.paired(np.zeros((50, 2)), rng=rng())):
        assert (found.mean, found.p) == (0.0, 1.0)
        assert found.high == pytest.approx(1 - 0.05 ** (1 / 50))


def test_what_cannot_be_counted_is_refused_by_name():
    with pytest.raises(DegenerateDifference, match="resample it with draws"):
        bootstrap.exact([[0.5], [0.25]])
    with pytest.raises(DegenerateDifference, match="not finite"):
        bootstrap.exact([[np.nan], [0.0]])
