"""Rank correlations of many rows at once, against scipy one pair at a time."""

import math

import numpy as np
import pytest
from scipy import stats

from analysis.stats.correlations import correlate_rows, fisher_interval, pairs_needed, weighted_rho


def table(seed: int = 0, tokens: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Rows: smooth, with ties, with tokens left out, constant, and mostly left out; a label of few ones."""
    draw = np.random.default_rng(seed)
    values = draw.normal(size=(5, tokens))
    values[1] = np.round(values[1])
    values[2, draw.random(tokens) < 0.3] = np.nan
    values[3] = 2.0
    values[4, 1:] = np.nan
    return values, (draw.random(tokens) < 0.3).astype(float)


def plain_auc(values: np.ndarray, label: np.ndarray) -> float:
    pairs = [(a > b) + (a == b) / 2 for a in values[label == 1] for b in values[label == 0]]
    return sum(pairs) / len(pairs)


@pytest.mark.parametrize("seed", range(3))
def test_each_row_is_scipys_spearman_and_the_share_of_pairs_in_order(seed):
    values, label = table(seed)
    found = correlate_rows(values, label)
    for at in range(3):
        known = np.isfinite(values[at])
        own, ones = values[at, known], label[known]
        assert found.rho[at] == pytest.approx(stats.spearmanr(own, ones).statistic, abs=1e-12)
        assert found.auc[at] == pytest.approx(plain_auc(own, ones), abs=1e-12)
        assert found.tokens[at] == known.sum()


def test_a_constant_row_a_constant_label_and_a_single_value_have_none():
    values, label = table()
    assert np.isnan(correlate_rows(values, label).rho[3:]).all()
    assert correlate_rows(values, label).auc[3] == 0.5  # all pairs tie
    for constant in (np.zeros(60), np.ones(60)):
        none = correlate_rows(values, constant)
        assert np.isnan([none.rho, none.partial, none.auc]).all()
    assert len(correlate_rows(np.empty((0, 60)), label).rho) == 0


def test_with_one_row_held_it_is_the_formula_of_three_correlations():
    values, label = table(4)
    position = np.arange(60.0)
    found = correlate_rows(values[:2], label, position[None]).partial
    for at, own in enumerate(values[:2]):
        xy, xh, yh = (stats.spearmanr(*pair).statistic for pair in ((own, label), (own, position), (label, position)))
        assert found[at] == pytest.approx((xy - xh * yh) / math.sqrt((1 - xh**2) * (1 - yh**2)), abs=1e-12)


def test_with_several_held_it_is_the_correlation_of_what_regressions_leave():
    values, label = table(5)
    held = np.stack([np.arange(60.0), np.minimum(np.arange(60.0), 8), np.full(60, 3.0)])  # the last is constant
    known = np.isfinite(values[2])
    design = np.column_stack([np.ones(known.sum()), *(stats.rankdata(row[known]) for row in held)])
    left = [
        (ranks := stats.rankdata(side[known])) - design @ np.linalg.lstsq(design, ranks, rcond=None)[0]
        for side in (values[2], label)
    ]
    assert correlate_rows(values, label, held).partial[2] == pytest.approx(stats.pearsonr(*left).statistic, abs=1e-9)


def test_nothing_is_left_of_a_row_that_is_what_is_held():
    _, label = table()
    found = correlate_rows(np.stack([np.arange(60.0), -(np.arange(60.0) ** 3)]), label, np.arange(60.0)[None])
    assert np.isnan(found.partial).all()
    assert np.isfinite(found.rho).all()


def test_weights_are_copies_written_out():
    values, label = table(6)
    copies = np.random.default_rng(0).multinomial(60, np.full(60, 1 / 60), size=4)
    found = weighted_rho(values[1], label, copies.astype(float))
    for drawn, own in zip(found, copies, strict=True):
        expected = stats.spearmanr(np.repeat(values[1], own), np.repeat(label, own)).statistic
        assert drawn == pytest.approx(expected, abs=1e-12)
    assert np.isnan(weighted_rho(values[3], label, copies.astype(float))).all()


@pytest.mark.parametrize(("rho", "traces"), [(0.1, 783), (0.2, 194), (0.3, 85)])
def test_the_traces_of_the_usual_table_of_correlations(rho, traces):
    assert pairs_needed(rho, 0.05, 0.8) == traces
    assert pairs_needed(-rho, 0.05, 0.8) == traces


def test_fishers_limits_by_hand():
    low, high = fisher_interval(0.0, 103)  # tanh(1.959964 / 10)
    assert (low, high) == pytest.approx((-0.1935247, 0.1935247), abs=1e-6)
    assert fisher_interval(1.0, 10) == (1.0, 1.0)
    assert fisher_interval(0.3, 3) is None
    assert fisher_interval(math.nan, 30) is None


def test_wrong_shapes_and_labels_are_refused_in_one_line():
    values, label = table()
    for wrong, why in (
        ((values[0], label), "values"),
        ((values, label[1:]), "values"),
        ((values, np.where(label == 1, np.nan, 0)), "label"),
        ((values, label, np.arange(60.0)), "held"),
        ((values, label, np.full((1, 60), np.nan)), "held"),
    ):
        with pytest.raises(ValueError, match=f"^{why}: [^\n]*$"):
            correlate_rows(*wrong)
    with pytest.raises(ValueError, match="rho"):
        pairs_needed(0.0, 0.05, 0.8)
