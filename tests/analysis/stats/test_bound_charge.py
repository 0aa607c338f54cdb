"""What unequal memory may have bought up to the comparator's next measurement, by hand."""

import math

import pytest

from analysis.stats.memory_charge import CLIFF, Neighbour, SwingCharge, bound_charge

ABOVE, BELOW, EMPTY = Neighbour(200.0, 0.1, 0.3), Neighbour(50.0, -0.25, -0.15), Neighbour(0.0, -0.6, -0.4)


def test_an_excess_may_have_bought_the_whole_rise_to_the_next_measurement():
    # The upper limit of the rise, wherever it lies between 100 and 200.
    for excess in (CLIFF, 0.01, 0.02, 0.9):
        found = bound_charge(100 * (1 + excess), 100.0, [EMPTY, BELOW, ABOVE, Neighbour(400.0, 0.4, 0.5)])
        assert found == pytest.approx(SwingCharge(excess, 0.3, 0.3))


def test_a_smaller_excess_is_charged_its_share_and_never_less_than_two_points_a_percent():
    assert bound_charge(100.1, 100.0, [BELOW, ABOVE]).points == pytest.approx(0.3 * 0.2)
    assert bound_charge(100.1, 100.0, [BELOW, Neighbour(200.0, -0.4, -0.2)]).points == pytest.approx(0.002)


def test_a_shortfall_may_have_cost_the_whole_fall_down_to_what_holds_as_little():
    assert bound_charge(98.0, 100.0, [EMPTY, BELOW, ABOVE]) == pytest.approx(SwingCharge(-0.02, 0.25, -0.25))
    # Less than any other budget: all that a cache may be worth.
    assert bound_charge(40.0, 100.0, [EMPTY, BELOW, ABOVE]) == pytest.approx(SwingCharge(-0.6, 0.6, -0.6))


def test_a_neighbour_with_less_than_the_subject_bounds_nothing():
    # 101 slots lie below 102: the next one counts, and what lies between is looked at too.
    near = Neighbour(101.0, 0.4, 0.5)
    assert bound_charge(102.0, 100.0, [near, ABOVE]).swing == 0.5
    assert bound_charge(102.0, 100.0, [Neighbour(101.0, 0.0, 0.1), ABOVE]).swing == 0.3
    assert bound_charge(100.6, 100.0, [near, ABOVE]).swing == 0.5


def test_where_accuracy_is_lowest_here_less_memory_bounds_too():
    assert bound_charge(102.0, 100.0, [Neighbour(50.0, 0.2, 0.4), ABOVE]).points == pytest.approx(0.4)
    assert bound_charge(98.0, 100.0, [BELOW, Neighbour(200.0, -0.5, -0.3)]).points == pytest.approx(-0.5)


def test_beyond_the_grid_nothing_bounds_an_excess_and_equal_memory_needs_no_bound():
    assert bound_charge(100.1, 100.0, [EMPTY, BELOW]) == (pytest.approx(0.001), None, math.inf)
    assert bound_charge(100.0, 100.0, []) == bound_charge(100.0 + 1e-10, 100.0, []) == (0, 0, 0)
