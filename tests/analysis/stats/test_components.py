"""Variance components and what they foretell, against a mixed model, plain loops and simulation."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.regression.mixed_linear_model import MixedLM

from analysis.stats import variance_components
from analysis.stats.interval import DegenerateDifference
from analysis.stats.paired_tests import student
from analysis.studies.transfer import table

TRUTH = {"problem": (0.5, 0.4, 0.7), "seed": (0.2, 0.3, 0.25)}  # own, other, correlation


def arms(problems: int, seeds: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Normal scores of two arms with the variances of TRUTH."""

    def effects(part: str, *shape: int) -> np.ndarray:
        own, other, correlation = TRUTH[part]
        shared = correlation * np.sqrt(own * other)
        return rng.multivariate_normal([0, 0], [[own, shared], [shared, other]], shape)

    scores = effects("problem", problems)[:, None] + effects("seed", problems, seeds)
    return scores[:, :, 0], scores[:, :, 1]


def test_known_variances_are_found():
    found = variance_components.components(*arms(4_000, 4, np.random.default_rng(0)))
    problem, seed = (
        (found.problem_own, found.problem_other, found.problem_correlation),
        (
            found.seed_own,
            found.seed_other,
            found.seed_correlation,
        ),
    )
    assert problem == pytest.approx(TRUTH["problem"], abs=0.04)
    assert seed == pytest.approx(TRUTH["seed"], abs=0.02)
    assert found.problem == pytest.approx(0.9 - 2 * 0.7 * np.sqrt(0.2), abs=0.03)
    assert found.seed == pytest.approx(0.5 - 2 * 0.25 * np.sqrt(0.06), abs=0.02)


def test_the_difference_has_the_components_of_a_mixed_model():
    own, other = arms(60, 3, np.random.default_rng(3))
    lanes = pd.DataFrame({"value": (own - other).ravel(), "problem": np.repeat(np.arange(60), 3)})
    fitted = MixedLM.from_formula("value ~ 1", lanes, groups="problem").fit(reml=True)
    found = variance_components.components(own, other)  # in a balanced layout REML is the method of moments
    assert found.problem == pytest.approx(float(fitted.cov_re.iloc[0, 0]), rel=1e-3)
    assert found.seed == pytest.approx(float(fitted.scale), rel=1e-3)


def test_components_are_those_of_plain_sums():
    draw = np.random.default_rng(1)
    own, other = ((draw.random((12, 3)) < share).astype(float) for share in (0.6, 0.5))
    difference = own - other
    inside = sum((difference[i, s] - difference[i].mean()) ** 2 for i in range(12) for s in range(3)) / (
        12 * 2
    )
    outside = sum((difference[i].mean() - difference.mean()) ** 2 for i in range(12)) / 11
    found = variance_components.components(own, other)
    assert found.seed == pytest.approx(inside)
    assert found.problem == pytest.approx(outside - inside / 3)
    assert found.variance(12, 3) == pytest.approx(outside / 12)  # the squared standard error of Student's t
    assert found.share_of_seeds == pytest.approx(inside / (inside + outside - inside / 3))
    swapped = variance_components.components(other, own)
    assert (swapped.problem, swapped.seed) == pytest.approx((found.problem, found.seed))
    assert (swapped.problem_own, swapped.seed_own) == (found.problem_other, found.seed_other)


def test_three_seeds_foretell_the_variance_with_one_and_with_nine():
    draw = np.random.default_rng(5)
    found = variance_components.components(*arms(3_000, 3, draw))
    for seeds in (1, 9):
        own, other = arms(40 * 500, seeds, draw)
        means = (own - other).mean(axis=1).reshape(500, 40).mean(axis=1)
        assert found.variance(40, seeds) == pytest.approx(means.var(), rel=0.2)


def test_seeds_that_agree_leave_nothing_to_more_of_them():
    answers = np.array([[1.0, 1.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    found = variance_components.components(answers, np.zeros((4, 2)))
    assert (found.seed, found.share_of_seeds) == (0.0, 0.0)
    assert found.variance(4, 1) == found.variance(4, 100) == pytest.approx(1 / 3 / 4)
    assert np.isnan(found.problem_correlation)
    assert np.isnan(found.seed_correlation)


def test_an_estimate_below_zero_is_left_so_and_foretells_no_negative_variance():
    alternating = np.tile([[1.0, 0.0], [0.0, 1.0]], (5, 1))
    found = variance_components.components(alternating, np.zeros((10, 2)))
    assert found.problem < 0
    assert found.variance(10, 10) == 0.0 < found.variance(10, 1)


@pytest.mark.parametrize(
    ("own", "other", "says"),
    [
        ([[1.0], [0.0]], [[0.0], [1.0]], r"1 seed\(s\)"),
        ([[1.0, 0.0]], [[0.0, 0.0]], r"1 problem\(s\)"),
        ([[1.0, 0.0]] * 2, [[0.0, 0.0]] * 3, "of the same lanes"),
        ([1.0, 0.0], [0.0, 0.0], r"pass \[problem, seed\]"),
        ([[1.0, np.nan]] * 2, [[0.0, 0.0]] * 2, "not finite"),
        ([[1.0, 0.0]] * 2, [[1.0, 0.0]] * 2, "every lane differs alike"),
        (np.empty((0, 2)), np.empty((0, 2)), r"0 problem\(s\)"),
    ],
)
def test_layouts_that_cannot_tell_variances_apart_are_refused_by_name(own, other, says):
    with pytest.raises(DegenerateDifference, match=says):
        variance_components.components(own, other)


def test_power_and_the_smallest_effect_are_those_of_simulated_t_tests():
    draw = np.random.default_rng(0)
    samples = draw.normal(0.1, 0.4, (20_000, 60))
    found = (stats.ttest_1samp(samples, 0, axis=1).pvalue <= 0.05).mean()
    assert variance_components.power_at(0.1, 0.16 / 60, 60) == pytest.approx(found, abs=0.012)
    effect = variance_components.smallest_effect(0.16 / 60, 60, power=0.8)
    assert variance_components.power_at(effect, 0.16 / 60, 60) == pytest.approx(0.8, abs=0.01)
    assert variance_components.power_at(0.0, 0.16 / 60, 60, alpha=0.01) == pytest.approx(0.01)


# ---------------------------------------------------------------- transfer


def cells(seed: int, **gained: float) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {
        name: draw.choice([-1.0, 0.0, 1.0], (80, 2), p=[0.05, 0.95 - up, up]) for name, up in gained.items()
    }


def test_each_cell_shows_both_effects_and_how_far_apart_they_are():
    primary, transfer = cells(0, won=0.5, even=0.05, turned=0.5), cells(1, won=0.5, even=0.05, turned=0.0)
    transfer["turned"] = -cells(2, turned=0.5)["turned"]
    rows = {row.cell: row for row in table(primary, transfer)}
    assert [row.signs for row in rows.values()] == ["agree", "open", "oppose"]
    for name, row in rows.items():
        assert row.primary == student(primary[name])
        assert row.transfer == student(transfer[name])
        means = transfer[name].mean(axis=1) - primary[name].mean(axis=1)
        theirs = stats.ttest_1samp(means, 0)
        interval = theirs.confidence_interval(0.95)
        assert row.apart == pytest.approx((means.mean(), interval.low, interval.high, theirs.pvalue))
    assert rows["turned"].apart.high < 0 < rows["won"].apart.high


def test_models_that_move_together_are_told_apart_by_their_pairs():
    one = cells(0, won=0.4)
    moved = {"won": one["won"].copy()}
    moved["won"][:5] = 0.0
    apart = table(one, moved)[0].apart
    assert apart.high - apart.low < 0.6 * (student(one["won"]).high - student(one["won"]).low)


@pytest.mark.parametrize(
    ("primary", "transfer", "says"),
    [
        (cells(0, a=0.1), cells(0, b=0.1), r"\['a', 'b'\] are on one model only"),
        ({}, {}, "at least one"),
        (cells(0, a=0.1), {"a": np.zeros((79, 2))}, "a: 80 and 79 problems"),
        (cells(0, a=0.1), {"a": np.full((80, 2), np.nan)}, "not finite"),
    ],
)
def test_cells_that_are_not_on_both_models_are_refused_by_name(primary, transfer, says):
    with pytest.raises(DegenerateDifference, match=says):
        table(primary, transfer)
