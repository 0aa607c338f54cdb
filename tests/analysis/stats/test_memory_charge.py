"""What unequal memory could have bought, by hand."""

import math

import numpy as np
import pytest

from analysis.stats import equivalence
from analysis.stats.comparison import Comparison
from analysis.stats.memory_charge import Charge, CurvePoint, charge_memory, nearest_null, tost, widen_interval
from analysis.stats.paired_tests import student_t

HERE = CurvePoint(100.0, 0.5)


def test_an_excess_pays_twice_the_steepest_chord_beside_the_budget():
    # 0.45 in 30 slots above, 0.5 in 50 below: 0.015 and 0.01 a slot, of 100 slots 1.5; twice that, for 1 %.
    found = charge_memory(
        101.0, HERE, [CurvePoint(130.0, 0.95), CurvePoint(50.0, 0.0), CurvePoint(10.0, 0.0), CurvePoint(400.0, 1.0)]
    )
    assert found == pytest.approx(Charge(0.01, 0.015, 1.3, 0.03))
    # The neighbour below is the steeper one.
    assert charge_memory(101.0, HERE, [CurvePoint(130.0, 0.6), CurvePoint(80.0, 0.1)]).points == pytest.approx(0.04)


def test_a_flat_curve_and_a_falling_one_cost_two_points_for_one_percent():
    # At least: twice the chord from an empty cache to one that is always right.
    for above in (0.5, 0.2, 0.9):
        assert charge_memory(101.0, HERE, [CurvePoint(200.0, above)]).points == pytest.approx(0.02)


def test_a_shortfall_is_charged_the_other_way_and_equal_memory_not_at_all():
    curve = [CurvePoint(130.0, 0.95)]
    assert charge_memory(99.0, HERE, curve).points == pytest.approx(-0.03)
    assert charge_memory(100.0, HERE, curve).points == 0
    assert charge_memory(100.0, HERE, []) == Charge(0.0, None, None, 0.0)


def test_where_no_slope_was_measured_more_memory_may_have_bought_everything():
    assert charge_memory(100.1, HERE, []) == pytest.approx(Charge(0.001, None, None, math.inf))
    assert charge_memory(99.9, HERE, []).points == -math.inf
    # 4 % apart is no chord, 6 % is one.
    assert charge_memory(101.0, HERE, [CurvePoint(104.0, 1.0)]).points == math.inf
    assert charge_memory(101.0, HERE, [CurvePoint(106.0, 0.5)]).points == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("mean", "points", "tested"),
    [
        (0.05, 0.02, 0.02),
        (0.02, 0.02, None),
        (0.0, 0.02, None),
        (-0.05, 0.02, 0.0),  # more memory is no excuse for a loss
        (-0.05, -0.02, -0.02),
        (0.05, -0.02, 0.0),  # nor less a handicap
        (0.0, 0.0, 0.0),
        (0.3, math.inf, None),
        (-0.3, math.inf, 0.0),
    ],
)
def test_the_difference_that_is_tested_is_the_nearest_that_memory_explains(mean, points, tested):
    assert nearest_null(mean, points) == tested


@pytest.mark.parametrize("points", [0.0, 0.03, -0.03, 0.2, math.inf])
def test_the_widened_interval_excludes_zero_exactly_where_the_test_rejects(points):
    rng = np.random.default_rng(1)
    for shift in np.linspace(-0.4, 0.4, 41):
        difference = np.clip(rng.normal(shift, 0.5, (60, 1)), -1, 1)
        tested = nearest_null(float(difference.mean()), points)
        rejects = tested is not None and student_t(difference, null=tested).p < 0.05
        wide = widen_interval(student_t(difference, level=0.95), points)
        assert rejects == (wide.low > 0 or wide.high < 0)


def test_an_interval_is_widened_on_the_side_that_memory_explains():
    found = Comparison(0.1, 0.05, 0.15, 0.01)
    assert widen_interval(found, 0.02) == pytest.approx(Comparison(0.1, 0.03, 0.15, 0.01))
    assert widen_interval(found, -0.02) == pytest.approx(Comparison(0.1, 0.05, 0.17, 0.01))
    assert widen_interval(found, math.inf)[1:3] == (-1, 0.15)


# 100 problems, 4 gained and 2 lost.
SOME = np.array([[1.0]] * 4 + [[-1.0]] * 2 + [[0.0]] * 94)


def test_a_margin_is_nearer_by_what_memory_bought():
    plain = equivalence.tost(SOME, 0.05, alpha=0.05)
    assert tost(SOME, 0.05, 0.0, alpha=0.05) == plain
    more, less = tost(SOME, 0.05, 0.02, alpha=0.05), tost(SOME, 0.05, -0.02, alpha=0.05)
    at_three = equivalence.tost(SOME, 0.03, alpha=0.05)
    assert (more.p_worse, more.p_better) == (at_three.p_worse, plain.p_better)
    assert (less.p_worse, less.p_better) == (plain.p_worse, at_three.p_better)
    assert (more.low, more.high) == pytest.approx((plain.low - 0.02, plain.high))
    assert (less.low, less.high) == pytest.approx((plain.low, plain.high + 0.02))


def test_a_charge_beyond_the_margin_leaves_nothing_to_show():
    same = np.zeros((1000, 1))
    assert equivalence.tost(same, 0.03, alpha=0.05).p_worse < 1e-12
    assert tost(same, 0.03, 0.04, alpha=0.05).p_worse == 1
    assert tost(np.ones((1000, 1)), 0.03, math.inf, alpha=0.05).p_worse == 1
    assert tost(-np.ones((1000, 1)), 0.03, -math.inf, alpha=0.05).p_better == 1
