import gzip
import json
import shutil
from pathlib import Path

import judgements
import looking
import numpy as np
import pytest

from analysis.studies.study_files import RecordError, read
from figures import study
from figures.canvas import page, traces
from figures.canvas.traces import Trace
from figures.plots.trajectories import trajectories

LONG = Path(__file__).parents[3] / "registrations" / "crystal-long"
JUDGED = judgements.judgement()


@pytest.fixture(scope="module")
def shipped() -> dict[str, Trace]:
    return {one.arm: one for one in traces.traces(LONG, read(LONG).lock)}


def bodies(arm: str) -> list[dict]:
    lines = (LONG / "records" / "shard-0.jsonl").read_text().splitlines()
    return [body for line in lines if (body := json.loads(line)["body"])["cell"]["arm"] == arm]


def side(body: dict) -> dict:
    return json.loads(gzip.decompress((LONG / place(body)).read_bytes()))


def place(body: dict) -> str:
    return f"records/trajectories/{body['trajectory']}.json.gz"


# ---------------------------------------------------------------- what is measured


def test_lanes_of_different_lengths_are_averaged_while_they_last():
    found = traces.summary([np.array([4.0, 5, 6]), np.array([2.0]), np.array([6.0, 9])])
    assert list(found.mean) == [4, 7, 6]
    assert list(found.lanes) == [3, 2, 1]
    # a tenth of the way from the least of three to the greatest: 0.2 lanes beyond the first
    assert list(found.low) == pytest.approx([2 + 0.2 * 2, 5 + 0.1 * 4, 6])
    assert list(found.high) == pytest.approx([6 - 0.2 * 2, 9 - 0.1 * 4, 6])


def test_percentiles_are_those_of_numpy_over_the_lanes_that_are_there():
    rng = np.random.default_rng(3)
    held = [rng.random(size) for size in rng.integers(1, 30, 50)]
    found = traces.summary(held)
    for moment in range(max(map(len, held))):
        there = [one[moment] for one in held if len(one) > moment]
        expected = np.percentile(there, [10, 90])
        assert (found.low[moment], found.high[moment]) == pytest.approx(tuple(expected))


def test_the_mean_of_a_shipped_arm_is_that_of_its_records(shipped):
    for arm in ("crystal", "full"):
        records = bodies(arm)
        assert shipped[arm].overall == pytest.approx(np.mean([float(b["cache"]["mean"]) for b in records]))
        ends = [float(body["cache"]["prefill_end"]) for body in records]
        assert shipped[arm].slots.mean[0] == pytest.approx(np.mean(ends))
        assert shipped[arm].state == max(body["cache"]["state_bytes"] for body in records)
        assert shipped[arm].slots.lanes[0] == len(records)


def test_each_moment_of_a_shipped_arm_is_that_of_a_plain_loop(shipped):
    held = [[slots / one["heads"] for slots in one["held"]] for one in map(side, bodies("h2o"))]
    for moment in (0, 15, 16, 70, 135):
        there = [one[moment] for one in held if len(one) > moment]
        assert shipped["h2o"].slots.lanes[moment] == len(there)
        assert shipped["h2o"].slots.mean[moment] == pytest.approx(sum(there) / len(there))


def test_arms_come_in_registered_order_and_know_whether_they_were_compressed_while_decoding(shipped):
    assert list(shipped) == list(dict.fromkeys(arm for _, _, _, arm, _ in read(LONG).lock["grid"]))
    assert {arm for arm, one in shipped.items() if one.events} == set(shipped) - {"full"}
    assert np.isnan(shipped["full"].nominal)
    quickstart = LONG.parent / "quickstart"  # compressed at the end of the prefill alone
    assert not any(one.events for one in traces.traces(quickstart, read(quickstart).lock))


def test_bytes_of_a_token_are_near_those_of_the_model(shipped):
    """SmolLM2-135M: 30 layers, 3 KV heads, keys and values of 64 float32."""
    assert 1 <= shipped["snapkv"].token / (30 * 3 * 2 * 64 * 4) < 1.01


def copied(folder: Path, *names: str) -> Path:
    (folder / "records" / "trajectories").mkdir(parents=True)
    for name in ("lock.json", "verdict.json", "records/shard-0.jsonl", *names):
        shutil.copy(LONG / name, folder / name)
    return folder


def test_a_study_whose_side_files_were_not_kept_has_no_traces_and_no_drawing(tmp_path):
    folder = copied(tmp_path / "study")
    assert traces.traces(folder, read(folder).lock) == []
    assert not [path for path in study.draw(folder) if path.stem in ("trajectories", "collapse")]


SIDES = list(dict.fromkeys(map(place, bodies("full"))))


def test_a_side_file_that_is_missing_among_others_is_refused_by_name(tmp_path):
    folder = copied(tmp_path / "study", *SIDES[1:])
    with pytest.raises(RecordError, match=f"{Path(SIDES[0]).name}: missing"):
        traces.traces(folder, read(folder).lock)


@pytest.mark.parametrize("content", ["", "[]", '{"held"', '{"heads": 3}'])
@pytest.mark.parametrize("packed", [True, False])
def test_a_damaged_side_file_is_refused_by_name(tmp_path, content, packed):
    folder = copied(tmp_path / "study", *SIDES)
    (folder / SIDES[0]).write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    with pytest.raises(RecordError, match=f"{Path(SIDES[0]).name}: damaged"):
        traces.traces(folder, read(folder).lock)


# ---------------------------------------------------------------- the drawing


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


def test_lines_bands_and_budgets_are_those_of_the_traces():
    drawn = looking.by_gid(looking.drawn(trajectories, JUDGED, found()))
    line = drawn["mean-tiny/chain/64/snapkv_with_window"][0]
    assert line.get_xydata().tolist() == [[0, 64], [1, 65], [2, 264]]
    assert drawn["lanes-tiny/chain/64/alpha"][0].get_ydata().tolist() == [100, 100, 50]
    assert set(drawn["nominal-tiny/chain/128"][0].get_ydata()) == {128}
    band = drawn["band-tiny/chain/64/snapkv_with_window"][0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (64, 264)
    assert not [gid for gid in drawn if gid.startswith("mean") and "full" in gid]


def test_the_legend_prints_what_each_arm_held_and_the_bytes_it_carried():
    figure = looking.drawn(trajectories, JUDGED, found())
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


def test_arms_that_hold_much_the_same_are_drawn_near_and_others_from_zero():
    (above, *_), near = (
        looking.drawn(trajectories, JUDGED, rows).axes
        for rows in (found(), [trace("alpha", "64", 64, 79, 64), trace("1d", "64", 64, 79, 64)])
    )
    assert above.get_ylim()[0] == 0
    assert 0 < near[0].get_ylim()[0] < 64


def test_of_a_long_generation_blocks_are_drawn_that_hold_its_extremes():
    rng = np.random.default_rng(1)
    held = 64 + 16 * rng.random(2501)
    held[4], held[8] = 60, 90  # neither of them the first of its block of three
    slots = traces.summary([held])
    one = trace("alpha", "64", 64, 65)._replace(slots=slots)
    drawn = looking.by_gid(looking.drawn(trajectories, JUDGED, [one]))
    line = drawn["mean-tiny/chain/64/alpha"][0]
    assert list(line.get_xdata()) == list(range(0, 2501, 3))
    blocks = [held[start : start + 3].mean() for start in range(0, 2501, 3)]
    assert list(line.get_ydata()) == pytest.approx(blocks)
    band = drawn["band-tiny/chain/64/alpha"][0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((held.min(), held.max()))


def test_a_cell_of_which_no_lane_ended_leaves_its_panel_out():
    rows = [one for one in found() if one.budget != "64"] + [trace("alpha", "64", 64, 65, model="other")]
    drawn = looking.by_gid(looking.drawn(trajectories, JUDGED, rows))
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


def test_a_shipped_study_is_drawn_without_collisions_and_the_same_bytes_twice(shipped, tmp_path):
    rows = list(shipped.values())
    figure = looking.drawn(trajectories, page.judged(LONG), rows)
    assert looking.off_the_page(figure) == []
    assert looking.overlapping(figure) == []
    one, two = (page.write(tmp_path / name, trajectories, page.judged(LONG), rows) for name in "ab")
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]
