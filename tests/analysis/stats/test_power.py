import numpy as np
import pytest
from looped import looped
from sampled import sampled
from scipy import stats

from analysis.stats import paired_tests, power
from analysis.stats.methods import METHODS
from analysis.stats.paired_tests import student_t

CORRECTED = 0.05 / 6


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def differences(counts: list[int]) -> np.ndarray:
    """[problem, seed] with counts[i] problems whose k seeds sum to i - k."""
    k = len(counts) // 2
    rows = []
    for total, count in zip(range(-k, k + 1), counts, strict=True):
        rows += [[float(np.sign(total))] * abs(total) + [0.0] * (k - abs(total))] * count
    return np.array(rows)


SMALL = [[2, 9, 1], [1, 6, 5], [0, 7, 5], [0, 5, 7], [4, 4, 4], [5, 6, 1], [0, 12, 0], [0, 0, 12]]
THREE = [[0, 1, 1, 5, 1, 2, 2], [1, 0, 0, 5, 0, 3, 3], [0, 0, 2, 3, 4, 2, 1], [0, 0, 12, 0, 0, 0, 0]]


@looped("counts", [*SMALL, *THREE], ids=str)
def test_simulated_p_values_of_exact_methods_are_those_of_the_methods(counts):
    for method in ("t", "sign-flip", "exact-bootstrap"):
        simulated = power.p_values(method, np.array([counts]), 2**12, rng())
        real = paired_tests.compare(method, differences(counts), level=0.95, draws=2**12, rng=rng())
        assert simulated[0] == pytest.approx(real.p, abs=1e-9), method


@looped("counts", [[1, 6, 5], [4, 4, 4], [0, 1, 1, 5, 1, 2, 2]], ids=str)
@looped("method", ["bootstrap", "sign-flip"])
def test_simulated_p_values_of_drawn_methods_have_the_mean_of_the_methods(method, counts):
    draws, repeats = 1_000, 60
    simulated = power.p_values(method, np.array([counts] * repeats), draws, rng())
    difference = differences(counts)
    real = [paired_tests.compare(method, difference, level=0.95, draws=draws, rng=rng(i)).p for i in range(repeats)]
    noise = np.hypot(np.std(real), np.std(simulated)) / np.sqrt(repeats)
    assert abs(np.mean(simulated) - np.mean(real)) <= 4 * noise + 1e-12


def test_a_simulated_p_of_drawn_samples_is_never_zero():
    for method in ("bootstrap", "sign-flip"):
        assert power.p_values(method, np.array([[0, 1, 59]]), 99, rng())[0] == pytest.approx(2 / 100)


def test_studies_are_answered_in_their_order_and_alike():
    mixed = np.array([SMALL[3], SMALL[0], SMALL[3], SMALL[7]])
    p = power.p_values("sign-flip", mixed, 2**12, rng())
    assert p[0] == p[2] == pytest.approx(2.0**-6)  # seven gains and no loss
    assert p[3] == 2.0**-11
    t = power.p_values("t", mixed, 0, rng())
    assert t[:3] == pytest.approx([student_t(differences(SMALL[i])).p for i in (3, 0, 3)])


@pytest.mark.parametrize("method", sampled([*METHODS], of=5))
def test_more_problems_find_smaller_effects(method):
    found = [power.minimal_detectable_effect(n, 0.05, method=method, rng=rng()) for n in (60, 120, 240, 480)]
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == 4


def test_a_stricter_level_needs_a_larger_effect():
    loose, strict = (power.minimal_detectable_effect(150, alpha, rng=rng()) for alpha in (0.05, CORRECTED))
    assert loose < strict


def test_the_detectable_effect_has_the_power_that_was_asked_for():
    effect = power.minimal_detectable_effect(200, 0.05, method="t", rng=rng())
    draw = rng(1)
    outcomes = draw.choice([1.0, -1.0, 0.0], (3_000, 200), p=[0.1 + effect / 2, 0.1 - effect / 2, 0.8])
    assert np.mean(stats.ttest_1samp(outcomes, 0, axis=1).pvalue <= 0.05) == pytest.approx(0.8, abs=0.04)


def test_too_few_problems_detect_nothing():
    assert power.minimal_detectable_effect(10, CORRECTED, rng=rng()) is None


@looped(("alpha", "needed"), [(0.05, 2_000), (0.05 / 4, 8_000), (0.05 / 6, 12_000), (1.0, 100)])
def test_fifty_draws_are_expected_in_each_tail(alpha, needed):
    assert power.draws_needed(alpha) == needed


@looped(
    ("method", "draws", "alpha", "problems", "enough"),
    [
        ("bootstrap", 2_000, 0.05, None, True),
        ("bootstrap", 1_999, 0.05, None, False),
        ("sign-flip", 1_999, 0.05, 200, False),
        ("sign-flip", 2_000, 0.05, 200, True),
        ("t", 0, 0.0001, None, True),
        ("sign-flip", 1_024, 0.05, 10, True),  # exact
        ("sign-flip", 1_023, 0.05, 10, False),  # drawn, and too few
        ("sign-flip", 10_000, 0.05, 5, False),  # the smallest p of five problems is 1/16
        ("sign-flip", 10_000, 0.05, 6, True),  # and of six 1/32
        ("bootstrap", 1_024, 0.05, 10, False),
    ],
)
def test_draws_are_enough_when_the_tail_can_be_counted(method, draws, alpha, problems, enough):
    assert power.has_enough_draws(method, draws, alpha, problems) is enough


def test_an_unknown_method_and_a_single_problem_are_refused():
    with pytest.raises(ValueError, match="'bca' is unknown"):
        power.minimal_detectable_effect(30, 0.05, method="bca", rng=rng())
    with pytest.raises(ValueError, match="plan at least two"):
        power.minimal_detectable_effect(1, 0.05, rng=rng())


def test_max_t_of_a_contrast_without_a_family_is_the_sign_flip_test():
    counts = np.array([[3, 30, 9], [0, 40, 2]])
    one, other = (power.p_values(name, counts, 9_999, rng()) for name in ("max-t", "sign-flip"))
    assert one.tolist() == other.tolist()
    assert power.minimal_detectable_effect(200, 0.05, method="max-t", rng=rng()) is not None
    # 50 draws in each tail of the family's alpha
    assert power.has_enough_draws("max-t", 2_000, 0.05)
    assert not power.has_enough_draws("max-t", 1_999, 0.05)


def test_thousands_of_problems_overflow_nothing():
    assert power.p_values("sign-flip", np.array([[10, 2_080, 10]]), 999, rng())[0] > 0.5
    assert power.has_enough_draws("sign-flip", 2_000, 0.05, 5_000)
