import drawing_checks
import judgements
import lanes
import pytest
from matplotlib.figure import Figure
from scipy import stats

from figures.drawing import page
from figures.plots.levels import accuracy_by_level, levels

JUDGED = judgements.judgement()
PLACE = {"task": "chain"}


def chains(*solved: int) -> dict[str, bool]:
    """Eight problems of each of the levels 6, 8, ...; so many of them solved."""
    return {f"chain/{6 + 2 * n:02d}/{i:03d}": i < count for n, count in enumerate(solved) for i in range(8)}


def cells(model: str = "tiny") -> list:
    rows = [lanes.lanes("full", chains(8, 8, 7), budget="full", model=model, **PLACE)]
    for budget in ("64", "128"):
        rows.append(lanes.lanes("alpha", chains(7, 5, 2), budget=budget, model=model, **PLACE))
        rows.append(lanes.lanes("snapkv_with_window", chains(6, 4, 0), budget=budget, model=model, **PLACE))
    return accuracy_by_level(lanes.table(*rows))


@pytest.fixture(scope="module")
def figure() -> Figure:
    return drawing_checks.drawn(levels, JUDGED, cells())


def test_each_level_of_an_arm_is_counted_for_itself():
    found = {(cell.budget, cell.arm, cell.level): cell for cell in cells()}
    assert len(found) == 15
    assert found["64", "alpha", 10].accuracy[3:] == (2, 8)
    assert found["64", "alpha", 10].problems == 8
    limits = stats.binomtest(2, 8).proportion_ci(0.95, method="wilson")
    assert found["64", "alpha", 10].accuracy[1:3] == pytest.approx((limits.low, limits.high))


def test_problems_without_a_level_in_their_id_have_none():
    ids = ["needle/512/0.25/001", "gsm8k/test/0001", "association/768/high/003", "math500/algebra-1"]
    assert accuracy_by_level(lanes.table(lanes.lanes("alpha", dict.fromkeys(ids, True)))) == []


def test_a_level_without_a_graded_answer_is_left_out():
    (one,) = accuracy_by_level(lanes.table(lanes.lanes("alpha", {"chain/06/000": True, "chain/08/000": None})))
    assert one.level == 6


def test_lines_run_through_the_shares_and_the_full_cache_stands_beside_each_budget(figure):
    found = drawing_checks.by_gid(figure)
    for budget in ("64", "128"):
        assert list(found[f"line-tiny/chain/{budget}/alpha"][0].get_ydata()) == [87.5, 62.5, 25]
        assert list(found[f"line-tiny/chain/{budget}/full"][0].get_ydata()) == [100, 100, 87.5]
    x = [found[f"line-tiny/chain/64/{arm}"][0].get_xdata() for arm in ("alpha", "snapkv_with_window")]
    assert all(abs(value - level) < 1 for at in x for value, level in zip(at, (6, 8, 10), strict=True))
    assert not set(x[0]) & set(x[1])  # side by side, so that no limit hides another


def test_limits_stand_at_their_point(figure):
    found = drawing_checks.by_gid(figure)
    limits = stats.binomtest(2, 8).proportion_ci(0.95, method="wilson")
    bottom, top = found["limits-tiny/chain/64/alpha"][0].get_segments()[2]
    x = found["line-tiny/chain/64/alpha"][0].get_xdata()[2]
    assert [*bottom, *top] == pytest.approx([x, 100 * limits.low, x, 100 * limits.high])


def test_panels_go_on_in_the_next_row_where_a_page_has_no_room():
    rows = [lanes.lanes("alpha", chains(7, 5, 2), budget=str(64 + n), model="tiny", **PLACE) for n in range(6)]
    figure = drawing_checks.drawn(levels, JUDGED, accuracy_by_level(lanes.table(*rows)))
    assert figure.get_figwidth() <= page.WIDEST
    rows = [axes.get_position().y0 for axes in figure.axes]
    assert rows == sorted(rows, reverse=True)
    assert [rows.count(row) for row in dict.fromkeys(rows)] == [3, 3]
    assert drawing_checks.overlapping(figure) == []


@pytest.mark.parametrize("names", [["a", "b", "c", "d", "crystal"], ["a", "b", "c", "d", "e", "crystal"]])
def test_of_many_arms_the_subject_alone_has_limits(names):
    rows = [lanes.lanes(name, chains(7, 5, 2), budget="64", model="tiny", **PLACE) for name in names]
    found = drawing_checks.by_gid(levels(JUDGED, accuracy_by_level(lanes.table(*rows))))
    limited = {gid.rpartition("/")[2] for gid in found if gid.startswith("limits")}
    assert limited == (set(names) if len(names) == 5 else {"crystal"})


@pytest.mark.parametrize("model", ["tiny", "a-model-of-a-long-name-" * 4])
def test_every_text_lies_on_the_page_and_on_no_other(model):
    figure = drawing_checks.drawn(levels, JUDGED, cells(model))
    assert drawing_checks.off_the_page(figure) == []
    assert drawing_checks.overlapping(figure) == []
    said = drawing_checks.said(figure)
    assert f"{model} · chain · budget 128" in said
    assert "8 problems a level" in said
