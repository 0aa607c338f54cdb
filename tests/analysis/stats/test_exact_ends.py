"""Simultaneous intervals near a ceiling: no method's is shorter than the exact one, and each covers."""

import numpy as np
import pytest
from scipy import stats

from analysis.stats import paired_tests, restricted_likelihood
from analysis.stats.comparison import Comparison
from analysis.stats.exact_ends import GAP_TO_NULL, StudyEnds, widen_ends, widen_to_exact
from analysis.stats.max_t import max_t
from analysis.stats.methods import METHODS
from analysis.stats.paired_tests import student_t

FAMILY, STUDIES = 4, 120


def families(gained: float, problems: int, seeds: int) -> np.ndarray:
    """[study, problem, contrast]: gained with this chance, by all seeds, in half of the cells together."""
    draw = np.random.default_rng(seeds)
    shared, own = draw.random((STUDIES, problems, 1)), draw.random((STUDIES, problems, FAMILY))
    alike = draw.random((STUDIES, problems, FAMILY)) < 0.5
    return (np.where(alike, shared, own) < gained).astype(float)


def intervals(method: str, cells: list[np.ndarray], known: dict[int, Comparison]) -> list[Comparison]:
    """known: by the number of gained problems, as their order says nothing."""
    rng = np.random.default_rng(0)
    if method == "max-t":
        return max_t([cells], draws=999, rng=rng)[0]
    for cell in cells:
        if (gains := int(cell[:, 0].sum())) not in known:
            known[gains] = paired_tests.compare(method, cell, level=1 - 0.05 / FAMILY, draws=999, rng=rng)
    return [known[int(cell[:, 0].sum())] for cell in cells]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("gained", "problems", "seeds"), [(0.02, 201, 3), pytest.param(0.01, 299, 1, marks=pytest.mark.soak)]
)
def test_a_family_of_intervals_covers_gains_without_a_loss(method, gained, problems, seeds):
    held, known = 0, dict[int, Comparison]()
    for study in families(gained, problems, seeds):
        cells = [np.tile(cell[:, None], (1, seeds)) for cell in study.T]
        held += all(interval.low <= gained <= interval.high for interval in intervals(method, cells, known))
    assert stats.binomtest(held, STUDIES, 0.95, alternative="less").pvalue > 1e-3


def test_without_the_exact_ends_students_intervals_do_not_cover():
    held = 0
    for study in families(0.02, 201, 1):
        found = [student_t(cell[:, None], level=1 - 0.05 / FAMILY) for cell in study.T]
        held += all(one.low <= 0.02 <= one.high for one in found)
    assert held < 0.85 * STUDIES  # so the test above can fail


@pytest.mark.parametrize("null", [0.0, 0.02])
def test_the_null_is_excluded_where_it_was_and_nowhere_else(null):
    draw, seen = np.random.default_rng(2), set()
    for _ in range(60):
        difference = draw.choice([-1.0, 0.0, 1.0], (80, 1), p=[0.01, 0.89, 0.1])
        difference[:2] = [[1.0], [0.0]]
        before = student_t(difference)
        after = widen_to_exact(before, difference, level=0.95, null=null)
        least = restricted_likelihood.compare(difference)
        out = [not one.low <= null <= one.high for one in (before, after)]
        assert out[0] == out[1]
        assert (after.mean, after.p) == (before.mean, before.p)
        assert after.low <= before.low
        assert after.high >= before.high
        assert after.low <= least.low or after.low == pytest.approx(null + GAP_TO_NULL)
        assert after.high >= least.high
        seen.add(out[0])
    assert seen == {True, False}


def test_an_interval_holds_the_null_where_p_is_one_half():
    """Two problems, all five seeds gained in one and four in the other: no two problems reject anything."""
    difference = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]])
    found = paired_tests.compare("exact-bootstrap", difference, level=0.95, draws=0, rng=np.random.default_rng(0))
    assert found.p == 0.5
    assert found.low <= 0 <= found.high


def test_ends_of_many_studies_by_hand():
    ends = StudyEnds(np.array([-0.1, 0.01, 0.01, -0.2]), np.array([0.1, 0.2, 0.2, -0.01]))
    least = np.array([[-0.2, 0.05], [-0.02, 0.3], [0.005, 0.1], [-0.1, 0.02]])
    found = widen_ends(ends, least)
    assert found.low.tolist() == [-0.2, 1e-6, 0.005, -0.2]
    assert found.high.tolist() == [0.1, 0.3, 0.2, -1e-6]


def test_what_the_exact_test_cannot_count_keeps_its_interval():
    for difference in (np.zeros((30, 1)), np.array([[0.5], [0.25], [0.0], [-0.5]])):
        found = student_t(difference)
        assert widen_to_exact(found, difference, level=0.95) == found
