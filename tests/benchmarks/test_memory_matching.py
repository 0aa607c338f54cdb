"""A small version of the simulation that chose how unequal memory is charged."""

import itertools

import numpy as np
import pytest

from analysis.stats import memory_charge
from analysis.stats.memory_charge import CurvePoint, Neighbour
from benchmarks import memory_cliffs
from benchmarks.memory_cliffs import try_curve
from benchmarks.memory_forms import FORMS, LIMIT, Layout, Seen
from benchmarks.memory_matching import CURVES, LAYOUTS, accuracy, drawn, simulated

SHIPPED, CHOSEN = "2 x chord, at least 2", "rise, cliffs of 0.5 %"
MORE = (LAYOUTS[0], LAYOUTS[4])  # a second budget, and a full cache far away


@pytest.mark.parametrize(("curve", "here"), CURVES)
@pytest.mark.parametrize("slope", [0.005, 0.015])
def test_a_curve_passes_its_point_with_its_slope_and_stays_a_share(curve, here, slope):
    def at(slots):
        return accuracy(curve, here, slope, 64.0, slots)

    assert at(64.0) == pytest.approx(here)
    assert (at(64.01) - at(63.99)) / 0.02 == pytest.approx(slope, rel=1e-3)
    assert 0 <= at(0.0) <= at(1000.0) <= 1


@pytest.mark.parametrize("excess", [0.02, -0.02])
@pytest.mark.parametrize(("rise", "fall"), [(0.1, 0.05), (0.45, 0.1), (0.1, 0.45), (-0.1, 0.1)])
def test_what_is_simulated_is_what_the_judge_charges(excess, rise, fall):
    layout, here = Layout("", 128, 64, 147), CurvePoint(128.0, 0.5)
    curve = [CurvePoint(147.0, 0.5 + rise), CurvePoint(64.0, 0.5 - fall)]
    points = memory_charge.charge_memory(128 * (1 + excess), here, curve).points
    one = np.ones((1, 1))
    for gain in (0.2, -0.2):
        seen = Seen(gain * one, one, rise * one, one, 0 * one, fall * one, one)
        tested = FORMS[SHIPPED][0](seen, layout, excess).gain[0, 0]
        assert tested == pytest.approx(gain - memory_charge.nearest_null(gain, points))


@pytest.mark.parametrize("excess", [0.02, 0.001, -0.02])
@pytest.mark.parametrize(("rise", "fall"), [(0.1, 0.05), (-0.1, 0.4)])
def test_what_is_simulated_is_what_the_judge_of_new_studies_charges(excess, rise, fall):
    error = 0.02
    reach = LIMIT * error
    neighbours = [Neighbour(147.0, rise - reach, rise + reach), Neighbour(64.0, -fall - reach, -fall + reach)]
    points = memory_charge.bound_charge(128 * (1 + excess), 128.0, neighbours).points
    one = np.ones((1, 1))
    for gain in (0.6, -0.6):
        seen = Seen(gain * one, one, rise * one, error * one, 0 * one, fall * one, error * one)
        tested = FORMS[CHOSEN][0](seen, Layout("", 128, 64, 147), excess).gain[0, 0]
        assert tested == pytest.approx(gain - memory_charge.nearest_null(gain, points))


def test_two_percent_more_buy_every_confirmed_on_a_cliff_by_its_chord_and_none_by_its_rise():
    latent = drawn(100, 287, 1, np.random.default_rng(6))
    for name in ("cliff of 1.22", "cliff of 1.08", "step right above", "step right below", "plateaus", "dip"):
        for excess in (0.02, 0.005, -0.02):
            found = [try_curve(latent, memory_cliffs.CURVES[name], layout, excess) for layout in LAYOUTS[:2]]
            wrong = [decided[CHOSEN].superior if excess > 0 else decided[CHOSEN].refuted for decided in found]
            assert max(wrong) <= 0.09, (name, excess)  # ten of 100 studies at 2.5 % have a chance of .0004
    shipped = try_curve(latent, memory_cliffs.CURVES["cliff of 1.08"], LAYOUTS[1], 0.02)[SHIPPED]
    assert shipped.superior > 0.5


def test_more_memory_buys_no_confirmed_where_it_is_charged_and_many_where_it_is_not():
    found = simulated(300, 287, 1, np.random.default_rng(5), MORE)
    assert found.keys() == {key for key in found if key.problems == 287}

    def worst(form, slope, word="superior"):
        keys = (key for key in found if key.form == form and key.slope == slope and key.excess >= 0)
        return max(getattr(found[key], word) for key in keys)

    # 300 studies of a chance of 2.5 %: 17 or more have a chance of 1 in 1,000.
    for form, slope in itertools.product((SHIPPED, CHOSEN), (0.0, 0.87, 1.5)):
        assert worst(form, slope) <= 17 / 300
        assert worst(form, slope, "branch") <= 17 / 300
    assert worst("tolerance 2 %", 0.87) > 0.1
    assert worst("chord", 1.5) > 0.1
