import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from figures.drawing.shares import axis_label, compute_share


def answers(*problems: list[int]) -> tuple[pd.DataFrame, pd.Series]:
    """One list a problem, one entry a seed: whether the answer has the property."""
    rows = [(f"p{number}", value) for number, values in enumerate(problems) for value in values]
    table = pd.DataFrame(rows, columns=["problem", "having"])
    return table, table["having"] == 1


def every(table: pd.DataFrame) -> pd.Series:
    return pd.Series(True, index=table.index)


@pytest.mark.parametrize(("count", "of"), [(0, 1), (1, 1), (0, 40), (40, 40), (3, 8), (83, 210)])
def test_with_one_seed_the_limits_are_those_of_wilson(count, of):
    table, having = answers(*([int(i < count)] for i in range(of)))
    expected = stats.binomtest(count, of).proportion_ci(0.95, method="wilson")
    found = compute_share(table, having, every(table))
    assert (found.share, found.n_matching, found.n_total) == (count / of, count, of)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_seeds_that_always_agree_count_once():
    problems = [i < 12 for i in range(40)]
    once, thrice = (answers(*([int(value)] * seeds for value in problems)) for seeds in (1, 3))
    alone, found = (compute_share(table, having, every(table)) for table, having in (once, thrice))
    assert found[:3] == pytest.approx(alone[:3], abs=1e-12)
    assert (found.n_matching, found.n_total) == (36, 120)


@pytest.mark.parametrize("value", [0, 1])
def test_answers_that_are_all_alike_count_once_a_problem(value):
    found = compute_share(*(of := answers(*([value] * 3 for _ in range(20)))), every(of[0]))
    expected = stats.binomtest(20 * value, 20).proportion_ci(0.95, method="wilson")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_seeds_that_always_differ_count_as_no_more_than_answers():
    table, having = answers(*([0, 1] for _ in range(30)))
    expected = stats.binomtest(30, 60).proportion_ci(0.95, method="wilson")
    found = compute_share(table, having, every(table))
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_the_effective_number_of_answers_is_that_of_a_hand_count():
    """Three problems of two seeds with 2, 1 and 0: share 1/2, residuals 1, 0, -1, so that the variance of the
    share is 2/36 where six independent answers have 1/24: 4.5 answers.
    """
    table, having = answers([1, 1], [1, 0], [0, 0])
    z2, size = stats.norm.ppf(0.975) ** 2, 4.5
    half = math.sqrt(z2 * 0.25 / size + z2**2 / (4 * size**2)) / (1 + z2 / size)
    found = compute_share(table, having, every(table))
    assert (found.low, found.high) == pytest.approx((0.5 - half, 0.5 + half))


def test_only_the_answers_asked_for_are_counted():
    table, having = answers([1, 1], [1, 0], [0, 0])
    among = table["problem"] != "p0"
    assert compute_share(table, having, among)[3:] == (1, 4)
    assert compute_share(table, having, among).share == 0.25


def test_an_answer_that_is_not_asked_for_weighs_on_no_limit():
    """Beside those of the hand count, problems of which nothing is asked."""
    alone, asked = (answers([1, 1], [1, 0], [0, 0], *more) for more in ([], [[0, 1], [1, 1]]))
    among = asked[0]["problem"].isin(["p0", "p1", "p2"])
    assert compute_share(*asked, among) == compute_share(*alone, every(alone[0]))


def test_nothing_is_known_of_no_answers():
    table, having = answers([1, 0])
    found = compute_share(table, having, ~every(table))
    assert (found.n_matching, found.n_total) == (0, 0)
    assert all(map(math.isnan, found[:3]))


def test_limits_of_dependent_answers_hold_about_as_often_as_they_say():
    rng = np.random.default_rng(7)
    problems, seeds, p, held = 60, 3, 0.3, 0
    table = pd.DataFrame({"problem": np.repeat(np.arange(problems), seeds)})
    for _ in range(200):
        own = rng.random((problems, 1)) < p
        fresh = rng.random((problems, seeds)) < p
        having = pd.Series(np.where(rng.random((problems, seeds)) < 0.8, own, fresh).ravel())
        found = compute_share(table, having, every(table))
        held += found.low <= p <= found.high
    assert held >= 182  # 95 % of 200, less two and a half standard errors


def test_scores_have_their_mean_and_limits_of_answers_with_that_mean():
    """Scores vary no more than right and wrong answers do: Wilson's limits at the number of problems."""
    values = [0.25, 1.0, 0.0, 0.6, 0.9, 0.35, 0.5, 0.4]
    table = pd.DataFrame({"problem": [f"p{i}" for i in range(8)], "having": values})
    found = compute_share(table, table["having"], every(table))
    assert (found.share, found.n_matching, found.n_total) == (0.5, 4, 8)
    assert found[:3] == pytest.approx(compute_share(*answers(*([i < 4] for i in range(8))), every(table))[:3])


def test_a_share_of_scores_says_so_and_one_of_answers_does_not():
    table = pd.DataFrame({"problem": ["a", "b", "c"], "having": [0.25, 1.0, math.nan]})
    scores = compute_share(table, table["having"], table["having"].notna())
    assert (scores.share, scores.n_matching, scores.n_total) == (0.625, 1.25, 2)
    right = compute_share(*(of := answers([1], [0])), every(of[0]))
    assert [axis_label([right]), axis_label([right, scores])] == ["correct answers, %", "mean score, %"]


def test_answers_of_a_cluster_count_as_far_as_they_differ():
    """Five problems that always agree are one: the limits are those of their clusters alone."""
    once, having = answers(*([int(i < 12)] for i in range(40)))
    five = pd.concat([once] * 5, ignore_index=True)
    clusters = five.assign(problem=[f"q{i}" for i in range(200)], cluster=five["problem"])
    alone = compute_share(once, having, every(once))
    assert compute_share(clusters, clusters["having"], every(clusters))[:3] == pytest.approx(alone[:3])
