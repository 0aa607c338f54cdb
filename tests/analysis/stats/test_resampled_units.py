"""Clusters in place of problems: every method against a plain loop over whole clusters, or statsmodels."""

import itertools

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

from analysis.stats import bootstrap, max_t, memory_charge, memory_matching, paired_tests
from analysis.stats.interval import DegenerateDifference
from analysis.stats.memory_matching import Reference
from analysis.stats.resampled_units import (
    compare_at_levels,
    compare_simultaneously,
    count_units,
    resampling_units,
    tost,
)

# Scores with ties at both ends, in clusters of 1 to 6 problems.
SIZES = (1, 6, 2, 4, 1, 3, 5, 2)
RNG = np.random.default_rng(3)
OF = [name for name, size in zip("abcdefgh", SIZES, strict=True) for _ in range(size)]
SHIFT = dict(zip("abcdefgh", (0.0, 0.8, 0.1, 0.3, -0.2, -0.1, 0.4, -0.3), strict=True))
UNEQUAL = RNG.normal([[SHIFT[name]] for name in OF], 0.2, (len(OF), 2)).clip(-1, 1).round(6)


def compared(method, difference, clusters, null=0.0, draws=2_000, level=0.9):
    (found,) = compare_at_levels(
        method, difference, clusters, [level], draws=draws, rng=lambda: np.random.default_rng(5), null=null
    )
    return found


def robust(difference, clusters):
    """Mean and its standard error: statsmodels' sandwich of an intercept, summed over clusters."""
    means = difference.mean(axis=1)
    _, groups = np.unique(clusters, return_inverse=True)
    fitted = sm.OLS(means, np.ones(len(means))).fit(cov_type="cluster", cov_kwds={"groups": groups})
    return float(fitted.params[0]), float(fitted.bse[0])


def test_student_of_clusters_has_the_cluster_robust_error_and_as_many_degrees_as_clusters():
    mean, error = robust(UNEQUAL, OF)
    reach = stats.t.ppf(0.95, 7) * error
    found = compared("t", UNEQUAL, OF)
    assert found[:3] == pytest.approx((mean, mean - reach, mean + reach))
    assert found.p == pytest.approx(2 * stats.t.sf(mean / error, 7))
    assert compared("t", UNEQUAL, OF, null=0.1).p == pytest.approx(2 * stats.t.sf((mean - 0.1) / error, 7))


def test_values_of_clusters_outside_the_range_of_points_are_compared_all_the_same():
    """One cluster of nine wins all, five of one lose: its z is 2/7 + 6/14 * 9 * 5/7, which is 3."""
    wide = np.array([[1.0]] * 9 + [[-1.0]] * 5)
    names = ["a"] * 9 + list("bcdef")
    assert resampling_units(wide, names).scale == 4
    mean, error = robust(wide, names)
    found = compared("t", wide, names)
    assert found.mean == pytest.approx(4 / 14)
    assert found.p == pytest.approx(2 * stats.t.sf(mean / error, 5))
    assert found.low == pytest.approx(mean - stats.t.ppf(0.95, 5) * error)
    assert found.high == 1 < mean + stats.t.ppf(0.95, 5) * error  # a mean of points is no larger


def test_the_bootstrap_draws_whole_clusters():
    """Of clusters of one size: the means of all problems of the drawn clusters, by a plain loop."""
    difference = UNEQUAL[:20]
    names = [str(i // 4) for i in range(20)]
    rng = np.random.default_rng(5)
    drawn = []
    for _ in range(400):
        chosen = rng.integers(0, 5, 5)
        pooled = [difference[4 * cluster + i].mean() for cluster in chosen for i in range(4)]
        drawn.append(sum(pooled) / 20)
    found = compared("bootstrap", difference, names, draws=400)
    assert found[1:3] == pytest.approx(np.quantile(drawn, [0.05, 0.95]))
    assert found.p == pytest.approx(min(1, 2 * (1 + sum(one <= 0 for one in drawn)) / 401))


def test_whole_clusters_are_flipped():
    """All 2^8 signs by enumeration: as many with a sum at least as large as what was observed, twice."""
    own = [sum(value.mean() for value, of in zip(UNEQUAL, OF, strict=True) if of == name) for name in "abcdefgh"]
    sums = [sum(np.multiply(signs, own)) for signs in itertools.product((1, -1), repeat=8)]
    larger = sum(one >= sum(own) - 1e-9 for one in sums)
    assert 1 < larger < 100
    found = compared("sign-flip", UNEQUAL, OF)
    assert (found.mean, found.p) == pytest.approx((UNEQUAL.mean(), 2 * larger / 256))


def test_clusters_without_a_difference_break_no_tie_of_flipped_signs():
    """Sizes 3, 2, 1 and 1, of which two differ: as often +2 as -2, so that p is that of two signs."""
    difference = np.array([0, 0, 0, 1, 1, 0, 1])[:, None].astype(float)
    assert compared("sign-flip", difference, list("aaabbcd")).p == pytest.approx(2 / 4)


def test_an_interval_of_flipped_clusters_has_the_null_means_that_are_not_rejected():
    """Each tried null flips what differs from it; the interval is widened to Student's where that reaches further."""
    found = compared("sign-flip", UNEQUAL, OF)
    for null in np.linspace(-0.9, 0.9, 37):
        (tried,) = compare_at_levels(
            "sign-flip", UNEQUAL, OF, [0.9], draws=2_000, rng=lambda: np.random.default_rng(5), null=null
        )
        if tried.p > 0.1:
            assert found.low - 1e-9 <= null <= found.high + 1e-9
        assert (tried.low <= null <= tried.high) == (tried.p > 0.1)


@pytest.mark.parametrize("method", ["t", "bootstrap", "sign-flip", "max-t"])
def test_clusters_of_one_problem_each_are_the_problems_with_all_their_seeds(method):
    """Also of right and wrong answers, whose ends are moved out to the exact ones."""
    whole = RNG.integers(-1, 2, (40, 2)).astype(float)
    names = [str(i) for i in range(40)]
    assert compared(method, whole, names) == compared(method, whole, None)
    (direct,) = paired_tests.compare_at_levels(method, whole, [0.9], draws=2_000, rng=lambda: np.random.default_rng(5))
    assert compared(method, whole, None) == direct


@pytest.mark.parametrize("method", ["t", "bootstrap", "sign-flip", "max-t"])
def test_copies_of_a_problem_in_its_cluster_add_nothing(method):
    alone = UNEQUAL[:, :1]
    names = [str(i) for i in range(len(alone))]
    copied = compared(method, np.repeat(alone, 5, axis=0), np.repeat(names, 5).tolist())
    assert copied == pytest.approx(compared(method, alone, None))


def test_tests_of_a_margin_have_the_cluster_robust_error():
    mean, error = robust(UNEQUAL, OF)
    found = tost(UNEQUAL, OF, 0.3, 0.0, alpha=0.05)
    assert found.p_worse == pytest.approx(stats.t.sf((mean + 0.3) / error, 7))
    assert found.p_better == pytest.approx(stats.t.sf((0.3 - mean) / error, 7))
    charged = tost(UNEQUAL, OF, 0.3, 0.05, alpha=0.05)
    assert charged.p_worse == pytest.approx(stats.t.sf((mean + 0.25) / error, 7))
    assert charged.low == pytest.approx(found.low - 0.05)
    assert tost(UNEQUAL, None, 0.3, 0.05, alpha=0.05) == memory_charge.tost(UNEQUAL, 0.3, 0.05, alpha=0.05)


def test_a_family_by_max_t_flips_whole_clusters():
    """Of clusters of one size as of their means; without clusters as of the problems."""
    two = [UNEQUAL[:20], -UNEQUAL[:20] / 2 + 0.1]
    names = [str(i // 4) for i in range(20)]
    means = [each.mean(axis=1).reshape(5, 4).mean(axis=1)[:, None] for each in two]

    def family(clusters, nulls):
        asked = [[(each, clusters, null) for each, null in zip(two, nulls, strict=True)]]
        return compare_simultaneously(asked, level=0.9, draws=500, rng=np.random.default_rng(1))

    known = max_t.max_t([means], level=0.9, draws=500, rng=np.random.default_rng(1), nulls=[[0.1, 0.0]])
    for found, expected in zip(family(names, (0.1, 0.0))[0], known[0], strict=True):
        assert found == pytest.approx(expected)
    plain = max_t.max_t([two], level=0.9, draws=500, rng=np.random.default_rng(1))
    assert family(None, (0.0, 0.0)) == plain


def test_a_family_of_clusters_of_any_size_has_p_that_no_scale_changes():
    wide = [UNEQUAL, np.roll(UNEQUAL, 3, axis=0)]
    assert {resampling_units(each, OF).scale for each in wide} != {1.0}
    (found,) = compare_simultaneously(
        [[(each, OF, 0.0) for each in wide]], level=0.9, draws=500, rng=np.random.default_rng(1)
    )
    for each, one in zip(wide, found, strict=True):
        mean, error = robust(each, OF)
        assert one.mean == pytest.approx(mean)
        assert one.high - one.mean > stats.t.ppf(0.9, 7) * error or one.high == 1


def test_interpolated_memory_is_resampled_by_whole_clusters():
    """Copies of the problems in their clusters: the same interval, which that of so many problems is not."""
    rng = np.random.default_rng(2)
    own, low, high = (rng.random((30, 1)) for _ in range(3))
    slots = [np.full((30, 1), at) + rng.normal(0, 1, (30, 1)) for at in (60, 40, 90)]
    names = [str(i) for i in range(30)]

    def interval(times, clusters):
        tables = [np.repeat(each, times, axis=0) for each in (own, low, high, *slots)]
        references = [Reference(tables[1], tables[4]), Reference(tables[2], tables[5])]
        at = memory_matching.interpolate_difference(tables[0], tables[3], references)
        return memory_matching.bootstrap_interpolated(
            tables[0], tables[3], references, at, reps=500, rng=np.random.default_rng(4), clusters=clusters
        )

    alone = interval(1, None)
    assert interval(4, np.repeat(names, 4).tolist()) == pytest.approx(alone)
    naive = interval(4, None)
    assert naive.high - naive.low < 0.7 * (alone.high - alone.low)


def test_units_are_counted():
    assert (count_units(None, 7), count_units(OF, len(OF)), count_units([], 0)) == (7, 8, 0)


def test_a_single_cluster_is_refused():
    with pytest.raises(DegenerateDifference, match="at least two"):
        resampling_units(UNEQUAL, ["a"] * len(UNEQUAL))


def test_points_and_not_percent_are_asked_for_with_clusters_too():
    with pytest.raises(DegenerateDifference, match="not percent"):
        resampling_units(100 * UNEQUAL, OF)


def test_the_bootstrap_of_units_is_found_in_their_scale():
    """What callers of one method do themselves: values in, `whole` out."""
    of = resampling_units(UNEQUAL, OF)
    assert of.scale > 1 >= np.abs(of.values).max()
    found = of.rescale(bootstrap.paired(of.values, rng=np.random.default_rng(0)))
    assert found.mean == pytest.approx(UNEQUAL.mean())
