from pathlib import Path

import judgements
import looking
import numpy as np
import pytest
from matplotlib.figure import Figure

from analysis.studies.study_files import read
from figures.canvas import page, traces
from figures.canvas.traces import Trace
from figures.plots.trajectories import trajectories

LONG = Path(__file__).parents[3] / "registrations" / "crystal-long"
JUDGED = judgements.judgement()


def trace(arm: str, budget: str, *held: float, model: str = "tiny", state: int = 0) -> Trace:
    slots = traces.summary([np.array(held), np.array(held[:2])])
    nominal = np.nan if budget == "full" else float(budget)
    return Trace(model, "chain", budget, arm, nominal, slots, float(np.mean(held)), state, 512.0, True)


def found(model: str = "tiny") -> list[Trace]:
    rows = [trace("full", "full", 100, 101, 102, model=model)]
    for budget in (64, 128):
        rows.append(trace("alpha", str(budget), budget, budget + 1, budget, model=model, state=1280))
        climbs = (budget, budget + 1, budget + 200)
        rows.append(trace("snapkv_with_window", str(budget), *climbs, model=model))
    return rows


@pytest.fixture(scope="module")
def figure() -> Figure:
    return looking.drawn(trajectories, JUDGED, found())


def test_lines_bands_and_budgets_are_those_of_the_traces(figure):
    drawn = looking.by_gid(figure)
    line = drawn["mean-tiny/chain/64/snapkv_with_window"][0]
    assert line.get_xydata().tolist() == [[0, 64], [1, 65], [2, 264]]
    assert drawn["lanes-tiny/chain/64/alpha"][0].get_ydata().tolist() == [100, 100, 50]
    assert set(drawn["nominal-tiny/chain/128"][0].get_ydata()) == {128}
    band = drawn["band-tiny/chain/64/snapkv_with_window"][0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (64, 264)
    assert not [gid for gid in drawn if gid.startswith("mean") and "full" in gid]


def test_the_legend_prints_what_each_arm_held_and_the_bytes_it_carried(figure):
    legend = next(axes for axes in figure.axes if "alpha" in [text.get_text() for text in axes.texts])
    rows: dict[float, list[str]] = {}
    for text in legend.texts:
        rows.setdefault(text.get_position()[1], []).append(text.get_text())
    assert list(rows.values()) == [
        ["after prefill", "mean", "state", "tok-eq"],
        ["alpha", "64.0", "64.3", "1.2 KiB", "2.5"],
        ["snapkv_with_window", "64.0", "131.0", "0 B", "0.0"],
        ["full", "100.0", "101.0", "0 B", "0.0"],
    ]


def test_arms_that_hold_much_the_same_are_drawn_near_and_others_from_zero(figure):
    near = trajectories(JUDGED, [trace("alpha", "64", 64, 79, 64), trace("1d", "64", 64, 79, 64)])
    assert figure.axes[0].get_ylim()[0] == 0
    assert 0 < near.axes[0].get_ylim()[0] < 64


def test_of_a_long_generation_blocks_are_drawn_that_hold_its_extremes():
    rng = np.random.default_rng(1)
    held = 64 + 16 * rng.random(2501)
    held[4], held[8] = 60, 90  # neither of them the first of its block of three
    slots = traces.summary([held])
    one = trace("alpha", "64", 64, 65)._replace(slots=slots)
    drawn = looking.by_gid(trajectories(JUDGED, [one]))
    line = drawn["mean-tiny/chain/64/alpha"][0]
    assert list(line.get_xdata()) == list(range(0, 2501, 3))
    blocks = [held[start : start + 3].mean() for start in range(0, 2501, 3)]
    assert list(line.get_ydata()) == pytest.approx(blocks)
    band = drawn["band-tiny/chain/64/alpha"][0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((held.min(), held.max()))


def test_a_cell_of_which_no_lane_ended_leaves_its_panel_out():
    rows = [one for one in found() if one.budget != "64"] + [trace("alpha", "64", 64, 65, model="other")]
    drawn = looking.by_gid(trajectories(JUDGED, rows))
    assert {gid for gid in drawn if gid.startswith("nominal")} == {
        "nominal-tiny/chain/128",
        "nominal-other/chain/64",
    }


@pytest.mark.parametrize("model", ["tiny", "a-model-of-a-long-name-" * 4])
def test_every_text_lies_on_the_page_and_on_no_other(model):
    figure = looking.drawn(trajectories, JUDGED, found(model))
    assert looking.off_the_page(figure) == []
    assert looking.overlapping(figure) == []
    assert f"{model} · chain · budget 128" in looking.said(figure)


def test_a_shipped_study_is_drawn_without_collisions():
    rows = traces.traces(LONG, read(LONG).lock)
    figure = looking.drawn(trajectories, page.judged(LONG), rows)
    assert looking.off_the_page(figure) == []
    assert looking.overlapping(figure) == []
