import drawing_checks
import judgements
import lanes
import pandas as pd
import pytest
from matplotlib.figure import Figure

from figures.drawing.shares import compute_share
from figures.plots.budget_curve import budget_curve, budget_curves

BUDGETS = ("32", "64", "128")
RIGHT = {"crystal": (2, 6, 8), "h2o": (1, 3, 7)}  # of ten problems, by budget
FULL = 9


def lock(memory="slots"):
    return {"protocol": {"content": {"decision": {"memory": memory}}}}


def grades(count):
    return {f"p{i}": i < count for i in range(10)}


def study(models=("tiny",), tasks=("chain",), **changes):
    """Arms hold half a slot less than their budget, h2o a whole one."""
    arms, rows = [], []
    for model in models:
        for task in tasks:
            place = {"model": model, "task": task}
            arms.append(judgements.arm("full", **place))
            rows.append(lanes.lanes("full", grades(FULL), budget="full", **place))
            for arm, counts in RIGHT.items():
                for budget, count in zip(BUDGETS, counts, strict=True):
                    slots = float(budget) - (0.5 if arm == "crystal" else 1)
                    held = {"mean_slots": f"{slots:.6f}", "mean_bytes": f"{1024 * slots:.6f}"}
                    held |= {"mean_state_bytes": "2048.000000"}
                    arms.append(judgements.arm(arm, budget=budget, **place, **held))
                    rows.append(lanes.lanes(arm, grades(count), budget=budget, **place))
    return judgements.judgement(arms=arms, **changes), lanes.table(*rows)


SOUGHT = {
    "rule": "smallest_lossless",
    "smallest_lossless": [
        {"arm": "crystal", "smallest": "64", "steps": []},
        {"arm": "h2o", "smallest": None, "steps": []},
    ],
    "margin": "0.030000",
}


def drawing(locked=None, **changes) -> Figure:
    judged, rows = study(**changes)
    locked = locked or lock()
    return drawing_checks.drawn(budget_curve, judged, locked, budget_curves(judged, locked, rows))


@pytest.fixture(scope="module")
def figure() -> Figure:
    return drawing(**SOUGHT)


def test_a_line_has_a_point_a_budget_at_the_memory_that_was_measured(figure):
    found = drawing_checks.by_gid(figure)
    (line,) = found["line-tiny/chain/crystal"]
    assert list(line.get_xdata()) == [31.5, 63.5, 127.5]
    assert list(line.get_ydata()) == pytest.approx([20, 60, 80])
    (line,) = found["line-tiny/chain/h2o"]
    assert list(line.get_xdata()) == [31, 63, 127]


def test_limits_and_the_band_are_those_of_shares(figure):
    found = drawing_checks.by_gid(figure)
    _, rows = study()
    own = rows[(rows["arm"] == "crystal") & (rows["budget"] == "64")]
    expected = compute_share(own, own["correct"] == 1, own["correct"].notna())
    (limits,) = found["limits-tiny/chain/crystal"]
    (_, low), (_, high) = limits.get_segments()[1]
    assert (low, high) == pytest.approx((100 * expected.low, 100 * expected.high))
    full = rows[rows["arm"] == "full"]
    expected = compute_share(full, full["correct"] == 1, full["correct"].notna())
    box = found["full-tiny/chain"][0].get_extents().transformed(figure.axes[0].transData.inverted())
    assert (box.y0, box.y1) == pytest.approx((100 * expected.low, 100 * expected.high))


def test_a_full_cache_that_answers_everything_still_has_a_band():
    judged, rows = study()
    rows.loc[rows["arm"] == "full", "correct"] = 1.0
    (place,) = budget_curves(judged, lock(), rows)
    assert place.full.accuracy.share == place.full.accuracy.high == 1
    assert place.full.accuracy.low < 0.9


def test_the_smallest_lossless_budget_is_ringed_where_there_is_one_and_the_margin_drawn(figure):
    found = drawing_checks.by_gid(figure)
    (ring,) = found["smallest-tiny/chain/crystal"]
    assert (ring.get_xdata()[0], ring.get_ydata()[0]) == (63.5, pytest.approx(60))
    assert "smallest-tiny/chain/h2o" not in found
    (margin,) = found["margin-tiny/chain"]
    assert margin.get_ydata()[0] == pytest.approx(90 - 3)
    said = drawing_checks.said(figure)
    assert (
        "Smallest budget shown to be within 3.0 pp of the full cache: crystal 64, h2o at none of its budgets." in said
    )
    assert "exploratory" not in said


def test_without_such_a_rule_nothing_is_marked_and_it_says_that_it_is_exploratory():
    figure = drawing()
    assert not [gid for gid in drawing_checks.by_gid(figure) if gid.startswith(("smallest", "margin"))]
    assert "exploratory" in drawing_checks.said(figure)
    assert "INCONCLUSIVE" in drawing_checks.said(figure)


def test_the_axis_is_of_what_the_protocol_matches():
    for memory, first in (("bytes", 31.5), ("total", 33.5)):  # KiB; 2 of them are state
        figure = drawing(lock(memory))
        (line,) = drawing_checks.by_gid(figure)["line-tiny/chain/crystal"]
        assert line.get_xdata()[0] == first
        assert "KiB" in drawing_checks.said(figure)
    judged, rows = study()
    older = {"protocol": {"content": {"decision": {}}}}
    assert budget_curves(judged, older, rows) == budget_curves(judged, lock(), rows)


def test_a_study_of_one_budget_has_no_curve():
    judged, rows = study()
    arms = [one for one in judged["arms"] if one["budget"] in ("64", "full")]
    assert budget_curves(judged | {"arms": arms}, lock(), rows) == []


def test_an_arm_without_a_grade_has_no_point_and_a_study_without_a_full_cache_no_band():
    judged, rows = study()
    rows.loc[(rows["arm"] == "h2o") & (rows["budget"] == "64"), "correct"] = float("nan")
    arms = [one for one in judged["arms"] if one["arm"] != "full"]
    (place,) = budget_curves(judged | {"arms": arms}, lock(), rows)
    assert [one.budget for one in place.arms["h2o"]] == ["32", "128"]
    assert place.full is None
    found = drawing_checks.by_gid(drawing_checks.drawn(budget_curve, judged | {"arms": arms}, lock(), [place]))
    assert not [gid for gid in found if gid.startswith("full")]


def test_ticks_are_the_budgets_with_what_was_held(figure):
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["127\n(128)", "63\n(64)", "31\n(32)"]


@pytest.mark.parametrize("length", [1, 6])
def test_every_text_lies_on_the_page_and_on_no_other(length):
    model = "a-model-of-a-long-name-" * (length - 1) + "tiny"
    figure = drawing(models=(model, "other"), tasks=("chain", "needle-1024"), **SOUGHT)
    assert len(figure.axes) == 4


# ---------------------------------------------------------------- many arms

MANY = [f"method-{number:02d}" for number in range(12)]


def field():
    """Twelve methods beside crystal and h2o, each a problem better than the one before, up to nine."""
    judged, rows = study(models=("tiny", "other"))
    arms, more = [*judged["arms"]], []
    for model in ("tiny", "other"):
        place = {"model": model, "task": "chain"}
        for number, arm in enumerate(MANY):
            for budget, right in (("32", 0), ("128", min(number, 9))):
                arms.append(judgements.arm(arm, budget=budget, mean_slots=f"{budget}.000000", **place))
                more.append(lanes.lanes(arm, grades(right), budget=budget, **place))
    return judged | {"arms": arms}, pd.concat([rows, lanes.table(*more)], ignore_index=True)


@pytest.fixture(scope="module")
def many() -> Figure:
    judged, rows = field()
    judged |= SOUGHT
    return drawing_checks.drawn(budget_curve, judged, lock(), budget_curves(judged, lock(), rows))


def test_of_many_arms_each_is_named_at_the_end_of_its_line_in_the_order_in_which_they_end(many):
    found = drawing_checks.by_gid(many)
    named = {
        text.get_position()[1]: text.get_text() for gid in found if gid.startswith("name-tiny") for text in found[gid]
    }
    assert set(named.values()) == {"full cache", "crystal", "h2o", *MANY}
    upwards = [named[y] for y in sorted(named)]
    ends = {"full cache": FULL, "crystal": 8, "h2o": 7} | {arm: min(i, 9) for i, arm in enumerate(MANY)}
    assert [ends[arm] for arm in upwards] == sorted(ends.values())
    heavy = [text.get_text() for text in drawing_checks.texts(many) if text.get_weight() == "bold"]
    assert {"crystal"} == {"crystal", "h2o", *MANY} & {*heavy}


def test_of_many_arms_the_subject_alone_has_limits_and_the_full_cache_its_band(many):
    found = drawing_checks.by_gid(many)
    limits = {gid for gid in found if gid.startswith("limits-")}
    assert limits == {"limits-tiny/chain/crystal", "limits-other/chain/crystal"}
    _, rows = study()
    own = rows[(rows["arm"] == "crystal") & (rows["budget"] == "64")]
    expected = compute_share(own, own["correct"] == 1, own["correct"].notna())
    (limits,) = found["limits-tiny/chain/crystal"]
    (_, low), (_, high) = limits.get_segments()[1]
    assert (low, high) == pytest.approx((100 * expected.low, 100 * expected.high))
    assert {"full-tiny/chain", "full-other/chain", "margin-tiny/chain", "smallest-tiny/chain/crystal"} <= {*found}
    (line,) = found["line-other/chain/method-03"]
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([32, 128], [0, pytest.approx(30)])
    assert "Vertical lines, of crystal alone" in drawing_checks.said(many)
