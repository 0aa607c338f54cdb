"""Whether what is kept of needed tokens says if an answer is right: found where it does."""

import numpy as np
import pytest
from scipy import stats
from simulated_anatomy import ORACLE, written

from protocol.instruments.anatomy.analysis.__main__ import main
from protocol.instruments.anatomy.analysis.screening import (
    Answers,
    collect_answers,
    correlate_over_policies,
    fit_over_problems,
)
from protocol.instruments.anatomy.analysis.token_classes import class_of
from protocol.instruments.anatomy.analysis.traces import read_anatomy


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def drawn(slope: float, traces: int = 40, seed: int = 1) -> Answers:
    """Six arms at two budgets; the log odds of a right answer rise by `slope` for each whole share kept."""
    draw = rng(seed)
    kept = np.clip(draw.normal([[[0.3], [0.4], [0.5], [0.55], [0.6], [0.7]]], 0.2, (traces, 6, 2)), 0, 1)
    odds = slope * (kept - 0.5) + draw.normal(0, 1, (traces, 1, 1))
    right = (draw.random(kept.shape) < 1 / (1 + np.exp(-odds))).astype(float)
    names = tuple(map(str, range(traces)))
    return Answers(tuple("abcdef"), ("32", "64"), names, kept, kept, right, 0)


def test_a_slope_that_is_there_is_found_and_none_where_there_is_none():
    found = fit_over_problems(drawn(4.0), 500, rng())
    assert found["state"] == "fitted"
    assert 0.1 < found["within"]["interval"][0] < found["within"]["value"] < found["within"]["interval"][1] < 0.8
    assert found["slope"]["interval"][0] > 0.02
    none = fit_over_problems(drawn(0.0), 500, rng())
    assert none["within"]["interval"][0] < 0 < none["within"]["interval"][1]
    assert none["slope"]["interval"][0] < 0 < none["slope"]["interval"][1]


def test_the_slope_is_that_of_least_squares_with_every_trace_and_budget_held():
    of = drawn(2.0, 12)
    rows = [(t, a, b) for t in range(12) for a in range(6) for b in range(2)]
    held = np.array([[t == i // 2 and b == i % 2 for i in range(24)] for t, _, b in rows], dtype=float)
    design = np.column_stack([[of.kept[row] for row in rows], held])
    expected = np.linalg.lstsq(design, np.array([of.right[row] for row in rows]), rcond=None)[0][0] / 10
    assert fit_over_problems(of, 50, rng())["slope"]["value"] == pytest.approx(expected, abs=1e-9)


def test_what_cannot_be_fitted_is_said():
    of = drawn(1.0)
    split = of._replace(right=(of.kept > 0.5).astype(float), kept=np.where(of.kept > 0.5, 0.9, 0.1))
    for wrong, why in (
        (of._replace(right=np.ones_like(of.right)), "all answers are right"),
        (of._replace(kept=np.full_like(of.kept, 0.5)), "same share"),
        (of._replace(right=np.full_like(of.right, np.nan)), "no arm was asked"),
        (split, "not fitted"),
        (Answers(of.arms, of.budgets, ("a",) * 40, of.kept, of.auc, of.right, 0), "too few"),
    ):
        found = fit_over_problems(wrong, 50, rng())
        assert why in found["state"]
        assert found["within"] is None


def test_over_policies_it_is_spearman_of_means_and_few_arms_have_none():
    of = drawn(4.0)
    of.kept[3, 2, 0] = of.right[3, 2, 0] = of.auc[3, 2, 0] = np.nan  # one arm failed once
    rows = correlate_over_policies(of, 200, rng())
    for at, row in enumerate(rows):
        means = [np.nanmean(side[:, :, at], axis=0) for side in (of.kept, of.right)]
        assert row["rho_kept"] == pytest.approx(stats.spearmanr(*means).statistic, abs=1e-9)
        low, high = row["interval_kept"]
        assert low <= row["rho_kept"] <= high
    assert rows[0]["arms"][2]["traces"] == 39
    few = Answers(of.arms[:4], of.budgets, of.clusters, *(x[:, :4] for x in (of.kept, of.auc, of.right)), 0)
    assert [row["rho_kept"] for row in correlate_over_policies(few, 20, rng())] == [None, None]
    assert correlate_over_policies(answers_of_none(), 20, rng()) == []


def answers_of_none() -> Answers:
    empty = np.empty((0, 0, 0))
    return Answers((), (), (), empty, empty, empty, 0)


def test_the_oracle_is_no_policy_and_everything_is_printed(tmp_path, capsys):
    folder = written(tmp_path / "study", rng(1), planted=("key_norm", 1), helps=0.8, states={0: "wrong", 1: "unmoved"})
    anatomy = read_anatomy(folder)
    found = collect_answers(anatomy, anatomy.pairs[0])
    assert ORACLE not in found.arms
    assert ORACLE in {kept.arm for trace in anatomy.traces for kept in trace.outcomes}
    assert (len(found.kept), found.without) == (22, 1)
    assert main([str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "The registered test has not been made yet." in printed
    assert "* key_norm" in printed
    assert "* hidden_change" not in printed
    assert ORACLE not in printed
    assert main([str(tmp_path)]) == 2


def test_a_token_has_one_class():
    told = {"12": "number", " x2": "number", " plus": "word", "é": "word", ".": "punctuation", "": "special"}
    told |= {" \n": "space", "<|im_end|>": "special", "</s>": "special", "<": "punctuation", "+": "punctuation"}
    assert {piece: class_of(piece) for piece in told} == told
