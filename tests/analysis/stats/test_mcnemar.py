import numpy as np
import pytest
from scipy import stats

from analysis.stats.interval import DegenerateDifference, newcombe_paired
from analysis.stats.mcnemar import mcnemar
from analysis.stats.pairing import difference


def answers(both: int, gained: int, lost: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    own = [1.0] * (both + gained) + [0.0] * (lost + neither)
    other = [1.0] * both + [0.0] * gained + [1.0] * lost + [0.0] * neither
    return np.array(own)[:, None], np.array(other)[:, None]


@pytest.mark.parametrize("table", [(36, 12, 2, 0), (5, 1, 8, 20), (0, 3, 3, 4), (10, 9, 0, 0)])
def test_the_p_is_the_binomial_of_the_discordant_pairs(table):
    found = mcnemar(*answers(*table))
    assert found.p == pytest.approx(stats.binomtest(table[1], table[1] + table[2]).pvalue)
    assert found.mean == pytest.approx((table[1] - table[2]) / sum(table))
    assert (found.low, found.high) == newcombe_paired(*table)


def test_no_discordant_pair_is_no_evidence():
    found = mcnemar(*answers(7, 0, 0, 5))
    assert (found.mean, found.p) == (0.0, 1.0)
    assert found.low < -0.1 < 0.1 < found.high


@pytest.mark.parametrize(
    ("own", "other", "says"),
    [
        ([[1, 0], [0, 1]], [[1, 1], [0, 0]], "2 draws of a problem are not independent pairs"),
        ([[1], [0]], [[1]], "pair the problems first"),
        ([[1]], [[0]], r"1 problem\(s\)"),
        ([[np.nan], [0]], [[1], [0]], "not finite"),
        ([[0.5], [0]], [[1], [0]], "neither 0 nor 1"),
        (np.empty((0, 1)), np.empty((0, 1)), r"0 problem\(s\)"),
    ],
)
def test_what_mcnemars_test_is_not_for_is_refused_by_name(own, other, says):
    with pytest.raises(DegenerateDifference, match=says):
        mcnemar(own, other)


def test_arms_are_paired_by_problem_id():
    own = {"a": [1, 1], "b": [0, 1], "c": [0, 0]}
    other = {"c": [1, 0], "a": [0, 1], "b": [0, 1]}
    assert difference(own, other).tolist() == [[1, 0], [0, 0], [-1, 0]]


@pytest.mark.parametrize(
    ("own", "other", "says"),
    [
        ({}, {"a": [1]}, "own: an empty arm"),
        ({"a": [1]}, {}, "other: an empty arm"),
        ({"a": [1], "b": [1]}, {"a": [1], "c": [0]}, "other: lacks problem 'b', one of 2 unpaired"),
        ({"a": [1]}, {"a": [1], "b": [0]}, "own: lacks problem 'b', one of 1 unpaired"),
        ({"a": [1], "b": [1]}, {"a": [1], "b": [0, 1]}, "problem 'b': 2 seeds, others have 1"),
        ({"a": [1, 0], "b": [1]}, {"a": [1, 0], "b": [0]}, "problem 'b': 1 seeds, others have 2"),
    ],
)
def test_unpaired_arms_are_refused_by_name(own, other, says):
    with pytest.raises(DegenerateDifference, match=says):
        difference(own, other)
