import numpy as np
import pytest

from analysis.isocache import Reference, interpolated, matched, per_problem


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


# ---------------------------------------------------------------- problem by problem


def test_the_share_of_matched_problems_by_hand():
    # 110 / 100, 90 / 100 and 101 / 100: the last alone is within 2 %.
    found = per_problem([[100, 120], [90, 90], [101, 101]], [[100, 100]] * 3, tolerance=0.02)
    assert found.ratio == pytest.approx((1.1 + 0.9 + 1.01) / 3)
    assert found.within == pytest.approx(1 / 3)


def test_on_the_whole_matched_is_not_matched_on_every_problem():
    slots = [[110.0], [90.0]], [[100.0], [100.0]]
    assert matched(*slots, tolerance=0.02).matched
    assert per_problem(*slots, tolerance=0.02).within == 0


# ---------------------------------------------------------------- interpolation


def reference(correct, slots):
    correct = np.array(correct, dtype=float)
    return Reference(correct, np.full(correct.shape, float(slots)))


LOW = reference([[0, 0], [0, 1], [0, 0]], 60)
HIGH = reference([[1, 1], [0, 1], [0, 1]], 120)


@pytest.mark.parametrize(
    ("slots", "weight", "expected"),
    [
        (60, 0.0, [0, 0.5, 0]),  # the lower reference itself
        (120, 1.0, [1, 0.5, 0.5]),
        (75, 0.25, [0.25, 0.5, 0.125]),
        (90, 0.5, [0.5, 0.5, 0.25]),
    ],
)
def test_the_comparator_is_interpolated_linearly_by_hand(slots, weight, expected):
    subject = np.array([[1, 1], [1, 0], [0, 0]], dtype=float)
    found = interpolated(subject, np.full((3, 2), float(slots)), [HIGH, LOW])  # in any order
    assert found.difference == pytest.approx(np.array([1, 0.5, 0]) - expected)
    assert found.weight == pytest.approx(weight)
    assert (found.below, found.above) == (1, 0)


def test_the_weight_is_that_of_the_mean_slots_and_not_of_a_problem():
    # 30 + 90 + 105 over three problems is 75 on average, as above.
    found = interpolated(np.zeros((3, 1)), [[30.0], [90.0], [105.0]], [LOW, HIGH])
    assert found.weight == pytest.approx(0.25)
    assert found.difference == pytest.approx([-0.25, -0.5, -0.125])


def test_the_neighbouring_references_are_used():
    far = reference([[0, 0]] * 3, 10)
    found = interpolated(np.zeros((3, 1)), [[90.0]] * 3, [far, HIGH, LOW])
    assert (found.below, found.above) == (2, 1)


@pytest.mark.parametrize("slots", [59.0, 121.0])
def test_outside_the_references_nothing_is_estimated(slots):
    assert interpolated(np.zeros((3, 1)), [[slots]] * 3, [LOW, HIGH]) is None


def test_one_reference_or_two_alike_bracket_nothing():
    subject = np.zeros((3, 1)), [[60.0]] * 3
    assert interpolated(*subject, [LOW]) is None
    assert interpolated(*subject, [LOW, LOW]) is None
