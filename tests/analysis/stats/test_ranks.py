import math

import numpy as np
import pytest
from scipy import stats

from analysis.stats.ranks import rank_correlation, spearman


def test_rho_by_hand():
    # squared differences of ranks 1, 1, 1, 1, 0: 1 - 6 * 4 / (5 * 24)
    assert spearman([10, 20, 30, 40, 50], [2, 1, 4, 3, 5]) == pytest.approx(0.8)
    # ranks 1.5, 1.5, 3 and 1, 2, 3: 1.5 / sqrt(1.5 * 2)
    assert spearman([7, 7, 9], [1, 2, 3]) == pytest.approx(1.5 / math.sqrt(3))


def test_rho_is_that_of_scipy_with_ties():
    rng = np.random.default_rng(4)
    for _ in range(20):
        one, other = rng.integers(0, 5, size=(2, 12))
        assert spearman(one, other) == pytest.approx(stats.spearmanr(one, other).statistic)


def test_only_the_order_counts():
    one, other = [1.0, 2.0, 5.0, 9.0, 4.0], [3.0, 1.0, 2.0, 8.0, 5.0]
    assert spearman(np.exp(one), other) == spearman(one, other) == -spearman(np.negative(one), other)


def test_limits_by_hand():
    # atanh(0.8) = 1.098612, half = 1.959964 * sqrt((1 + 0.32) / 2) = 1.592282
    told = rank_correlation([1, 2, 3, 4, 5], [2, 1, 4, 3, 5])
    assert told is not None
    assert told.n == 5
    assert told.rho == pytest.approx(0.8)
    assert told.low == pytest.approx(math.tanh(1.098612 - 1.592282), abs=1e-6)
    assert told.high == pytest.approx(math.tanh(1.098612 + 1.592282), abs=1e-6)


def test_a_perfect_order_has_itself_as_limits():
    told = rank_correlation(range(6), range(6))
    assert told == (1.0, 1.0, 1.0, 6)
    assert rank_correlation(range(6), range(6, 0, -1)) == (-1.0, -1.0, -1.0, 6)


def test_too_few_pairs_and_a_side_of_one_value_have_none():
    assert rank_correlation([1, 2, 3, 4], [1, 2, 3, 4]) is None
    assert rank_correlation([], []) is None
    assert rank_correlation([1, 1, 1, 1, 1], [1, 2, 3, 4, 5]) is None
    assert math.isnan(spearman([1], [2]))


@pytest.mark.parametrize("other", [[1.0, 2.0], [1.0, 2.0, math.nan], [1.0, 2.0, math.inf]])
def test_what_has_no_rank_is_refused(other):
    with pytest.raises(ValueError, match=r"ranked|rank"):
        spearman([1.0, 2.0, 3.0], other)
