"""A small version of the proof by simulation: what is simulated, and that methods hold what is claimed."""

import itertools

import numpy as np
import pytest
from scipy import stats

from analysis.rules.rule import Contrast
from analysis.rules.verdicts import CONFIRMED, REFUTED
from analysis.simulation.cluster_populations import cluster_settings
from analysis.stats import max_t, power
from benchmarks import clustered_validity, null_grid, simulated, validity, validity_tables
from benchmarks.simulated import CHAIN, RETRIEVAL

STUDIES = 1_000


@pytest.fixture(scope="module")
def chain() -> dict[tuple[int, float], validity.Errors]:
    places = [(60, 0.05), (60, 0.5), (299, 0.25)]
    return {place: validity.errors(CHAIN, *place, STUDIES, 1) for place in places}


def far_from(share: float, truth: float, count: int = STUDIES) -> bool:
    return stats.binomtest(round(share * count), count, truth).pvalue < 1e-4


def test_answers_share_what_the_shipped_ones_do():
    rng = np.random.default_rng(0)
    drawn = simulated.studies(CHAIN, 200, 0.25, 0.0, 200, rng)
    own = drawn.solved[:, 0]
    other = own - drawn.gained[:, 0, :, :, 0]
    assert own.mean() / 3 == pytest.approx(0.25, abs=0.01)
    assert other.mean() / 3 == pytest.approx(0.25, abs=0.01)
    # Two seeds of an arm are both right where two normals with the correlation 0.92 are below a bound.
    bound = stats.norm.ppf(0.25)
    both = stats.multivariate_normal.cdf([bound, bound], cov=[[1, 0.92], [0.92, 1]])
    pairs = (own * (own - 1) / 6).mean()
    assert pairs == pytest.approx(both, abs=0.005)
    # Two arms at two seeds 0.77, at one seed 0.80; two cells 0.50.
    across = (own * other / 9).mean()
    expected = np.mean(
        [stats.multivariate_normal.cdf([bound, bound], cov=[[1, r], [r, 1]]) for r in (0.77, 0.77, 0.80)]
    )
    assert across == pytest.approx(expected, abs=0.005)
    cells = np.mean([(own[..., i] * own[..., j] / 9).mean() for i, j in itertools.combinations(range(4), 2)])
    assert cells == pytest.approx(stats.multivariate_normal.cdf([bound, bound], cov=[[1, 0.5], [0.5, 1]]), abs=0.005)


@pytest.mark.parametrize("shape", [CHAIN, RETRIEVAL], ids=["chain", "retrieval"])
def test_the_shares_of_an_answer_are_the_whole_of_it(shape):
    assert sum(shape.shares.values()) == pytest.approx(1)


def test_p_values_of_a_simulated_study_are_those_of_its_contrasts():
    rng = np.random.default_rng(3)
    gained = simulated.studies(RETRIEVAL._replace(comparators=2), 40, 0.3, 0.1, 3, rng).gained
    counts = simulated.counts_of(gained, 1).reshape(3, 8, 3)
    adjusted = simulated.family_p(gained, np.random.default_rng(0))
    for study, table, p in zip(gained, counts, adjusted, strict=True):
        groups = [list(task.reshape(40, 4).T[:, :, None].astype(float)) for task in study]
        for contrast, row in zip(itertools.chain(*groups), table, strict=True):
            assert [int((contrast == value).sum()) for value in (-1, 0, 1)] == row.tolist()
        alone = max_t.max_t(groups, draws=20_000, rng=rng)
        assert p == pytest.approx([one.p for group in alone for one in group], abs=0.07)


def test_students_t_holds_its_level_alone_and_decides_in_the_band(chain):
    for place in ((60, 0.5), (299, 0.25)):
        assert not far_from(chain[place].alone["t"], 0.05, 4 * STUDIES), place
        for method in ("t", simulated.MAX_T):
            share = validity_tables.either(chain[place].whole[method])
            low, high = validity.clopper_pearson(round(share * STUDIES), STUDIES)
            assert low <= validity_tables.BAND[1], (place, method)
            assert high >= validity_tables.BAND[0], (place, method)


def test_at_sixty_problems_and_one_in_twenty_right_only_the_bootstrap_errs_on_the_unsafe_side(chain):
    whole = {name: validity_tables.either(words) for name, words in chain[60, 0.05].whole.items()}
    assert whole["bootstrap"] > validity_tables.BAND[1]
    assert max(whole["t"], whole["sign-flip"], whole[simulated.MAX_T]) < validity_tables.BAND[0]


def test_branch_a_errs_half_as_often_as_one_cell_does(chain):
    # Two primary cells at 2.5 % each, and a transfer mean that is positive every other time.
    assert not far_from(chain[299, 0.25].branch["t"][CONFIRMED], (1 - 0.975**2) / 2)


def test_max_t_holds_a_family_that_shares_its_subject_where_bonferroni_is_too_strict():
    found = validity.errors(RETRIEVAL, 201, 0.25, 800, 1)
    assert not far_from(found.family[simulated.MAX_T], 0.05, 800)
    assert found.family["sign-flip"] < found.family["t"] < found.family[simulated.MAX_T]


def test_studies_that_no_rule_is_asked_about_decide_nothing():
    rng = np.random.default_rng(0)
    found = simulated.seen(CHAIN, 60, 0.5, 300, rng)
    for rule, word in ((validity.superior, CONFIRMED), (validity.branch, REFUTED)):
        every = 0
        for net, p in zip(found.net, found.p["t"], strict=True):
            contrasts = [
                Contrast(
                    model="first" if i < 2 else "second",
                    task="task",
                    budget=str(i),
                    subject="own",
                    against="other",
                    delta=net[i] / 180,
                    high=-1.0 if p[i] < 0.0125 and net[i] < 0 else 1.0,
                    p=p[i],
                    adjusted=min(1.0, 4 * p[i]),
                    matched=True,
                    net=net[i],
                    lanes=180,
                )
                for i in range(4)
            ]
            every += rule(contrasts) == word
        assert validity.decided(found, "t", rule).get(word, 0.0) == every / 300


def test_intervals_cover_a_difference_that_is_there():
    found = validity.coverage(201, 0.5, 200, 1)
    assert found.effect > 0
    for name, share in found.shares.items():
        nominal = 0.97 if name == "Clopper-Pearson" else 0.95
        assert abs(share - nominal) < 0.06, name
    # Without simulation: the coverage of Wilson's limits of 10 problems at one half, by hand.
    hits = [k for k in range(11) if validity.wilson(k, 10)[0] <= 0.5 <= validity.wilson(k, 10)[1]]
    assert hits == [2, 3, 4, 5, 6, 7, 8]


def test_power_is_what_the_formula_says():
    curve = validity.power_curve(201, 0.5, 400, 1)
    assert [point.formula for point in curve] == pytest.approx(validity.POWERS, abs=0.05)
    for point in curve:
        assert point.found["t"] == pytest.approx(point.formula, abs=0.05)
        assert point.found["sign-flip"] <= point.found["t"] + 0.01


def test_the_band_names_the_side_and_what_the_simulation_cannot_tell():
    assert validity_tables.banded(0.05, 1_000) == "5.0"
    assert validity_tables.banded(0.02, 10_000) == "2.0 below"
    assert validity_tables.banded(0.039, 1_000) == "3.9 below?"
    assert validity_tables.banded(0.09, 10_000) == "9.0 above"


def test_the_script_answers_help(capsys):
    with pytest.raises(SystemExit) as done:
        validity.main(["--help"])
    assert done.value.code == 0
    assert "python -m benchmarks.validity" in capsys.readouterr().out


def test_simulated_p_values_are_drawn_often_enough():
    assert power.has_enough_draws("bootstrap", simulated.DRAWS, validity.ALPHA / RETRIEVAL.family)


def test_power_and_the_smallest_effect_are_those_of_simulated_t_tests():
    draw = np.random.default_rng(0)
    samples = draw.normal(0.1, 0.4, (20_000, 60))
    found = (stats.ttest_1samp(samples, 0, axis=1).pvalue <= 0.05).mean()
    assert validity.power_at(0.1, 0.16 / 60, 60) == pytest.approx(found, abs=0.012)
    effect = validity.smallest_effect(0.16 / 60, 60, share=0.8)
    assert validity.power_at(effect, 0.16 / 60, 60) == pytest.approx(0.8, abs=0.01)
    assert validity.power_at(0.0, 0.16 / 60, 60, alpha=0.01) == pytest.approx(0.01)


def test_nothing_can_reject_at_its_level_where_one_problem_in_two_hundred_differs():
    # By hand, three problems of which half differ: to reject two of two alike has the chance 3/8 x 1/2, and
    # 2/9 at most (where two thirds differ); with three of three alike beside it, 0.32 where 80 % differ.
    assert null_grid.attainable(3, 0.5, 0.3) == pytest.approx(3 / 16, abs=1e-12)
    assert null_grid.attainable(3, 0.5, 0.35) == pytest.approx(3 / 16 + 1 / 32, abs=1e-12)
    assert null_grid.attainable(200, 0.005, 0.05) < 0.03
    assert null_grid.attainable(200, 0.05, 0.05) == 0.05
    # The tests themselves stay below it: what they reject is counted out.
    for method in ("sign-flip", "restricted-likelihood"):
        shares = null_grid.null_populations.shares(null_grid.null_populations.Setting("symmetric", 0.005), 1)
        pool = null_grid.make_pool([shares], 200, [0.05], 2_000, np.random.default_rng(0))
        p = null_grid.type_one_error.screened_p_values(method, pool.counts, np.random.default_rng(0))
        assert pool.rate(shares, p <= 0.05).rate <= null_grid.attainable(200, 0.005, 0.05)


def test_a_row_of_the_grid_has_every_setting_and_says_whom_registering_refuses():
    row = null_grid.row("superior", "t", 100, 3, 100, 0)
    assert len(row.shares) == 21
    assert row.refused.startswith("refused")
    held = null_grid.row("superior", "restricted-likelihood", 100, 3, 100, 0)
    assert not held.refused
    printed = null_grid.grid_table([row, held]).splitlines()
    assert len(printed) == 4
    assert printed[-1].endswith("| holds |")


def test_every_pair_that_may_be_registered_is_in_the_grid():
    pairs = null_grid.pairs()
    assert ("branch", "max-t") not in pairs
    assert ("non_inferior", "auto") in pairs
    assert ("non_inferior", "bootstrap") not in pairs
    assert len([rule for rule, _ in pairs if rule == "superior"]) == len(null_grid.METHODS)


def test_coverage_near_a_ceiling_is_counted_out():
    # Two gains in a hundred problems: Student's t covers where the number of gains is one of few.
    found = null_grid.covered("t", 50, 0.02, 0.0, 0.95)
    drawn = np.random.default_rng(0).binomial(50, 0.02, 400)
    held = [null_grid._holds("t", np.array([0, 50 - g, g]), 0.02, 0.95) for g in drawn]
    assert abs(found - np.mean(held)) < 4 * np.sqrt(0.25 / 400)


@pytest.mark.parametrize(("method", "errs"), [("t", True), ("betting", False)])
def test_a_rule_on_clusters_errs_by_the_methods_that_registering_refuses(method, errs):
    shape = clustered_validity.Shape("42", (1, 3, 5, 7, 9, 11, 13) * 6, 1)
    losses = next(each for each in cluster_settings(1) if each.problems.discordance == 0.04)
    rates = clustered_validity.rates_in_setting("superior", method, shape, losses, 200, np.random.default_rng(0))
    assert (rates.wrong > 0.2, rates.covered < 0.8) == (errs, errs)
    assert rates.confirmed <= rates.wrong
