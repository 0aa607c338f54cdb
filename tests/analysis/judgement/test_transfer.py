"""One cell on two models: both effects, whether their signs agree, and how far apart they are."""

import numpy as np
import pytest
from scipy import stats

from analysis.judgement.failure_modes import transfer_table
from analysis.stats.interval import DegenerateDifference
from analysis.stats.paired_tests import student_t


def cells(seed: int, **gained: float) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {name: draw.choice([-1.0, 0.0, 1.0], (80, 2), p=[0.05, 0.95 - up, up]) for name, up in gained.items()}


def test_each_cell_shows_both_effects_and_how_far_apart_they_are():
    primary, transfer = cells(0, won=0.5, even=0.05, turned=0.5), cells(1, won=0.5, even=0.05, turned=0.0)
    transfer["turned"] = -cells(2, turned=0.5)["turned"]
    rows = {row.cell: row for row in transfer_table(primary, transfer)}
    assert [row.signs for row in rows.values()] == ["agree", "open", "oppose"]
    for name, row in rows.items():
        assert row.primary == student_t(primary[name])
        assert row.transfer == student_t(transfer[name])
        means = transfer[name].mean(axis=1) - primary[name].mean(axis=1)
        theirs = stats.ttest_1samp(means, 0)
        interval = theirs.confidence_interval(0.95)
        assert row.apart == pytest.approx((means.mean(), interval.low, interval.high, theirs.pvalue))
    assert rows["turned"].apart.high < 0 < rows["won"].apart.high


def test_models_that_move_together_are_told_apart_by_their_pairs():
    one = cells(0, won=0.4)
    moved = {"won": one["won"].copy()}
    moved["won"][:5] = 0.0
    apart = transfer_table(one, moved)[0].apart
    assert apart.high - apart.low < 0.6 * (student_t(one["won"]).high - student_t(one["won"]).low)


@pytest.mark.parametrize(
    ("primary", "transfer", "says"),
    [
        (cells(0, a=0.1), cells(0, b=0.1), r"\['a', 'b'\] exist on one model only"),
        ({}, {}, "at least one"),
        (cells(0, a=0.1), {"a": np.zeros((79, 2))}, "a: the models have 80 and 79 problems"),
        (cells(0, a=0.1), {"a": np.full((80, 2), np.nan)}, "not finite"),
    ],
)
def test_cells_that_are_not_on_both_models_are_refused_by_name(primary, transfer, says):
    with pytest.raises(DegenerateDifference, match=says):
        transfer_table(primary, transfer)


def test_problems_in_clusters_are_compared_by_clusters():
    """Four copies of a problem in its cluster are that problem."""
    primary, transfer = cells(0, won=0.5), cells(1, won=0.3)
    (alone,) = transfer_table(primary, transfer)
    copies = [{"won": np.repeat(each["won"], 4, axis=0)} for each in (primary, transfer)]
    names = np.repeat([str(i) for i in range(80)], 4).tolist()
    (found,) = transfer_table(*copies, clusters={"won": names})
    for part in ("primary", "transfer", "apart"):
        assert getattr(found, part) == pytest.approx(getattr(alone, part))
    assert transfer_table(*copies)[0].apart.high < found.apart.high
