"""Intervals of ratios over repetitions: by hand, and how often they hold what is true."""

import math

import numpy as np
import pytest

from analysis.stats.paired_ratios import geometric_mean, paired_ratio


def test_three_repetitions_by_hand():
    """Logarithms 0, 1 and 2: mean 1, standard error 1 / sqrt(3), and t of 2 degrees of freedom 4.302653."""
    level = geometric_mean([1, math.e, math.e**2])
    reach = 4.302653 / math.sqrt(3)
    assert level.mean == pytest.approx(math.e)
    assert (level.low, level.high) == pytest.approx((math.exp(1 - reach), math.exp(1 + reach)))
    assert level.repetitions == 3


def test_what_slows_a_whole_repetition_down_cancels():
    slow = np.array([1.0, 7.0, 2.0, 40.0])
    ratio = paired_ratio(3 * slow, slow)
    assert ratio[:3] == pytest.approx((3, 3, 3))
    assert paired_ratio(slow, 3 * slow).mean == pytest.approx(1 / 3)


@pytest.mark.parametrize("values", [[5.0], [5.0, 6.0]])
def test_too_few_repetitions_have_a_mean_and_no_interval(values):
    level = geometric_mean(values)
    assert level.mean == pytest.approx(math.prod(values) ** (1 / len(values)))
    assert (level.low, level.high) == (None, None)


@pytest.mark.parametrize("values", [[], [1, 0, 2], [1, -1, 2], [1, math.inf, 2], [[1, 2]]])
def test_what_no_clock_gives_is_refused(values):
    with pytest.raises(ValueError, match="values: "):
        geometric_mean(values)


def test_others_are_paired_by_repetition():
    with pytest.raises(ValueError, match="pair them"):
        paired_ratio([1, 2, 3], [1, 2])


def test_five_repetitions_hold_the_truth_as_often_as_they_say_and_a_percentile_interval_does_not():
    rng = np.random.default_rng(7)
    studies = rng.normal(size=(2000, 5))
    held = [level.low < 1 < level.high for level in map(geometric_mean, np.exp(studies))]
    assert 0.94 <= np.mean(held) <= 0.96
    means = studies[np.arange(2000)[:, None, None], rng.integers(0, 5, (2000, 400, 5))].mean(-1)
    low, high = np.quantile(means, (0.025, 0.975), axis=1)
    assert 0.80 <= np.mean((low < 0) & (high > 0)) <= 0.86
