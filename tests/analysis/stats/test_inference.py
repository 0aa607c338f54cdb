import numpy as np
import pytest
from looped import looped
from scipy import stats

from analysis.stats import bootstrap, paired_tests
from analysis.stats.interval import DegenerateDifference, problem_means
from analysis.stats.methods import METHODS
from analysis.stats.paired_tests import sign_flip, student_t

TWO_TAILS = ("restricted-likelihood", "auto")  # no rule of their own for problems that all agree


def study(problems: int, seeds: int, seed: int, drift: float = 0.1) -> np.ndarray:
    """Differences of a fictitious study, [problem, seed], in {-1, 0, 1}, never all alike."""
    draw = np.random.default_rng(seed)
    values = draw.choice([-1.0, 0.0, 1.0], (problems, seeds), p=[0.3 - drift, 0.4, 0.3 + drift])
    values[0], values[1] = 1.0, 0.0
    return values


COUNTING = [name for name in METHODS if name != "betting"]  # bets have a test of their own: test_betting


def by(method: str, difference, level: float = 0.95, draws: int = 2_000, seed: int = 3):
    return paired_tests.compare(method, difference, level=level, draws=draws, rng=np.random.default_rng(seed))


# ---------------------------------------------------------------- bootstrap


@looped(("problems", "seeds"), [(12, 1), (40, 3), (250, 2)])
@looped("level", [0.95, 1 - 0.05 / 6])
def test_the_bootstrap_interval_is_scipys_percentile_interval(problems, seeds, level):
    difference = study(problems, seeds, problems)
    ours = bootstrap.paired(difference, reps=3_000, level=level, rng=np.random.default_rng(5))
    theirs = stats.bootstrap(
        (difference.mean(axis=1),),
        np.mean,
        n_resamples=3_000,
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(5),
    ).confidence_interval
    assert ours.mean == pytest.approx(difference.mean(), abs=1e-12)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_the_bootstrap_p_is_that_of_a_plain_loop():
    difference = study(25, 3, 8)
    rng, below, above, reps = np.random.default_rng(2), 0, 0, 400
    for _ in range(reps):
        total = 0  # in thirds of a point, so that zero is exact
        for problem in rng.integers(0, 25, 25):
            total += round(sum(difference[problem]))
        below, above = below + (total <= 0), above + (total >= 0)
    expected = min(1, 2 * (min(below, above) + 1) / (reps + 1))
    assert 0.01 < expected < 1
    assert bootstrap.paired(difference, reps=reps, rng=np.random.default_rng(2)).p == pytest.approx(expected)


def test_blocks_of_draws_continue_one_stream(monkeypatch):
    difference = study(30, 1, 4)
    whole = [by("bootstrap", difference), by("sign-flip", difference)]
    monkeypatch.setattr("analysis.stats.bootstrap.BLOCK", 30 * 7)
    monkeypatch.setattr("analysis.stats.paired_tests.BLOCK", 30 * 8)
    assert by("bootstrap", difference) == whole[0]
    small = by("sign-flip", difference)  # numpy may fill bytes differently, but draws as many
    assert small.p == pytest.approx(whole[1].p, abs=0.06)


def test_a_drawn_p_is_never_zero():
    difference = np.ones((60, 1))
    difference[0] = 0.0
    assert by("bootstrap", difference, draws=99).p == pytest.approx(2 / 100)
    assert by("sign-flip", difference, draws=99).p == pytest.approx(2 / 100)


@looped("method", METHODS)
def test_repeating_every_sample_of_a_problem_adds_no_information(method):
    difference = study(30, 2, 1)
    assert by(method, np.tile(difference, (1, 5))) == pytest.approx(by(method, difference), abs=1e-9)


@looped("method", METHODS)
def test_repeating_the_problems_does_add_information(method):
    difference = study(40, 1, 1)
    once, five = by(method, difference), by(method, np.tile(difference, (5, 1)))
    assert five.high - five.low < 0.6 * (once.high - once.low)


@looped("method", METHODS)
def test_exchanging_the_arms_mirrors_everything_but_p(method):
    difference = study(12, 1, 6)  # exact for sign flips
    one, other = by(method, difference, draws=10_000), by(method, -difference, draws=10_000)
    assert (other.mean, other.low, other.high) == pytest.approx((-one.mean, -one.high, -one.low), abs=0.05)
    assert other.p == pytest.approx(one.p, abs=0.02)


# ---------------------------------------------------------------- Student


@pytest.mark.parametrize("problems", [3, 20, 200])
def test_student_is_scipys_one_sample_test_on_problem_means(problems):
    difference = study(problems, 3, problems)
    theirs = stats.ttest_1samp(difference.mean(axis=1), 0)
    for level in (0.95, 1 - 0.05 / 6):
        interval = theirs.confidence_interval(level)
        ours = student_t(difference, level=level)
        assert ours.p == pytest.approx(theirs.pvalue, rel=1e-9)
        expected = max(-1.0, interval.low), min(1.0, interval.high)
        assert (ours.low, ours.high) == pytest.approx(expected, abs=1e-9)


def test_students_interval_stays_among_possible_differences():
    few = student_t([[1.0], [-1.0], [1.0]])
    assert (few.low, few.high) == (-1.0, 1.0)


# ---------------------------------------------------------------- sign flips


@looped("seed", range(6))
@looped("seeds", [1, 3])
def test_exact_sign_flips_are_scipys_permutation_test(seed, seeds):
    difference = study(11, seeds, seed, drift=0.05 * seed)
    theirs = stats.permutation_test(
        (difference.mean(axis=1).round(12),),
        lambda x, axis: np.round(x.sum(axis=axis), 9),
        permutation_type="samples",
        n_resamples=np.inf,
        vectorized=True,
    )
    assert by("sign-flip", difference, draws=2**11).p == pytest.approx(theirs.pvalue, abs=1e-12)


@looped(("gains", "losses", "equal"), [(9, 1, 3), (6, 0, 5), (4, 4, 4), (7, 3, 2), (1, 5, 0)])
def test_with_one_seed_exact_sign_flips_are_mcnemars_test(gains, losses, equal):
    difference = np.array([[1.0]] * gains + [[-1.0]] * losses + [[0.0]] * equal)
    exact = stats.binomtest(gains, gains + losses).pvalue
    assert by("sign-flip", difference, draws=2 ** (gains + losses + equal)).p == pytest.approx(exact)


def test_drawn_sign_flips_are_close_to_the_exact_test():
    difference = np.array([[1.0]] * 21 + [[-1.0]] * 8 + [[0.0]] * 41)
    exact = stats.binomtest(21, 29).pvalue
    assert by("sign-flip", difference, draws=40_000).p == pytest.approx(exact, abs=0.003)


def test_three_seeds_that_cancel_are_exactly_no_difference():
    cancelling = [[1 / 3, 1 / 3, -2 / 3]] * 4 + [[1.0, 1.0, 1.0]] * 3 + [[-1.0, -1.0, -1.0]] * 3
    assert by("sign-flip", cancelling).p == 1.0


# ---------------------------------------------------------------- interval and p agree


@pytest.mark.parametrize("method", ["sign-flip", "t"])
@pytest.mark.parametrize("level", [0.95, 1 - 0.05 / 6])
@pytest.mark.parametrize("problems", [8, 12, 30, 80])
def test_the_interval_excludes_zero_exactly_when_p_is_at_most_one_minus_level(method, level, problems):
    seen = set()
    for seed in range(40):
        difference = study(problems, 1 + seed % 3, seed, drift=0.3 * (seed % 5) / 4)
        found = by(method, difference, level=level, seed=seed)
        excludes = not found.low <= 0 <= found.high
        assert excludes == (found.p <= 1 - level), (seed, found)
        assert -1 <= found.low <= found.mean <= found.high <= 1
        seen.add(excludes)
    assert False in seen
    assert True in seen or problems == 8


@pytest.mark.parametrize("problems", [7, 10, 30])  # exact, exact, drawn
def test_a_sign_flip_interval_reaches_zero_at_the_level_of_its_own_p(problems):
    stricter, draw = set(), np.random.default_rng(problems)
    for seed in range(60):
        # Not on a lattice, so that p of either test may be the larger one.
        difference = draw.uniform(-1, 1, (problems, 1)).clip(-1, 0.9 if seed % 2 else 0.3) * (-1) ** seed
        p = by("sign-flip", difference, seed=seed).p
        if p > 0.9:
            continue
        rejected, kept = (by("sign-flip", difference, level=1 - p * near, seed=seed) for near in (1 + 1e-6, 1 - 1e-6))
        assert not rejected.low <= 0 <= rejected.high
        assert kept.low <= 0 <= kept.high
        stricter.add((np.sign(difference.mean()), student_t(difference).p > p))
    assert stricter == {(1, True), (1, False), (-1, True), (-1, False)}


def test_a_sign_flip_interval_is_as_wide_as_students_where_it_does_not_reject():
    shorter = 0
    for losses in range(4):
        for equal in (10, 40, 90):
            difference = np.array([[1.0]] * 4 + [[-1.0]] * losses + [[0.0]] * equal)
            flips, t = sign_flip(difference, draws=2_000, rng=np.random.default_rng(3)), student_t(difference)
            assert flips.low <= t.low or flips.low > 0
            assert flips.high >= t.high
            shorter += flips.high > t.high
    assert shorter < 12  # Student's end was taken somewhere


@pytest.mark.parametrize("method", ["sign-flip", "t"])
def test_a_mean_near_zero_is_covered_as_often_as_claimed(method):
    draw, covered, studies = np.random.default_rng(0), 0, 400
    for seed in range(studies):
        difference = draw.choice([-1.0, 0.0, 1.0], (40, 1), p=[0.05, 0.75, 0.2])
        found = by(method, difference, draws=1_000, seed=seed)
        covered += found.low <= 0.15 <= found.high
    assert stats.binomtest(covered, studies, 0.95, alternative="less").pvalue > 1e-3


def test_a_single_gain_excludes_no_small_loss():
    # The inverted test alone would end at zero: shifting eleven equal problems makes them all discordant.
    found = by("sign-flip", [[1.0], *[[0.0]] * 11], draws=2**12)
    assert found.p == 1.0
    assert found.low < -0.05
    mirrored = by("sign-flip", [[-1.0], *[[0.0]] * 11], draws=2**12)
    assert mirrored.high == pytest.approx(-found.low)


# ---------------------------------------------------------------- degenerate differences


@looped("method", METHODS)
@looped(
    ("difference", "says"),
    [
        ([[1.0]], r"1 problem\(s\)"),
        (np.empty((0, 3)), r"0 problem\(s\)"),
        ([1.0, 0.0, 1.0], r"shape \(3,\)"),
        (np.empty((3, 0)), r"shape \(3, 0\)"),
        ([[0.0, 1.0], [0.0, np.nan]], r"difference\[1, 1\]: nan is not finite"),
        ([[0.0], [-np.inf]], r"difference\[1, 0\]: -inf is not finite"),
        ([[4.0], [-2.0]], r"\[-1, 1\]; pass points, not percent"),
    ],
)
def test_a_difference_without_a_meaning_is_refused_by_name(method, difference, says):
    with pytest.raises(DegenerateDifference, match=says):
        by(method, difference)


@looped("method", COUNTING)
@looped("problems", [10, 60, 300])
def test_no_discordance_at_all_gives_the_rule_of_three(method, problems):
    found = by(method, np.zeros((problems, 2)))
    assert (found.mean, found.p) == (0.0, 1.0)
    # n agreeing problems have probability 5 % when a share `high` of all problems is discordant. The exact
    # test takes 2.5 % at either end, here as anywhere.
    chance = 0.025 if method in TWO_TAILS else 0.05
    assert (1 - found.high) ** problems == pytest.approx(chance)
    assert found.low == pytest.approx(-found.high)
    assert found.high == pytest.approx(-np.log(chance) / problems, rel=0.2)


@looped("method", COUNTING)
def test_the_rule_of_three_widens_with_the_level(method):
    nominal, simultaneous = (by(method, np.zeros((50, 1)), level=level).high for level in (0.95, 1 - 0.05 / 6))
    chance = 0.05 / 6 / (2 if method in TWO_TAILS else 1)
    assert simultaneous == pytest.approx(1 - chance ** (1 / 50))
    assert simultaneous > nominal


@looped("method", COUNTING)
@looped("sign", [1.0, -1.0])
def test_problems_that_all_differ_alike_are_judged_by_the_sign_test(method, sign):
    found = by(method, np.full((9, 1), sign))
    assert (found.mean, found.p) == pytest.approx((sign, 2.0**-8))
    assert (found.high if sign > 0 else -found.low) == pytest.approx(1.0)
    assert 0 < abs(found.low if sign > 0 else found.high) < 1


@looped("method", METHODS)
@looped("problems", [30, 299])
@looped("seeds", [[1.0], [1.0, 0.0, 0.0], [-1.0, -1.0, -1.0]])
def test_no_method_is_sure_of_anything_by_one_problem_that_differs(method, problems, seeds):
    # |t| is 1 whatever the number of problems: p = .32. Sign flips have p = 1.
    difference = np.zeros((problems, len(seeds)))
    difference[0] = seeds
    found = by(method, difference)
    assert found.p >= stats.t.sf(1, problems - 1) * 2 - 1e-9 > 0.3
    assert found.low < 0 < found.high


def test_the_seeds_of_a_problem_are_averaged_first():
    assert problem_means([[1.0, 0.0, 0.0], [-1.0, 1.0, 0.0]]).tolist() == [round(1 / 3, 12), 0.0]


def test_no_other_method_compares_two_arms_and_those_that_draw_are_known():
    with pytest.raises(KeyError):
        by("wilcoxon", [[1.0], [0.0]])
    drawn = {name for name, method in METHODS.items() if method.draws}
    assert drawn == {
        "bootstrap",
        "as-published",
        "t",
        "sign-flip",
        "max-t",
    }  # t draws nothing, but the p beside it are drawn
