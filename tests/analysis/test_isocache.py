import numpy as np
import pytest

from analysis.isocache import matched


def test_the_ratio_is_that_of_the_mean_slots_by_hand():
    # Problem means 110 and 90 against 100 and 100: equal on the whole, 10 % apart on the worst problem.
    found = matched([[100, 120], [90, 90]], [[100, 100], [90, 110]], tolerance=0.02)
    assert found.ratio == pytest.approx(1.0)
    assert found.worst == pytest.approx(0.9)  # log(0.9) is further from 0 than log(1.1)
    assert found.matched is True


@pytest.mark.parametrize(
    ("subject", "fair"), [(102.0, True), (102.1, False), (100 / 1.02, True), (97.9, False), (100.0, True)]
)
def test_neither_arm_may_hold_more_than_the_tolerance_above_the_other(subject, fair):
    assert matched([[subject]] * 3, [[100.0]] * 3, tolerance=0.02).matched is fair


def test_a_wider_tolerance_is_wider():
    slots = [[110.0]], [[100.0]]
    assert [matched(*slots, tolerance=tolerance).matched for tolerance in (0.05, 0.1)] == [False, True]


def test_one_problem_far_away_does_not_decide_but_is_reported():
    subject = np.full((100, 1), 200.0)
    subject[7] = 100.0
    found = matched(subject, np.full((100, 1), 200.0), tolerance=0.02)
    assert found.worst == 0.5
    assert found.ratio == pytest.approx(0.995)
    assert found.matched


def test_a_long_problem_weighs_by_its_slots():
    # 30 + 300 over 10 + 300: the ratio of the means, not the mean 2 of the ratios 3 and 1.
    assert matched([[30.0], [300.0]], [[10.0], [300.0]], tolerance=0.1).ratio == pytest.approx(330 / 310)


@pytest.mark.parametrize(
    ("subject", "comparator", "says"),
    [
        ([[1.0], [2.0]], [[1.0]], r"shapes \(2, 1\) and \(1, 1\)"),
        ([1.0], [1.0], r"shapes \(1,\) and \(1,\)"),
        (np.empty((0, 1)), np.empty((0, 1)), "same .problem, seed."),
        ([[0.0]], [[1.0]], "not positive and finite"),
        ([[1.0]], [[-1.0]], "not positive and finite"),
        ([[np.nan]], [[1.0]], "not positive and finite"),
        ([[1.0]], [[np.inf]], "not positive and finite"),
    ],
)
def test_slots_that_were_not_measured_are_refused(subject, comparator, says):
    with pytest.raises(ValueError, match=says):
        matched(subject, comparator, tolerance=0.02)
