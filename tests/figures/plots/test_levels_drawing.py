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


def lock(*problems: str, task: str = "chain", **facts: object) -> dict:
    """Of one task with these problems, or those of `chains`; facts: further fields of its table."""
    return {"items": {task: {"dev": [], "confirm": [*problems] or [*chains(8, 8, 8)], **facts}}}


def cells(model: str = "tiny") -> list:
    rows = [lanes.lanes("full", chains(8, 8, 7), budget="full", model=model, **PLACE)]
    for budget in ("64", "128"):
        rows.append(lanes.lanes("alpha", chains(7, 5, 2), budget=budget, model=model, **PLACE))
        rows.append(lanes.lanes("snapkv_with_window", chains(6, 4, 0), budget=budget, model=model, **PLACE))
    return accuracy_by_level(lock(), lanes.table(*rows))


@pytest.fixture(scope="module")
def figure() -> Figure:
    return drawing_checks.drawn(levels, JUDGED, cells())


def test_each_level_of_an_arm_is_counted_for_itself():
    found = {(cell.budget, cell.arm, cell.level): cell for cell in cells()}
    assert len(found) == 15
    assert found["64", "alpha", "10"].accuracy[3:] == (2, 8)
    assert found["64", "alpha", "10"].problems == 8
    limits = stats.binomtest(2, 8).proportion_ci(0.95, method="wilson")
    assert found["64", "alpha", "10"].accuracy[1:3] == pytest.approx((limits.low, limits.high))


@pytest.mark.parametrize("problem", ["needle/512/0.25/001", "gsm8k/test/0001", "gate/06/003"])
def test_problems_without_a_declared_level_have_none(problem):
    table = lanes.table(lanes.lanes("alpha", {problem: True}, **PLACE))
    assert accuracy_by_level(lock(problem), table) == []


def test_the_ids_of_a_file_mean_nothing_and_its_declared_levels_are_drawn():
    ids = [f"chain/{document:02d}/{index}" for document in (0, 1) for index in (0, 1)]
    table = lanes.table(lanes.lanes("alpha", dict(zip(ids, (1, 1, 0, 1), strict=True)), task="mine"))
    assert accuracy_by_level(lock(*ids, task="mine", source="0" * 64), table) == []
    declared = dict(zip(ids, ("hard", "easy", "hard", "easy"), strict=True))
    drawn = accuracy_by_level(lock(*ids, task="mine", source="0" * 64, levels=declared), table)
    assert [(cell.level, cell.accuracy.share, cell.problems) for cell in drawn] == [("hard", 0.5, 2), ("easy", 1.0, 2)]


def test_levels_in_words_stand_side_by_side_under_their_names():
    levels_by_id = {"a": "of one hop", "b": "of two hops and a detour that needs a longer name than an axis has"}
    table = lanes.table(lanes.lanes("alpha", {"a": 1, "b": 0}, budget="64", **PLACE))
    figure = drawing_checks.drawn(levels, JUDGED, accuracy_by_level(lock("a", "b", levels=levels_by_id), table))
    names = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert names[0] == "of one hop"
    assert levels_by_id["b"].startswith(names[1].removesuffix("…"))


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
    figure = drawing_checks.drawn(levels, JUDGED, accuracy_by_level(lock(), lanes.table(*rows)))
    assert figure.get_figwidth() <= page.WIDEST
    rows = [axes.get_position().y0 for axes in figure.axes]
    assert rows == sorted(rows, reverse=True)
    assert [rows.count(row) for row in dict.fromkeys(rows)] == [3, 3]


@pytest.mark.parametrize("names", [["a", "b", "c", "d", "crystal"], ["a", "b", "c", "d", "e", "crystal"]])
def test_of_many_arms_the_subject_alone_has_limits(names):
    rows = [lanes.lanes(name, chains(7, 5, 2), budget="64", model="tiny", **PLACE) for name in names]
    found = drawing_checks.by_gid(levels(JUDGED, accuracy_by_level(lock(), lanes.table(*rows))))
    limited = {gid.rpartition("/")[2] for gid in found if gid.startswith("limits")}
    assert limited == (set(names) if len(names) == 5 else {"crystal"})


@pytest.mark.parametrize("model", ["tiny", "a-model-of-a-long-name-" * 4])
def test_every_text_lies_on_the_page_and_on_no_other(model):
    figure = drawing_checks.drawn(levels, JUDGED, cells(model))
    said = drawing_checks.said(figure)
    assert f"{model} · chain · budget 128" in said
    assert "8 problems per level" in said
