import itertools

import drawing_checks
import judgements
import lanes
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from analysis.exploratory.settings_grid import NoGrid
from figures.drawing.shares import compute_share
from figures.plots.settings_map import settings_map, settings_panels

PS, DECAYS = ("0.5", "0.9"), ("0.1", "0.5", "1.0")
# Right answers of ten, by p and decay. Up to 0.5 the decay changes nothing; at 1.0 it does.
RIGHT = {
    ("0.5", "0.1"): 4,
    ("0.5", "0.5"): 4,
    ("0.5", "1.0"): 4,
    ("0.9", "0.1"): 8,
    ("0.9", "0.5"): 8,
    ("0.9", "1.0"): 6,
}
PART = {"scoring": "policies.crystal_kv.Recency()"}
LOCK = {
    "protocol": {"content": {"title": "A grid"}},
    "policies": {f"{p}-{d}": PART | {"scoring.p": p, "scoring.decay": d} for p, d in itertools.product(PS, DECAYS)}
    | {"full": {"scoring": "policies.policy.Nothing()"}, "h2o": {"scoring": "policies.h2o.Mass()"}},
}


def rows(arm, right, tokens=100.0, **place):
    facts = {"stop": "eos", "tokens": tokens, "mean_slots": 50.0, "peak_slots": 60.0}
    found = lanes.lanes(arm, {f"p{i}": i < right for i in range(10)}, **place)
    return [row | facts | {"grade": "correct" if row["correct"] else "wrong"} for row in found]


def study(models=("tiny",), budgets=("64",)):
    found = []
    for model in models:
        place = {"model": model, "task": "chain"}
        found += [rows("full", 9, budget="full", **place), rows("h2o", 1, budget=budgets[0], **place)]
        for budget, ((p, decay), right) in itertools.product(budgets, RIGHT.items()):
            tokens = 120.0 if decay == "1.0" else 100.0
            found.append(rows(f"{p}-{decay}", right, tokens, budget=budget, **place))
    return lanes.table(*found)


def drawing(table, judged=None) -> Figure:
    return drawing_checks.drawn(settings_map, judged, LOCK, *settings_panels(LOCK, table))


@pytest.fixture(scope="module")
def figure() -> Figure:
    return drawing(study())


def cell(figure, p, decay, place="tiny/chain/64"):
    (box,) = drawing_checks.by_gid(figure)[f"{place}/{p}/{decay}"]
    return box


def inside(figure, box):
    extent = box.get_window_extent()
    texts = [(one.get_text(), one.get_window_extent()) for one in drawing_checks.texts(figure)]
    return [text for text, at in texts if extent.contains((at.x0 + at.x1) / 2, (at.y0 + at.y1) / 2)]


def test_a_cell_stands_at_its_two_settings_and_says_its_share(figure):
    for (p, decay), right in RIGHT.items():
        box = cell(figure, p, decay)
        assert inside(figure, box) == [f"{10 * right}.0"]
    across = [cell(figure, "0.5", decay).get_x() for decay in DECAYS]
    assert across == sorted(across)
    assert cell(figure, "0.5", "0.1").get_y() < cell(figure, "0.9", "0.1").get_y(), "rows go down the page"
    said = drawing_checks.said(figure)
    for text in ("scoring.p", "scoring.decay", "tiny · chain · budget 64", "full cache 90.0 %", "of 10 problems"):
        assert text in said
    assert "Not on the map: h2o." in said


def test_the_colours_of_all_panels_are_of_one_scale():
    table = study(("tiny", "other"))
    other = (table["model"] == "other") & (table["arm"] == "0.9-1.0")
    table.loc[other, "correct"] = 0.0
    figure = drawing(table)
    shades = {
        gid: sum(to_rgb(found[0].get_facecolor()))
        for gid, found in drawing_checks.by_gid(figure).items()
        if gid.count("/") == 4
    }
    assert shades["tiny/chain/64/0.9/0.1"] == shades["other/chain/64/0.9/0.1"]
    assert min(shades, key=shades.get) in {f"tiny/chain/64/0.9/{decay}" for decay in ("0.1", "0.5")}
    assert max(shades, key=shades.get) == "other/chain/64/0.9/1.0"
    assert {"0 %", "80 %"} <= {one.get_text() for one in drawing_checks.texts(figure)}


def test_cells_that_no_lane_tells_apart_are_framed_together_and_no_others(figure):
    (frames,) = drawing_checks.by_gid(figure)["alike-tiny/chain/64"]
    # At 0.5 all three have four right answers, but those of 1.0 are longer.
    expected = []
    for p in PS:
        one, other = cell(figure, p, "0.1").get_bbox(), cell(figure, p, "0.5").get_bbox()
        corners = (one.x0, one.x1, other.x1), (one.y0, one.y1)
        for y in corners[1]:
            expected += [((corners[0][0], y), (corners[0][1], y)), ((corners[0][1], y), (corners[0][2], y))]
        expected += [((x, one.y0), (x, one.y1)) for x in (one.x0, other.x1)]
    found = [tuple(tuple(round(v, 6) for v in point) for point in edge) for edge in frames.get_segments()]
    assert sorted(found) == sorted(tuple(tuple(round(v, 6) for v in p) for p in edge) for edge in expected)
    assert "Framed" in drawing_checks.said(figure)


def test_without_cells_alike_nothing_is_framed():
    table = study()
    table.loc[table["arm"].str.endswith("-0.1"), "tokens"] = 90.0
    figure = drawing(table)
    assert drawing_checks.by_gid(figure)["alike-tiny/chain/64"][0].get_segments() == []
    assert "Framed" not in drawing_checks.said(figure)


def test_a_lane_without_a_grade_counts_for_nothing_and_the_counts_are_then_told():
    table = study()
    lost = (table["arm"] == "0.5-0.1") & table["problem"].isin(["p0", "p9"])
    table.loc[lost, "correct"] = float("nan")
    figure = drawing(table)
    assert inside(figure, cell(figure, "0.5", "0.1")) == ["37.5", "n 8"]
    assert inside(figure, cell(figure, "0.5", "0.5")) == ["40.0", "n 10"]
    table.loc[table["arm"] == "0.5-0.1", "correct"] = float("nan")
    assert "tiny/chain/64/0.5/0.1" not in drawing_checks.by_gid(drawing(table))
    table["correct"] = float("nan")
    with pytest.raises(NoGrid, match=r"^records: no arm of the grid has a graded answer"):
        settings_panels(LOCK, table)


def test_the_limits_are_the_widest_of_all_cells(figure):
    table = study()
    own = [group for arm, group in table[table["budget"] == "64"].groupby("arm") if arm != "h2o"]
    every = [compute_share(one, one["correct"] == 1, one["correct"].notna()) for one in own]
    assert f"up to {max(50 * (one.high - one.low) for one in every):.1f} pp" in drawing_checks.said(figure)


def test_a_probe_says_that_there_is_no_verdict_and_a_judged_study_says_which(figure):
    assert "A grid: development problems, no verdict" in drawing_checks.said(figure)
    judged = drawing_checks.said(drawing(study(), judgements.judgement()))
    assert "INCONCLUSIVE" in judged
    assert "development problems" not in judged
    assert "exploratory" in judged


def test_a_lock_of_before_settings_were_locked_is_refused():
    for lock in ({}, {"policies": None}):
        with pytest.raises(NoGrid, match=r"^policies: "):
            settings_panels({"protocol": LOCK["protocol"]} | lock, study())


@pytest.mark.parametrize("budgets", [("64",), ("64", "128")])
def test_every_text_lies_on_the_page_and_on_no_other(budgets):
    figure = drawing(study(("tiny", "a-model-of-a-rather-long-name"), budgets))
    tops = {
        model: cell(figure, "0.5", "0.1", f"{model}/chain/64").get_x()
        for model in ("tiny", "a-model-of-a-rather-long-name")
    }
    if len(budgets) > 1:
        assert len(set(tops.values())) == 1, "a model begins a row"


def test_a_long_value_widens_its_cells():
    long = {
        arm: one | {"scoring.decay": f"({one['scoring.decay']}, 128, 256, 512)"}
        for arm, one in LOCK["policies"].items()
        if "scoring.decay" in one
    }
    lock = LOCK | {"policies": long}
    drawing_checks.drawn(settings_map, None, lock, *settings_panels(lock, study()))
