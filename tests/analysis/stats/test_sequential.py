"""Levels of looks against published tables, plain simulation of Brownian motion, and their own limits."""

import numpy as np
import pytest
from scipy import stats

from analysis.stats.comparison import Comparison
from analysis.stats.sequential import ANYTIME, Look, boundary

# Lan & DeMets (1983, table 1) and R's gsDesign 3.6, sfLDOF and sfLDPocock, one-sided alpha 0.025, equal looks.
OBRIEN_FLEMING = {
    2: [2.9626, 1.9686],
    3: [3.7103, 2.5114, 1.9930],
    4: [4.3326, 2.9631, 2.3590, 2.0141],
    5: [4.8769, 3.3569, 2.6803, 2.2898, 2.0310],
}
POCOCK = {2: [2.1570, 2.2010], 5: [2.4380, 2.4268, 2.4101, 2.3966, 2.3859]}


@pytest.mark.parametrize(("spending", "table"), [("obrien-fleming", OBRIEN_FLEMING), ("pocock", POCOCK)])
def test_boundaries_are_those_of_the_tables(spending, table):
    for looks, expected in table.items():
        fractions = tuple((look + 1) / looks for look in range(looks))
        computed = [boundary(spending, fractions[: look + 1], 0.025) for look in range(looks)]
        np.testing.assert_allclose(computed, expected, atol=2e-4)


def test_a_single_look_is_the_fixed_design():
    look = Look("pocock", (1.0,))
    assert look.level(0.025) == pytest.approx(0.025)
    assert look.coverage(0.95) == pytest.approx(0.95)
    assert look.overall(0.013) == pytest.approx(0.013)


@pytest.mark.parametrize("spending", ["obrien-fleming", "pocock"])
@pytest.mark.parametrize("alpha", [0.2, 0.025, 0.004, 1e-5])
def test_a_look_rejects_exactly_where_its_p_is_at_most_alpha(spending, alpha):
    look = Look(spending, (0.2, 0.55, 1.0))
    level = look.level(alpha)
    assert look.overall(level) == pytest.approx(alpha, rel=1e-6)
    assert look.overall(0.99 * level) < alpha < look.overall(1.01 * level)
    assert look.overall(level) >= level


def test_p_are_bounded_and_in_order():
    look = Look("obrien-fleming", (0.1, 0.4))
    values = [look.overall(p) for p in (0.0, 1e-30, 1e-9, 1e-3, 0.2, 0.5, 0.9, 1.0)]
    assert values == sorted(values)
    assert values[0] == 0
    assert values[-1] == 1
    assert look.adjust(Comparison(0.1, 0.0, 0.2, 1.0)).p == 1


@pytest.mark.parametrize("spending", ["obrien-fleming", "pocock"])
def test_brownian_motion_crosses_as_often_as_alpha_was_spent(spending):
    """40,000 paths by a plain loop over the looks; three standard errors of a share of 0.1 are 0.0045."""
    fractions, alpha = (0.3, 0.45, 1.0), 0.1
    rng = np.random.default_rng(5)
    path, before, crossed = np.zeros(40_000), 0.0, np.zeros(40_000, dtype=bool)
    for number, fraction in enumerate(fractions, 1):
        path += rng.normal(0, np.sqrt(fraction - before), len(path))
        p = stats.norm.sf(path / np.sqrt(fraction))
        crossed |= p <= Look(spending, fractions[:number]).level(alpha)
        before = fraction
    assert crossed.mean() == pytest.approx(alpha, abs=0.0045)


def test_p_that_hold_at_any_time_stay():
    look = Look(ANYTIME, (0.25, 0.5))
    assert (look.level(0.01), look.overall(0.3), look.coverage(0.95)) == (0.01, 0.3, pytest.approx(0.95))


def test_positions_have_the_sign_of_the_difference():
    look = Look("pocock", (0.5,))
    assert look.locate(Comparison(-0.1, -0.2, 0.0, 0.04), 0.05).z == pytest.approx(-2.0537, abs=1e-3)
    assert look.locate(Comparison(0.1, 0.0, 0.2, 0.0), 0.05).z == 40
