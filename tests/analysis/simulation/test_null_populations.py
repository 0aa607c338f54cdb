"""Null populations: what their problems do, drawn one by one, and that their mean is what it has to be."""

import itertools

import numpy as np
import pytest
from looped import looped

from analysis.simulation import null_populations, null_settings
from analysis.simulation.null_settings import Setting


def mean(shares) -> float:
    seeds = len(shares) // 2
    return sum(share * (at - seeds) / seeds for at, share in enumerate(shares))


@looped("seeds", [1, 2, 3, 5])
def test_no_arm_is_better_in_any_setting_and_the_shares_are_whole(seeds):
    found = null_settings.settings(seeds)
    assert len(found) == (7 if seeds == 1 else 21)
    for setting in found:
        shares = null_populations.shares(setting, seeds)
        assert min(shares) >= 0
        assert sum(shares) == pytest.approx(1)
        assert mean(shares) == pytest.approx(0, abs=1e-12)


@looped("margin", [0.02, 0.2])
@looped("seeds", [1, 3, 5])
def test_at_a_margin_the_subject_is_worse_by_just_that(seeds, margin):
    found = null_settings.settings(seeds, margin=True)
    assert len(found) == (14 if seeds == 1 else 42)
    for setting in found:
        shares = null_populations.shares(setting, seeds, margin)
        assert min(shares) >= 0
        assert sum(shares) == pytest.approx(1)
        assert mean(shares) == pytest.approx(-margin)


@looped(("discordance", "seeds"), [(0.25, 1), (0.10, 1), (0.17, 3)])
@looped("margin", [0.0, 0.05])
def test_the_symmetric_one_is_that_of_problems_drawn_one_by_one(discordance, seeds, margin):
    setting = Setting("symmetric", discordance)
    found = null_populations.shares(setting._replace(loss_kind="many small losses"), seeds, margin)
    if seeds == 1 and not margin:
        assert found == pytest.approx([discordance / 2, 1 - discordance, discordance / 2])
    draw, a = np.random.default_rng(0), discordance / (1 - 2 * discordance)
    chance = draw.beta(a, a, 100_000)
    solved = draw.binomial(1, np.repeat(chance[:, None], seeds, axis=1))
    kept = draw.random(solved.shape) < 1 - 2 * margin
    gained = (solved & kept).sum(axis=1) - draw.binomial(seeds, chance)
    counted = np.bincount(gained + seeds, minlength=2 * seeds + 1) / 100_000
    assert found == pytest.approx(counted, abs=5 * 0.5 / np.sqrt(100_000))


@pytest.mark.parametrize("seeds", [1, 3, 60])
def test_the_grid_of_discordances_is_dense_and_every_one_has_shares(seeds):
    for kind in null_settings.kinds(seeds, margin=True):
        grid = null_populations.discordances(kind.kind, seeds)
        assert max(after / before for before, after in itertools.pairwise(grid)) < 1.3
        for discordance in (grid[0], grid[-1]):
            shares = null_populations.shares(kind._replace(discordance=discordance), seeds, 0.05)
            assert min(shares) >= 0
            assert mean(shares) == pytest.approx(-0.05)


def test_a_skewed_one_gains_a_seed_in_many_problems_and_loses_all_in_few():
    shares = null_populations.shares(Setting("gains one seed", 0.04), 3)
    assert shares.tolist() == pytest.approx([0.01, 0, 0, 0.96, 0.03, 0, 0])
    mirror = null_populations.shares(Setting("loses one seed", 0.04), 3)
    assert mirror.tolist() == pytest.approx(shares[::-1].tolist())


def test_the_margin_is_taken_by_few_total_losses_or_many_small_ones():
    few = null_populations.shares(Setting("gains one seed", 0.04, "few total losses"), 3, 0.1)
    assert few.tolist() == pytest.approx([0.1 + 0.9 * 0.01, 0, 0, 0.9 * 0.96, 0.9 * 0.03, 0, 0])
    many = null_populations.shares(Setting("gains one seed", 0.04, "many small losses"), 3, 0.1)
    assert many.tolist() == pytest.approx([0.7 * 0.01, 0, 0.3, 0.7 * 0.96, 0.7 * 0.03, 0, 0])
