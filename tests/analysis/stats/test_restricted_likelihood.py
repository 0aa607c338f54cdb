"""The restricted-likelihood test, against a general optimiser, enumeration, closed forms and simulation."""

import itertools

import numpy as np
import pytest
from looped import looped
from sampled import sampled
from scipy import optimize, stats

from analysis.stats import power, restricted_likelihood
from analysis.stats.interval import DegenerateDifference
from analysis.stats.methods import EXACT_BELOW
from analysis.stats.paired_tests import auto, student_t
from analysis.stats.restricted_likelihood import compare, limits, null_shares, p_values, tails, tost


def lanes(counts: list[int]) -> np.ndarray:
    """[problem, seed] in {-1, 0, 1} with so many problems at the sums -k, ..., k."""
    k = len(counts) // 2
    sums = np.repeat(np.arange(-k, k + 1), counts)
    return np.where(np.arange(k) < np.abs(sums)[:, None], np.sign(sums)[:, None], 0).astype(float)


def likeliest(counts: list[int], null: float) -> np.ndarray:
    """By a general optimiser, every sum allowed a share."""
    x = np.arange(len(counts)) - len(counts) // 2
    seen = np.array(counts) > 0

    def against(p: np.ndarray) -> float:
        return -float(np.array(counts)[seen] @ np.log(np.maximum(p[seen], 1e-12)))

    found = optimize.minimize(
        against,
        np.full(len(counts), 1 / len(counts)),
        bounds=[(0, 1)] * len(counts),
        constraints=[
            {"type": "eq", "fun": lambda p: p.sum() - 1},
            {"type": "eq", "fun": lambda p: p @ x - len(counts) // 2 * null},
        ],
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 1000},
    )
    return found.x


@looped("null", [-0.2, 0.0, 0.05])
@looped(
    "counts",
    [[3, 50, 9], [0, 50, 4], [0, 30, 0], [1, 0, 2, 40, 6, 3, 0], [0, 0, 0, 44, 16, 0, 0], [0, 0, 5, 20, 0, 0, 9]],
)
def test_the_shares_are_the_likeliest_that_have_the_mean(counts, null):
    (found,) = null_shares(np.array([counts]), null)
    x = np.arange(len(counts)) - len(counts) // 2
    assert found.sum() == pytest.approx(1)
    assert found @ x == pytest.approx(len(counts) // 2 * null, abs=1e-12)
    seen, theirs = np.array(counts) > 0, likeliest(counts, null)
    own, other = (np.array(counts)[seen] @ np.log(p[seen]) for p in (found, theirs))
    assert own == pytest.approx(other, abs=1e-5)
    assert own > other - 1e-7  # no optimiser does better
    assert found == pytest.approx(theirs, abs=2e-3)


def test_gains_of_one_seed_alone_are_held_against_losses_of_all_that_were_not_seen():
    # 12 of 60 are gained by one of three seeds. At the bound 48 and 12 weigh 48 and 12 x 3/4 = 9, and the
    # share w of total losses makes the mean zero: 3 w = (1 - w) x 9/57, so w is a twentieth.
    (found,) = null_shares(np.array([[0, 0, 0, 48, 12, 0, 0]]))
    assert found[0] == pytest.approx(1 / 20)
    assert found[[1, 2, 5, 6]] == pytest.approx([0] * 4)
    # A sum of 12 or more: j such losses, and 12 + 3 j gains or more among the others.
    losses = np.arange(17)
    reached = stats.binom.pmf(losses, 60, 1 / 20) * stats.binom.sf(11 + 3 * losses, 60 - losses, 9 / 57)
    assert compare(lanes([0, 0, 0, 48, 12, 0, 0])).p == pytest.approx(2 * reached.sum())


def test_with_one_seed_gains_and_losses_have_equal_shares():
    for gains, losses in ((6, 2), (4, 0), (9, 9)):
        (found,) = null_shares(np.array([[losses, 40, gains]]))
        other = (gains + losses) / 2 / (40 + gains + losses)
        assert found == pytest.approx([other, 1 - 2 * other, other])


@looped(("gains", "losses", "equal"), [(5, 0, 2), (3, 1, 3), (1, 0, 6), (4, 3, 0)])
def test_p_is_the_chance_over_all_outcomes_written_out(gains, losses, equal):
    n, each = gains + losses + equal, (gains + losses) / 2 / (gains + losses + equal)
    chance, reached = {1: each, 0: 1 - 2 * each, -1: each}, 0.0
    for outcome in itertools.product(chance, repeat=n):
        reached += np.prod([chance[one] for one in outcome]) * (sum(outcome) >= gains - losses)
    found = compare(lanes([losses, equal, gains]))
    assert found.p == pytest.approx(min(1.0, 2 * reached))
    assert compare(lanes([gains, equal, losses])).p == pytest.approx(found.p)


@looped("value", [-1, 0, 1])
@looped("null", [-0.1, 0.0, 0.03])
def test_where_all_problems_agree_a_tail_is_the_chance_of_no_other_problem(value, null):
    counts = np.zeros((1, 3), dtype=np.int64)
    counts[0, value + 1] = 40
    other = abs(null - value) / (1 + (value if null < value else -value)) if null != value else 0
    assert tails(counts, null)[0].min() == pytest.approx((1 - other) ** 40)


def test_gains_alone_have_the_upper_end_of_clopper_and_pearson():
    for gains, n in ((0, 60), (3, 201), (30, 299)):
        theirs = stats.binomtest(gains, n).proportion_ci().high
        assert compare(lanes([0, n - gains, gains])).high == pytest.approx(theirs, abs=1e-9)
        # Three seeds that all agree are one.
        assert compare(np.repeat(lanes([0, n - gains, gains]), 3, axis=1)).high == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_tail_rises_and_falls_with_the_null(k):
    draw = np.random.default_rng(k)
    counts = draw.multinomial(50, draw.dirichlet(np.full(2 * k + 1, 0.4)), 40)
    for null in np.linspace(-0.99, 0.98, 60):
        lower, higher = tails(counts, null), tails(counts, null + 0.01)
        assert (higher[:, 0] <= lower[:, 0] + 1e-12).all()
        assert (higher[:, 1] >= lower[:, 1] - 1e-12).all()


@looped("level", [0.95, 1 - 0.05 / 12])
@looped("counts", [[1, 80, 9], [0, 99, 1], [0, 0, 3, 40, 9, 2, 1], [2, 0, 0, 0, 0, 0, 9]])
def test_the_interval_holds_the_nulls_that_the_test_keeps(counts, level):
    found, table = compare(lanes(counts), level=level), np.array([counts])
    for end, out in ((found.low, -1e-6), (found.high, 1e-6)):
        if abs(end) < 1 - 1e-9:
            assert p_values(table, end + out)[0] < 1 - level < p_values(table, end - out)[0]
    assert limits(table, level=level)[0] == pytest.approx(found[1:3])


def test_margins_are_the_one_sided_tests_and_their_limits():
    counts = [3, 5, 2, 150, 12, 4, 6]
    found = tost(lanes(counts), (-0.04, 0.1), alpha=0.03)
    assert found.p_worse == pytest.approx(tails(np.array([counts]), -0.04)[0, 1])
    assert found.p_better == pytest.approx(tails(np.array([counts]), 0.1)[0, 0])
    assert (found.low, found.high) == compare(lanes(counts), level=0.94)[1:3]
    # Losses alone: no more than so many of n at a share of the margin.
    assert tost(lanes([4, 296, 0]), (-0.05, 0.05)).p_worse == pytest.approx(stats.binom.cdf(4, 300, 0.05))


def test_many_studies_in_blocks_are_answered_one_by_one(monkeypatch):
    counts = np.random.default_rng(1).multinomial(40, [0.1, 0.05, 0.1, 0.5, 0.1, 0.05, 0.1], 30)
    nulls = np.linspace(-0.1, 0.1, 30)
    alone = [p_values(row[None], null)[0] for row, null in zip(counts, nulls, strict=True)]
    monkeypatch.setattr(restricted_likelihood, "BLOCK", 256 * 7)
    assert p_values(counts, nulls) == pytest.approx(alone)
    assert power.p_values("restricted-likelihood", counts, 1, np.random.default_rng(0)) == pytest.approx(
        [compare(lanes(row.tolist())).p for row in counts]
    )


@looped("null", [[0.02, 0, 0, 0.92, 0.06, 0, 0], [0, 0, 0.06, 0.92, 0, 0, 0.02]])
@looped("problems", [60, 299])
def test_few_total_losses_against_many_small_gains_do_not_break_the_level(null, problems):
    # Equal on average, and few of 299 problems are lost with every seed: without one of them t is too sure.
    alpha, studies = 0.05 / 12, 20_000
    draw = np.random.default_rng(3)
    counts = draw.multinomial(problems, null, studies)
    exact, t = (
        int((power.p_values(method, counts, 1, draw) <= alpha).sum()) for method in ("restricted-likelihood", "t")
    )
    assert stats.binomtest(exact, studies, alpha, alternative="greater").pvalue > 1e-3
    if problems == 299:
        assert t > 2 * alpha * studies


@pytest.mark.parametrize(("problems", "discordance"), sampled([200, 500], [0.05, 0.25], of=2))
def test_the_level_holds_where_seeds_agree_by_chance(problems, discordance):
    draw = np.random.default_rng(4)
    each = discordance / 2
    counts = draw.multinomial(problems, [each, 1 - 2 * each, each], 20_000)
    for alpha in (0.05, 0.05 / 12):
        rejected = int((p_values(counts) <= alpha).sum())
        assert stats.binomtest(rejected, 20_000, alpha, alternative="greater").pvalue > 1e-3
        assert rejected > 0.1 * alpha * 20_000


def test_auto_is_exact_below_so_many_differing_problems_and_t_from_there_on():
    for direction in (1, -1):
        few, many = (
            [direction] * gains + [-direction] * 200 + [0] * 300 for gains in (EXACT_BELOW - 201, EXACT_BELOW - 200)
        )
        few, many = (np.array(values, dtype=float)[:, None] for values in (few, many))
        assert auto(few) == compare(few)
        assert auto(many) == student_t(many)
        rows = [np.array([[int((one == step).sum()) for step in (-1, 0, 1)]]) for one in (few, many)]
        for one, row in zip((few, many), rows, strict=True):
            (p,) = power.p_values("auto", row, 1, np.random.default_rng(0))
            assert p == pytest.approx(auto(one).p)


def test_what_is_not_on_the_lattice_is_refused():
    with pytest.raises(DegenerateDifference, match="not -1, 0 or 1"):
        compare([[0.5], [0.25]])
