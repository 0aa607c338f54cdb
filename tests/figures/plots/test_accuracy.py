import math

import drawing_checks
import judgements
import lanes
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy import stats

from analysis.stats.interval import clopper_pearson
from figures.plots.accuracy import accuracy, arm_accuracy

ONE_SEED = {f"needle/512/0/{i:03d}": i < 3 for i in range(8)}  # three of eight


# ---------------------------------------------------------------- intervals


@pytest.mark.parametrize(
    ("correct", "problems"), [(0, 1), (1, 1), (0, 25), (25, 25), (3, 8), (83, 210), (201, 210), (1500, 3000)]
)
def test_exact_limits_are_those_of_clopper_and_pearson(correct, problems):
    limits = stats.binomtest(correct, problems).proportion_ci(0.95, method="exact")
    assert clopper_pearson(correct, problems) == pytest.approx((limits.low, limits.high), abs=1e-9)


def test_no_correct_answer_of_n_leaves_the_limit_at_which_that_happens_once_in_forty_times():
    low, high = clopper_pearson(0, 10)
    assert low == 0
    assert (1 - high) ** 10 == pytest.approx(0.025)


def test_with_one_seed_the_interval_of_an_arm_is_exact():
    found = arm_accuracy(lanes.table(lanes.lanes("crystal", ONE_SEED)))
    assert found == (0.375, *clopper_pearson(3, 8), 8)


def test_a_problem_without_a_grade_is_left_out():
    found = arm_accuracy(lanes.table(lanes.lanes("crystal", ONE_SEED | {"needle/512/0/000": None})))
    assert found == (pytest.approx(2 / 7), *clopper_pearson(2, 7), 7)


def test_seeds_of_a_problem_are_averaged_before_problems():
    grades = {"a": [1, 1], "b": [0, None], "c": [1, 0]}
    found = arm_accuracy(lanes.table(lanes.lanes("crystal", grades)))
    assert found.mean == pytest.approx((1 + 0 + 0.5) / 3)
    assert found.problems == 3
    assert 0 <= found.low < found.mean < found.high <= 1


def test_several_seeds_that_agree_count_as_one_answer_and_not_as_several():
    """The bootstrap of 60 problems with two equal seeds is near the exact interval of 60, not of 120."""
    grades = {f"{i}": [i < 30, i < 30] for i in range(60)}
    found = arm_accuracy(lanes.table(lanes.lanes("crystal", grades)))
    low, high = clopper_pearson(30, 60)
    assert found.high - found.low == pytest.approx(high - low, rel=0.1)


def test_an_interval_of_seeds_that_all_agree_stays_within_0_and_1():
    found = arm_accuracy(lanes.table(lanes.lanes("crystal", {f"{i}": [1, 1] for i in range(30)})))
    assert found.mean == found.high == 1
    assert found.low < 1


def test_nothing_is_known_of_an_arm_without_a_grade():
    found = arm_accuracy(lanes.table(lanes.lanes("crystal", {"a": None})))
    assert math.isnan(found.mean)
    assert found.problems == 0
    assert arm_accuracy(lanes.table(lanes.lanes("crystal", {"a": [1, 0]})))[:3] == (0.5, 0, 1)


# ---------------------------------------------------------------- the drawing


def study():
    """Two budgets; the judgement lists the budgets of an arm together, as `analysis.judge` does."""
    arms, rows = [judgements.arm("full")], [lanes.lanes("full", ONE_SEED | {"x": 1}, budget="full")]
    contrasts = []
    for number, arm in enumerate(("crystal", "snapkv", "h2o")):
        for budget in ("0.3", "0.5"):
            arms.append(judgements.arm(arm, budget=budget))
            solves = {f"{i}": i <= number + (budget == "0.5") for i in range(8)}
            if (arm, budget) == ("h2o", "0.5"):
                solves = {"0": None}
            rows.append(lanes.lanes(arm, solves, budget=budget))
    for budget in ("0.3", "0.5"):
        for against in ("snapkv", "h2o"):
            contrasts.append(judgements.contrast(against, *judgements.FIVE["h2o"], budget=budget))
    return judgements.judgement(contrasts, arms=arms), lanes.table(*rows)


@pytest.fixture(scope="module")
def figure() -> Figure:
    return drawing_checks.drawn(accuracy, *study())


def test_points_and_intervals_are_those_of_the_lanes(figure):
    found = drawing_checks.by_gid(figure)
    expected = [1, 2, 3, 2, 3]  # of eight: crystal, snapkv, h2o at 0.3; crystal, snapkv at 0.5
    for index, count in enumerate(expected):
        (point,), (interval,) = found[f"point-{index}"], found[f"interval-{index}"]
        assert point.get_xdata()[0] == pytest.approx(100 * count / 8)
        assert list(interval.get_xdata()) == pytest.approx([100 * end for end in clopper_pearson(count, 8)])
        assert {*point.get_ydata(), *interval.get_ydata()} == {point.get_ydata()[0]}


def test_the_plot_takes_most_of_the_page(figure):
    assert figure.axes[0].get_position().width > 0.5


def test_an_arm_without_a_grade_has_no_point_and_says_so(figure):
    assert "point-5" not in drawing_checks.by_gid(figure)
    assert [text.get_text() for text in drawing_checks.texts(figure)].count("not graded") == 1


def test_a_row_prints_its_numbers_beside_its_point(figure):
    y = drawing_checks.by_gid(figure)["point-2"][0].get_ydata()[0]
    row = [text.get_text() for text in drawing_checks.texts(figure) if text.get_position()[1] == y]
    low, high = (f"{100 * end:.1f}" for end in clopper_pearson(3, 8))
    assert {"h2o", "37.5", f"[{low}, {high}]", "8"} <= set(row)


def test_the_full_cache_is_a_line_through_every_group_of_its_task_with_its_numbers(figure):
    found = drawing_checks.by_gid(figure)
    for group in range(2):
        assert list(found[f"full-{group}"][0].get_xdata()) == pytest.approx([100 * 4 / 9] * 2)
    assert [text.get_text() for text in drawing_checks.texts(figure)].count("44.4") == 2


def test_a_study_without_a_full_cache_has_no_such_line():
    judged, rows = study()
    rows = rows[rows["arm"] != "full"]
    assert not [gid for gid in drawing_checks.by_gid(accuracy(judged, rows)) if "full" in gid]


def test_only_the_subject_is_filled(figure):
    found = drawing_checks.by_gid(figure)
    filled = {gid for gid, (point,) in found.items() if "point" in gid and point.get_marker() == "s"}
    assert filled == {"point-0", "point-3"}


def test_it_says_that_it_is_exploratory_and_what_the_intervals_are(figure):
    said = drawing_checks.said(figure)
    assert "exploratory" in said
    assert "Intervals are per arm; for paired contrasts see the forest plot" in said
    assert "Clopper-Pearson" in said
    assert "INCONCLUSIVE" in said


@pytest.mark.parametrize("length", [1, 8])
def test_every_text_lies_on_the_page_and_on_no_other(length):
    judged, rows = study()
    model = "a-model-of-a-long-name-" * (length - 1) + "tiny"
    places = [contrast | {"model": model} for contrast in judged["contrasts"]]
    arms = [one | {"model": model} for one in judged["arms"]]
    judged = judged | {"title": "Of several words " * length, "contrasts": places, "arms": arms}
    figure = drawing_checks.drawn(accuracy, judged, rows.assign(model=model))
    assert f"{model} · needle-512 · budget 0.3" in drawing_checks.said(figure)


def test_scores_and_clusters_of_an_arm_are_resampled():
    """Of scores no count is exact. Copies of a problem in its cluster leave the interval as it is."""
    scores = {f"{i}": (i * 7 % 11) / 10 for i in range(30)}
    one = lanes.table(lanes.lanes("crystal", scores)).assign(correct=lambda table: table["problem"].map(scores))
    found = arm_accuracy(one)
    assert found.mean == pytest.approx(sum(scores.values()) / 30)
    means = np.array([scores[f"{i}"] for i in range(30)])
    drawn = np.random.default_rng(0).choice(means, (10_000, 30)).mean(axis=1)
    assert (found.low, found.high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.01)
    copies = pd.concat([one.assign(problem=one["problem"] + f"/{n}", cluster=one["problem"]) for n in range(4)])
    again = arm_accuracy(copies)
    assert (again.low, again.high) == pytest.approx((found.low, found.high), abs=0.01)
    assert again.problems == 120
