"""A small version of the simulation that chose how unequal memory is judged."""

import numpy as np
from looped import looped

from benchmarks.memory_charge import CURVES, FORMS, LAYOUTS, draw_latent, try_curve

SHIPPED, RISE, NEIGHBOURS = FORMS
LATENT = draw_latent(100, 287, np.random.default_rng(6))


@looped("name", sorted(CURVES.keys() - {"bump"}))
@looped("excess", [0.02, 0.0012, -0.02])
def test_neighbours_buy_nothing_and_keep_the_power(name, excess):
    decided = try_curve(LATENT, CURVES[name], LAYOUTS[0], excess)[NEIGHBOURS]
    # 100 studies of a chance of 2.5 %: ten have a chance of .0004.
    assert (decided.superior if excess > 0 else decided.refuted) <= 0.09
    strong = try_curve(LATENT, CURVES["flat"], LAYOUTS[0], 0.0012, 0.25)
    assert strong[NEIGHBOURS].superior > 0.9


def test_what_was_judged_before_fails_on_cliffs_and_on_narrow_steps():
    """Twice the chord on a cliff, its share of the rise on a step right above the budget."""
    assert try_curve(LATENT, CURVES["cliff of 1.08"], LAYOUTS[1], 0.02)[SHIPPED].superior > 0.5
    narrow = try_curve(LATENT, CURVES["step right above"], LAYOUTS[0], 0.0012)
    assert narrow[RISE].superior > 0.9
    assert narrow[NEIGHBOURS].superior < 0.1
