import math

import drawing_checks
import judgements
import lanes
import pytest
from matplotlib.figure import Figure

from figures.drawing.shares import compute_share
from figures.plots.cost_curve import cost_curve, decoding_costs

LOCK = {"protocol": {"content": {"arms": {}}}}
# Of ten problems, by budget: right answers, tokens of an answer, slots held meanwhile. With the least memory
# h2o goes on and on.
RAN = {"crystal": {"64": (8, 100, 60), "32": (6, 100, 30)}, "h2o": {"64": (5, 120, 60), "32": (1, 300, 30)}}
FULL = (9, 110, 90)


def rows(arm, right, tokens, slots, **place):
    """Half of the answers have ten tokens fewer and two slots fewer, half as many more."""
    found = lanes.lanes(arm, {f"p{i}": i < right for i in range(10)}, **place)
    for number, row in enumerate(found):
        sign = 1 if number % 2 else -1
        row |= {"tokens": tokens + 10.0 * sign, "mean_slots": slots + 2.0 * sign, "reads": math.nan}
    return found


def study(models=("tiny",), arms=RAN):
    judged, found = [], []
    for model in models:
        place = {"model": model, "task": "chain"}
        judged.append(judgements.arm("full", mean_slots="90.000000", **place))
        found.append(rows("full", *FULL, budget="full", **place))
        for arm, budgets in arms.items():
            for budget, (right, tokens, slots) in budgets.items():
                judged.append(judgements.arm(arm, budget=budget, mean_slots=f"{slots}.000000", **place))
                found.append(rows(arm, right, tokens, slots, budget=budget, **place))
    return judgements.judgement(arms=judged), lanes.table(*found)


@pytest.fixture(scope="module")
def figure() -> Figure:
    judged, table = study()
    return drawing_checks.drawn(cost_curve, judged, LOCK, decoding_costs(judged, table))


def test_the_cost_of_an_answer_is_its_tokens_times_its_slots_and_of_an_arm_their_mean(figure):
    found = drawing_checks.by_gid(figure)
    (line,) = found["line-tiny/chain/crystal"]
    # (90 * 28 + 110 * 32) / 2 and (90 * 58 + 110 * 62) / 2: not the product of the means.
    assert list(line.get_xdata()) == [3020, 6020]
    assert list(line.get_ydata()) == pytest.approx([60, 80])
    (whole,) = found["whole-tiny/chain"]
    assert (whole.get_xdata()[0], whole.get_ydata()[0]) == ((100 * 88 + 120 * 92) / 2, pytest.approx(90))


def test_what_an_arm_read_of_what_it_held_is_counted_in_its_place():
    judged, table = study()
    table.loc[table["arm"] == "crystal", "reads"] = 7.0
    (panel,) = decoding_costs(judged, table)
    costs = {arm: [point.value for point in points] for arm, points in panel.arms.items()}
    assert (costs["crystal"], costs["h2o"]) == ([700, 700], [9020, 7220])


def test_a_line_goes_from_the_least_memory_to_the_most_even_where_that_costs_less(figure):
    found = drawing_checks.by_gid(figure)
    (line,) = found["line-tiny/chain/h2o"]
    assert list(line.get_xdata()) == [9020, 7220]
    sizes = found["points-tiny/chain/h2o"][0].get_sizes()
    assert sizes[0] < sizes[1]


def test_the_subject_alone_has_limits_and_the_full_cache_a_band(figure):
    found = drawing_checks.by_gid(figure)
    assert [gid for gid in found if gid.startswith("limits-")] == ["limits-tiny/chain/crystal"]
    _, table = study()
    own = table[(table["arm"] == "crystal") & (table["budget"] == "32")]
    expected = compute_share(own, own["correct"] == 1, own["correct"].notna())
    (_, low), (_, high) = found["limits-tiny/chain/crystal"][0].get_segments()[0]
    assert (low, high) == pytest.approx((100 * expected.low, 100 * expected.high))
    assert "full-tiny/chain" in found


def test_it_says_that_nothing_was_timed_and_what_is_not_counted(figure):
    said = drawing_checks.said(figure)
    assert "Slots are counted, not timed, because seconds would be those of a batch" in said
    assert "The computation by which a policy selects slots is not included" in said
    assert "exploratory" in said
    assert "INCONCLUSIVE" in said


def test_failed_lanes_cost_nothing_and_an_arm_without_a_grade_is_left_out():
    judged, table = study()
    failed = (table["arm"] == "crystal") & (table["budget"] == "32") & (table["problem"] == "p0")
    table.loc[failed, ["correct", "tokens", "mean_slots"]] = float("nan")
    table.loc[(table["arm"] == "h2o") & (table["budget"] == "64"), "correct"] = float("nan")
    (place,) = decoding_costs(judged, table)
    assert place.arms["crystal"][0].value == pytest.approx((4 * 90 * 28 + 5 * 110 * 32) / 9)
    assert [one.budget for one in place.arms["h2o"]] == ["32"]


def test_the_axis_begins_at_the_tens_below_the_worst_even_where_that_is_the_full_cache(figure):
    low, high = figure.axes[0].get_ylim()
    assert -5 < low < 10, "h2o has 10 %"
    assert high > 100
    judged, table = study(arms={"crystal": {"64": (8, 100, 60)}})
    table.loc[table["budget"] == "full", "correct"] = [1.0] * 4 + [0.0] * 6
    low, _ = drawing_checks.drawn(cost_curve, judged, LOCK, decoding_costs(judged, table)).axes[0].get_ylim()
    assert 25 < low < 40


@pytest.mark.parametrize("arms", [1, 14])
def test_every_text_lies_on_the_page_and_on_no_other(arms):
    many = {"crystal": RAN["crystal"]} | {f"another-{i}": {"64": (i % 10, 500 * i, 60)} for i in range(1, arms)}
    judged, table = study(("tiny", "a-model-of-a-long-name"), many)
    figure = drawing_checks.drawn(cost_curve, judged, LOCK, decoding_costs(judged, table))
    assert len(figure.axes) == 2
