"""A mean other than zero under the null, as every method tests it: against scipy, hand counts and shifts."""

import numpy as np
import pytest
from looped import looped
from scipy import stats

from analysis.stats import bootstrap, paired_tests
from analysis.stats.equivalence import tost
from analysis.stats.max_t import max_t
from analysis.stats.methods import METHODS
from analysis.stats.paired_tests import sign_flip, student_t


def study(problems: int, seed: int, seeds: int = 2) -> np.ndarray:
    """Differences in {-1, 0, 1}, [problem, seed]."""
    return np.random.default_rng(seed).choice([-1.0, 0.0, 1.0], (problems, seeds), p=[0.1, 0.6, 0.3])


COUNTING = [name for name in METHODS if name != "betting"]  # bets have a test of their own: test_betting


def by(method: str, difference: np.ndarray, null: float = 0.0, level: float = 0.95):
    return paired_tests.compare(method, difference, level=level, draws=4_000, rng=np.random.default_rng(3), null=null)


@pytest.mark.parametrize("null", [-0.03, 0.0, 0.11])
def test_student_is_scipys_one_sample_test_of_that_mean(null):
    difference = study(80, 1)
    assert student_t(difference, null=null).p == pytest.approx(stats.ttest_1samp(difference.mean(axis=1), null).pvalue)


@looped("method", METHODS)
def test_the_null_moves_p_and_not_the_mean(method):
    difference = study(90, 2)
    zero, high = by(method, difference), by(method, difference, null=0.6)
    assert by(method, difference, null=0.0) == zero
    assert high.mean == zero.mean
    assert high.p < 0.01
    assert by(method, difference, null=round(float(difference.mean()), 12)).p > 0.9


@looped("method", [name for name in METHODS if name != "max-t"])
@looped("end", ["low", "high"])
def test_p_falls_to_the_level_where_the_null_crosses_the_end_of_the_interval(method, end):
    difference = study(120, 4, seeds=3)
    at = getattr(by(method, difference), end)
    out, within = (-1e-2, 1e-2) if end == "low" else (1e-2, -1e-2)
    assert by(method, difference, null=at + out).p < 0.05 < by(method, difference, null=at + within).p


def test_sign_flips_about_a_null_are_those_of_shifted_differences():
    means = np.random.default_rng(5).uniform(-0.3, 0.6, (11, 1))
    found = sign_flip(means, draws=2**11, rng=np.random.default_rng(0), null=0.2)
    shifted = sign_flip(means - 0.2, draws=2**11, rng=np.random.default_rng(0))
    assert found.p == pytest.approx(shifted.p)
    assert (found.low, found.high) == pytest.approx((shifted.low + 0.2, shifted.high + 0.2))


def test_a_null_on_the_lattice_counts_on_both_sides():
    # Resampling (1, 0): sums 0, 1, 1, 2. A mean of one half is at or beyond either side in three of four.
    found = bootstrap.exact(np.array([[1.0], [0.0]]), null=0.5)
    assert found.p == 1.0
    # Four problems, one gained: a sum of 2 or more has the chance 1 - .75^4 - .75^3 = .2617.
    one = bootstrap.exact(np.array([[1.0], [0.0], [0.0], [0.0]]), null=0.5)
    assert one.p == pytest.approx(2 * (1 - 0.75**4 - 0.75**3))


def test_max_t_flips_what_differs_from_the_null_of_each_contrast():
    draw = np.random.default_rng(6)
    first, second = (draw.uniform(-0.4, 0.5, (40, 1)) for _ in range(2))
    nulls = [[0.1, -0.05]]
    found = max_t([[first, second]], rng=np.random.default_rng(0), nulls=nulls)[0]
    shifted = max_t([[first - 0.1, second + 0.05]], rng=np.random.default_rng(0))[0]
    for one, other, null in zip(found, shifted, nulls[0], strict=True):
        assert one.p == other.p
        assert (one.low, one.high) == pytest.approx((other.low + null, other.high + null), abs=1e-7)


@looped("method", COUNTING)
def test_where_all_problems_agree_p_is_the_chance_of_no_other_problem(method):
    # 40 problems without a difference: a mean of .05 takes 5 % of other ones, none seen with .95^40.
    tails = 2 if method in ("restricted-likelihood", "auto") else 1
    assert by(method, np.zeros((40, 2)), null=0.05).p == pytest.approx(tails * 0.95**40)
    # All at one third: a mean of zero takes a quarter of them at -1.
    third = by(method, np.tile([1.0, 0.0, 0.0], (20, 1)))
    assert third.p == pytest.approx(2 * 0.75**20)
    assert (third.low > 0) is (third.p <= 0.05)


def test_margins_need_not_be_as_far_on_both_sides():
    difference = study(90, 7)
    whole, lower, upper = (tost(difference, at) for at in ((-0.04, 0.3), 0.04, 0.3))
    assert whole[:4] == lower[:4]
    assert whole.p_better == upper.p_better
    assert tost(difference, (-0.3, 0.3)) == upper
    # A lower margin above zero: worse unless better by two points or more.
    assert tost(difference, (0.02, 0.3)).p_worse > lower.p_worse


@looped("outside", [(-1.2, 0.1), (-0.1, 1.2), (1.0, 1.0), (-1.0, -1.0)])
def test_margins_outside_the_possible_differences_are_refused(outside):
    with pytest.raises(ValueError, match="points, not percent"):
        tost(study(20, 1), outside)
