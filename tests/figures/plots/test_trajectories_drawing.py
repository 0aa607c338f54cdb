from pathlib import Path

import drawing_checks
import judgements
import numpy as np
import pytest
from matplotlib.figure import Figure

from analysis.judgement.study_files import read_study
from figures.drawing import memory_traces, page
from figures.drawing.memory_traces import Trace
from figures.plots.trajectories import trajectories

LONG = Path(__file__).parents[3] / "registrations" / "crystal-long"
JUDGED, MINUS = judgements.judgement(), "\N{MINUS SIGN}"


def trace(arm: str, budget: str, *held: float, model: str = "tiny", state: int = 0) -> Trace:
    lanes = [np.array(held), np.array(held[:2])]
    slots, over, nominal = memory_traces.summarise(lanes), None, np.nan
    if budget != "full":
        nominal = float(budget)
        over = memory_traces.summarise([lane - nominal for lane in lanes])
    return Trace(model, "chain", budget, arm, nominal, slots, over, float(np.mean(held)), state, 512.0, True)


def found(model: str = "tiny") -> list[Trace]:
    rows = [trace("full", "full", 100, 101, 102, model=model)]
    for budget in (64, 128):
        rows.append(trace("alpha", str(budget), budget, budget + 1, budget, model=model, state=1280))
        climbs = (budget, budget + 1, budget + 200)
        rows.append(trace("snapkv_with_window", str(budget), *climbs, model=model))
    return rows


@pytest.fixture(scope="module")
def figure() -> Figure:
    return drawing_checks.drawn(trajectories, JUDGED, found())


def test_lines_bands_and_budgets_are_those_of_the_traces(figure):
    drawn = drawing_checks.by_gid(figure)
    line = drawn["mean-tiny/chain/64/snapkv_with_window"][0]
    assert line.get_xydata().tolist() == [[0, 0], [1, 1], [2, 200]]
    assert set(drawn["nominal-tiny/chain/128/alpha"][0].get_ydata()) == {0}
    band = drawn["band-tiny/chain/64/snapkv_with_window"][0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (0, 200)
    assert not [gid for gid in drawn if gid.startswith(("mean", "nominal")) and "full" in gid]


def test_the_ground_of_a_strip_is_as_high_as_lanes_still_decode(figure):
    (ground,) = drawing_checks.by_gid(figure)["lanes-tiny/chain/64/alpha"]
    floor, ceiling = ground.axes.get_ylim()
    tops = {x: max(y for at, y in ground.get_paths()[0].vertices if at == x) for x in (0, 1, 2)}
    shares = [(tops[x] - floor) / (ceiling - floor) for x in (0, 1, 2)]
    assert shares == pytest.approx([1, 1, 0.5])


def test_each_arm_has_a_strip_of_its_own_and_those_of_a_block_have_one_scale(figure):
    strips = {gid: line.axes for gid, (line, *_) in drawing_checks.by_gid(figure).items() if gid.startswith("mean")}
    assert len(set(strips.values())) == len(strips) == 4
    for budget in ("64", "128"):
        own = {axes.get_ylim() for gid, axes in strips.items() if f"/{budget}/" in gid}
        assert len(own) == 1
        assert own.pop()[1] >= 200
    boxes = [axes.get_position() for axes in strips.values()]
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])


def test_the_legend_prints_what_each_arm_held_and_the_bytes_it_carried(figure):
    rows: dict[float, list[str]] = {}
    for text in figure.texts:
        rows.setdefault(round(text.get_position()[1], 6), []).append(text.get_text())
    found = list(rows.values())
    first = next(at for at, row in enumerate(found) if row[0] == "alpha")
    assert [row for row in found[first - 1 :] if len(row) == 5][:4] == [
        ["after\nprefill", "mean", "state", "tok-eq", f"slots in use {MINUS} budget"],
        ["alpha", "64.0", "64.3", "1.2 KiB", "2.5"],
        ["snapkv_with_window", "64.0", "131.0", "0 B", "0.0"],
        ["full (no budget)", "100.0", "101.0", "0 B", "0.0"],
    ]


def test_how_a_cache_fills_is_cut_off_and_what_follows_is_not():
    filling = trace("alpha", "64", 14, 64, 79, 60, 70)
    low, high = trajectories(JUDGED, [filling]).axes[0].get_ylim()
    assert -50 < low < -4
    assert 15 < high < 20
    low, high = trajectories(JUDGED, [filling, trace("never", "64", 14, 20, 30)]).axes[0].get_ylim()
    assert low < -50
    assert high > 15


def test_of_a_long_generation_blocks_are_drawn_that_hold_its_extremes():
    rng = np.random.default_rng(1)
    held = 64 + 16 * rng.random(2501)
    held[4], held[8] = 60, 90  # neither of them the first of its block of three
    slots = memory_traces.summarise([held])
    one = trace("alpha", "64", 64, 65)._replace(over=memory_traces.summarise([held - 64]), slots=slots)
    drawn = drawing_checks.by_gid(trajectories(JUDGED, [one]))
    line = drawn["mean-tiny/chain/64/alpha"][0]
    assert list(line.get_xdata()) == list(range(0, 2501, 3))
    blocks = [held[start : start + 3].mean() for start in range(0, 2501, 3)]
    assert list(line.get_ydata()) == pytest.approx([block - 64 for block in blocks])
    band = drawn["band-tiny/chain/64/alpha"][0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((held.min() - 64, held.max() - 64))


def test_a_cell_of_which_no_lane_ended_leaves_its_panel_out():
    rows = [one for one in found() if one.budget != "64"] + [trace("alpha", "64", 64, 65, model="other")]
    drawn = drawing_checks.by_gid(trajectories(JUDGED, rows))
    assert {gid for gid in drawn if gid.startswith("nominal")} == {
        "nominal-tiny/chain/128/alpha",
        "nominal-tiny/chain/128/snapkv_with_window",
        "nominal-other/chain/64/alpha",
    }


@pytest.mark.parametrize("model", ["tiny", "a-model-of-a-long-name-" * 4])
def test_every_text_lies_on_the_page_and_on_no_other(model):
    figure = drawing_checks.drawn(trajectories, JUDGED, found(model))
    assert f"{model} · chain · budget 128" in drawing_checks.said(figure)


def test_many_strips_stand_in_two_columns_of_a_page_and_no_text_lies_on_another():
    names = [f"an-arm-named-{number}" for number in range(9)]
    held = [float(60 + step % 16) for step in range(240)]
    rows = [trace(name, budget, *held) for budget in ("64", "65") for name in names]
    figure = drawing_checks.drawn(trajectories, JUDGED, rows)
    assert figure.get_figwidth() <= page.WIDEST
    strips = [line.axes.get_position() for gid, (line, *_) in drawing_checks.by_gid(figure).items() if "mean-" in gid]
    assert len({round(box.x0, 6) for box in strips}) == 2


def test_a_shipped_study_is_drawn_without_collisions():
    rows = memory_traces.read_traces(LONG, read_study(LONG).lock)
    drawing_checks.drawn(trajectories, page.read_judged(LONG), rows)
