import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import studies

from analysis.judgement.study_files import read_study
from analysis.judgement.untrusted_files import RecordError
from figures.drawing import memory_traces
from figures.drawing.memory_traces import Trace

LONG = Path(__file__).parents[3] / "registrations" / "crystal-long"


@pytest.fixture(scope="module")
def shipped() -> dict[str, Trace]:
    return {trace.arm: trace for trace in memory_traces.read_traces(LONG, read_study(LONG).lock)}


def bodies(arm: str) -> list[dict]:
    lines = studies.shard_text(LONG).splitlines()
    return [body for line in lines if (body := json.loads(line)["body"])["cell"]["arm"] == arm]


def side(body: dict) -> dict:
    return json.loads(gzip.decompress((LONG / place(body)).read_bytes()))


def place(body: dict) -> str:
    return f"records/trajectories/{body['trajectory']}.json.gz"


def test_lanes_of_different_lengths_are_averaged_while_they_last():
    found = memory_traces.summarise([np.array([4.0, 5, 6]), np.array([2.0]), np.array([6.0, 9])])
    assert list(found.mean) == [4, 7, 6]
    assert list(found.lanes) == [3, 2, 1]
    # a tenth of the way from the least of three to the greatest: 0.2 lanes beyond the first
    assert list(found.low) == pytest.approx([2 + 0.2 * 2, 5 + 0.1 * 4, 6])
    assert list(found.high) == pytest.approx([6 - 0.2 * 2, 9 - 0.1 * 4, 6])


def test_percentiles_are_those_of_numpy_over_the_lanes_that_are_there():
    rng = np.random.default_rng(3)
    held = [rng.random(size) for size in rng.integers(1, 30, 50)]
    found = memory_traces.summarise(held)
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
    assert list(shipped) == list(dict.fromkeys(arm for _, _, _, arm, _ in read_study(LONG).lock["grid"]))
    assert {arm for arm, one in shipped.items() if one.events} == set(shipped) - {"full"}
    assert np.isnan(shipped["full"].nominal)
    quickstart = LONG.parent / "quickstart"  # compressed at the end of the prefill alone
    assert not any(trace.events for trace in memory_traces.read_traces(quickstart, read_study(quickstart).lock))


def test_bytes_of_a_token_are_near_those_of_the_model(shipped):
    """SmolLM2-135M: 30 layers, 3 KV heads, keys and values of 64 float32."""
    assert 1 <= shipped["snapkv"].token / (30 * 3 * 2 * 64 * 4) < 1.01


def copied(folder: Path, *names: str) -> Path:
    (folder / "records" / "trajectories").mkdir(parents=True)
    for name in ("lock.json", "verdict.json", "records/shard-0.jsonl.xz", *names):
        shutil.copy(LONG / name, folder / name)
    return folder


def test_a_study_whose_side_files_were_not_kept_has_no_traces(tmp_path):
    folder = copied(tmp_path / "study")
    assert memory_traces.read_traces(folder, read_study(folder).lock) == []


SIDES = list(dict.fromkeys(map(place, bodies("full"))))


def test_a_side_file_that_is_missing_among_others_is_refused_by_name(tmp_path):
    folder = copied(tmp_path / "study", *SIDES[1:])
    with pytest.raises(RecordError, match=f"{Path(SIDES[0]).name}: is missing"):
        memory_traces.read_traces(folder, read_study(folder).lock)


@pytest.mark.parametrize("content", ["", "[]", '{"held"', '{"heads": 3}'])
@pytest.mark.parametrize("packed", [True, False])
def test_a_damaged_side_file_is_refused_by_name(tmp_path, content, packed):
    folder = copied(tmp_path / "study", *SIDES)
    (folder / SIDES[0]).write_bytes(gzip.compress(content.encode(), mtime=0) if packed else content.encode())
    says = "is damaged" if packed else "not readable"
    with pytest.raises(RecordError, match=f"{Path(SIDES[0]).name}: {says}"):
        memory_traces.read_traces(folder, read_study(folder).lock)


def test_over_is_less_the_budget_of_each_lane_and_nothing_of_an_arm_without_one(shipped):
    moment = 7
    above = []
    for body in bodies("crystal"):
        one = side(body)
        held = one[int(body["trajectory"].partition("#")[2])] if isinstance(one, list) else one
        if len(held["held"]) > moment:
            above.append(held["held"][moment] / held["heads"] - body["slots"])
    over = shipped["crystal"].over
    assert over is not None
    assert over.mean[moment] == pytest.approx(np.mean(above))
    assert over.lanes[moment] == len(above)
    assert shipped["full"].over is None
