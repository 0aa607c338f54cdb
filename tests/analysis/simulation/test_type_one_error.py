"""How often a method rejects where nothing differs, against sums that are worked out otherwise."""

import numpy as np
import pytest
from scipy import stats

from analysis.simulation import error_estimate, null_populations, null_settings, type_one_error
from analysis.simulation.null_settings import Setting
from analysis.simulation.study_pool import RateLimits, make_pool
from analysis.stats import power


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def rate_in(method: str, problems: int, seeds: int, level: float, setting: Setting) -> RateLimits:
    """The chance that a method rejects in one population."""
    shares = null_populations.shares(setting, seeds)
    pool = make_pool([shares], problems, [level], 2_000, rng())
    return pool.rate(shares, type_one_error.screened_p_values(method, pool.counts, rng()) <= level)


def test_one_seed_is_counted_out_as_the_exact_test_of_mcnemar():
    expected = 0.0
    for differ in range(61):
        wins = [won for won in range(differ + 1) if stats.binomtest(won, max(differ, 1)).pvalue <= 0.0125]
        share = sum(stats.binom.pmf(won, differ, 0.5) for won in wins) if differ else 0.0
        expected += stats.binom.pmf(differ, 60, 0.17) * share
    found = rate_in("sign-flip", 60, 1, 0.0125, Setting("symmetric", 0.17))
    assert found.rate == found.low == found.high == pytest.approx(expected, abs=1e-5)


def test_a_skewed_population_is_counted_out_as_it_comes_up():
    # 200 problems, 3 seeds: 1.5 % gain one seed, 0.5 % lose all three. Drawn one by one, with scipy's own t.
    gained = rng(1).choice([-1.0, 1 / 3, 0.0], (4_000, 200), p=[0.005, 0.015, 0.98])
    moved = np.ptp(gained, axis=1) > 0
    rejected = (stats.ttest_1samp(gained[moved], 0, axis=1).pvalue <= 0.05).sum()
    low, high = stats.binomtest(int(rejected), 4_000).proportion_ci(0.999)
    found = rate_in("t", 200, 3, 0.05, Setting("gains one seed", 0.02))
    assert low < found.rate < high
    assert found.rate > 0.1  # three rejections in twenty, where one was promised


@pytest.mark.parametrize("level", [0.05, 0.001])
def test_where_more_kinds_of_problems_differ_tilted_studies_are_weighed_to_the_same_rate(level):
    """A study of two seeds has five kinds of problems: drawn plainly, with scipy's own t."""
    setting = Setting("symmetric", 0.17)
    shares = null_populations.shares(setting, 2)
    plain = rng(2).choice([-1.0, -0.5, 0.0, 0.5, 1.0], (40_000, 30), p=shares)
    moved = np.ptp(plain, axis=1) > 0
    rejected = int((stats.ttest_1samp(plain[moved], 0, axis=1).pvalue <= level).sum())
    low, high = stats.binomtest(rejected, 40_000).proportion_ci(0.999)
    found = rate_in("t", 30, 2, level, setting)
    assert found.low < found.rate < found.high
    assert found.low < high
    assert low < found.high
    assert found.high - found.low < 1.25 * found.rate


def test_the_rate_between_two_populations_of_a_pool_is_that_of_its_own_pool():
    """The pool of two shares of problems that differ, weighed at a third."""
    ends = [null_populations.shares(Setting("gains one seed", share), 3) for share in (0.04, 0.06)]
    between = null_populations.shares(Setting("gains one seed", 0.05), 3)
    shared, own = (make_pool(populations, 200, [0.05], 2_000, rng()) for populations in (ends, [between]))
    rates = [
        pool.rate(between, type_one_error.screened_p_values("t", pool.counts, rng()) <= 0.05) for pool in (shared, own)
    ]
    assert rates[0].rate == pytest.approx(rates[1].rate, abs=1e-5)


def test_no_share_of_differing_problems_is_left_out():
    """One seed, 250 problems, 8 contrasts: the bootstrap errs most between 2 and 5 %, as counted over all studies."""
    found = type_one_error.worst_type_one_error("bootstrap", 250, 1, 0.05 / 8, rng())
    assert found.studies == 0
    assert found.ratio == pytest.approx(1.52, abs=0.01)
    assert found.setting.discordance == pytest.approx(0.029, abs=0.001)
    lost, gained = np.mgrid[:60, :60].reshape(2, -1)
    counts = np.stack([lost, 250 - lost - gained, gained], axis=1)
    p = power.p_values("bootstrap", counts, None, rng())
    chance = stats.multinomial.pmf(counts, 250, [0.0147, 1 - 0.0294, 0.0147])
    assert found.rate == pytest.approx(chance[p <= 0.05 / 8].sum(), rel=1e-3)


def test_studies_are_added_until_an_error_is_known_to_be_below_its_limit_or_above_it(monkeypatch):
    """The test of restricted likelihood holds, and 40 studies do not show it, nor that the bootstrap errs."""
    monkeypatch.setattr(type_one_error, "ESTIMATE_STUDIES", 40)
    held, errs = (
        type_one_error.errors_by_kind(method, 60, 2, [0.0125], rng())[0][0]
        for method in ("restricted-likelihood", "bootstrap")
    )
    assert held.studies > 40
    assert not held.exceeds()
    assert errs.ratio_low > error_estimate.LIMIT


def test_at_thirty_problems_the_percentile_bootstrap_errs_and_sign_flips_and_t_do_not():
    bootstrap, flips, t = (
        type_one_error.worst_type_one_error(method, 30, 1, 0.05 / 6, rng())
        for method in ("bootstrap", "sign-flip", "t")
    )
    assert bootstrap.exceeds()
    assert not flips.exceeds()
    assert flips.ratio < 1
    assert not t.exceeds()


@pytest.mark.parametrize(("family", "ratio"), [(12, 1.2), (48, 2.0)])
def test_the_bootstrap_of_one_seed_errs_where_one_answer_in_twenty_differs(family, ratio):
    # Between 10 and 25 % it holds its level, which is where it was looked at before.
    found = type_one_error.worst_type_one_error("bootstrap", 200, 1, 0.05 / family, rng())
    assert 0.02 < found.setting.discordance < 0.06
    assert found.ratio > ratio
    assert found.exceeds()
    usual = [rate_in("bootstrap", 200, 1, 0.05 / 4, Setting("symmetric", share)) for share in (0.17, 0.25)]
    assert all(one.rate < 1.2 * 0.05 / 4 for one in usual)


@pytest.mark.parametrize("method", ["t", "sign-flip", "bootstrap"])
def test_no_method_that_trusts_in_symmetry_holds_where_few_losses_are_total(method):
    found = type_one_error.worst_type_one_error(method, 287, 3, 0.05 / 4, rng())
    assert found.ratio_high > 2
    assert found.setting.kind == null_settings.GAINS


def test_of_max_t_one_contrast_is_the_sign_flip_test():
    one, other = (type_one_error.worst_type_one_error(name, 30, 1, 0.01, rng()) for name in ("max-t", "sign-flip"))
    assert one == other


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="'bca' is unknown"):
        type_one_error.worst_type_one_error("bca", 30, 1, 0.05, rng())


@pytest.mark.parametrize("method", ["sign-flip", "bootstrap", "restricted-likelihood"])
def test_studies_that_t_finds_nowhere_near_are_left_out_without_a_change(method, monkeypatch):
    shares = null_populations.shares(Setting("symmetric", 0.25), 3)
    counts = rng().multinomial(100, shares, 3_000)
    screened = type_one_error.screened_p_values(method, counts, rng())
    monkeypatch.setattr(type_one_error, "SCREEN_ABOVE", 10**9)
    every = type_one_error.screened_p_values(method, counts, rng())
    assert ((screened <= 0.1) == (every <= 0.1)).all()


@pytest.mark.parametrize("method", ["t", "sign-flip", "bootstrap", "max-t"])
def test_of_scores_most_methods_err_and_bets_hold(method):
    """60 % gain a step of a score where 1 % lose all of it is one of the populations."""
    assert max(null_populations.discordances("gains one seed", null_populations.SCORE_STEPS)) >= 0.61
    assert type_one_error.worst_error_of_scores(method, 100, 0.0125, rng()).ratio_low > 2
    assert not type_one_error.worst_error_of_scores("betting", 100, 0.0125, rng()).exceeds()
