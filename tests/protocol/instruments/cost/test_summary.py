"""Measured time and memory, told: levels and ratios by hand, what fits, what is too few."""

import copy
import json

import pytest
from measured_cost import CONTENT, MACHINE, whole

from analysis.judgement.untrusted_files import RecordError
from protocol.instruments.cost import measurement_file, summary


def seconds(due):
    """h2o takes half as long as the full cache, and each repetition is slower than the one before."""
    return 0.5 * 2**due.repetition * (1 if due.point.budget == "full" else 0.5)


def study(folder, one, **changes):
    content = copy.deepcopy(CONTENT)
    content["protocol"]["content"]["cost"] |= changes
    (folder / "lock.json").write_text(json.dumps(content))
    (folder / "cost").mkdir()
    lines = [{"registration": one.registration, "machine": one.machine}, *one.bodies]
    text = "".join(json.dumps({"body": body}) + "\n" for body in lines)
    (folder / "cost" / one.name).write_text(text)
    return summary.read_costs(folder)


def test_levels_are_geometric_means_and_ratios_are_paired_within_repetitions(tmp_path):
    (one,) = study(tmp_path, whole(seconds))
    assert (one.due, one.done, one.busy) == (18, 18, 0)
    rows = {row.place: row for row in one.rows}
    full = rows["tiny", 100, 4, "full", "full"]
    h2o = rows["tiny", 100, 4, "0.5", "h2o"]
    assert full.seconds["prefill"].mean == pytest.approx(2.0)  # of 1, 2 and 4
    assert full.rates["decode"].mean == pytest.approx(4 * 10 / 4.0)
    assert full.ratio is None
    assert full.overhead is None
    assert h2o.overhead[:3] == pytest.approx((0.5, 0.5, 0.5))  # every repetition has the same ratio
    assert h2o.ratio["decode"][:3] == pytest.approx((2, 2, 2), rel=1e-4)
    assert h2o.work.mean == pytest.approx(0.5)
    assert h2o.seconds["prefill"].high > 2 * h2o.seconds["prefill"].mean  # while seconds stray


def test_the_most_lanes_that_fit_and_the_rate_there(tmp_path):
    """On a CPU a batch is held against the peak of keys and values: 4 lanes of the full cache take
    4 * 4 * (100 + 11) * 64 = 113,664 bytes, those of h2o at 20 slots 31,744.
    """
    (one,) = study(tmp_path, whole(seconds), fits_in=40_000)
    found = {(each.arm, each.budget): each for each in one.largest}
    assert found["full", "full"].lanes == 1
    assert found["h2o", "20"].lanes == 4
    assert found["h2o", "20"].ratio.mean == pytest.approx(8, rel=1e-4)  # 4 lanes in half of the time
    assert "4 lanes, the largest number that was tried" in "\n".join(summary.format_costs([one]))


def test_what_ran_out_of_memory_does_not_fit_and_has_no_time(tmp_path):
    one = whole()
    for body in one.bodies:
        if body["point"]["lanes"] == 4 and body["point"]["budget"] == "full":
            for name in ("prefill", "decode", "memory"):
                del body[name]
            body |= {"state": "out of memory", "reason": "short"}
    (told,) = study(tmp_path, one)
    rows = {row.place: row for row in told.rows}
    assert rows["tiny", 100, 4, "full", "full"].rates is None
    assert rows["tiny", 100, 4, "20", "h2o"].ratio is None  # nothing beside it
    assert {each.lanes for each in told.largest if each.budget == "full"} == {1}
    words = " ".join("\n".join(summary.format_costs([told])).split())
    assert "out of memory" in words  # a narrow column breaks between words


def test_too_few_repetitions_are_said_and_no_interval_is(tmp_path):
    one = whole()
    kept = [body for body in one.bodies if body["repetition"] < 3]
    (told,) = study(tmp_path, one._replace(bodies=kept), repetitions=2)
    text = "\n".join(summary.format_costs([told]))
    assert "2 repetitions: too few for an interval, which takes 3 or more" in text
    assert "[" not in text


def test_a_busy_machine_is_counted(tmp_path):
    one = whole()
    one.bodies[0]["load"]["before"] = "1.51"  # one thread is ours
    one.bodies[1]["load"]["before"] = "1.50"
    assert [each.busy for each in study(tmp_path, one)] == [1]


def test_machines_are_never_mixed(tmp_path):
    study(tmp_path, whole())
    other = whole(lambda due: 5.0)
    machine = MACHINE | {"host": "there"}
    lines = [{"registration": other.registration, "machine": machine}, *other.bodies]
    text = "".join(json.dumps({"body": body}) + "\n" for body in lines)
    (tmp_path / "cost" / measurement_file.file_name(machine)).write_text(text)
    found = {one.machine["host"]: one for one in summary.read_costs(tmp_path)}
    assert {host: one.rows[0].seconds["prefill"].mean for host, one in found.items()} == {
        "here": pytest.approx(0.5),
        "there": pytest.approx(5.0),
    }


def test_no_word_of_a_verdict_is_said(tmp_path):
    text = "\n".join(summary.format_costs(study(tmp_path, whole())))
    assert not {"CONFIRMED", "REFUTED", "INCONCLUSIVE"} & set(text.split())


def test_nothing_measured_and_nothing_registered_are_told_apart(tmp_path):
    (tmp_path / "lock.json").write_text(json.dumps(CONTENT))
    with pytest.raises(summary.NothingMeasured, match="run: kv-prereg cost"):
        summary.read_costs(tmp_path)
    without = copy.deepcopy(CONTENT)
    del without["protocol"]["content"]["cost"]
    (tmp_path / "lock.json").write_text(json.dumps(without))
    with pytest.raises(summary.NothingMeasured, match="registers no"):
        summary.read_costs(tmp_path)
    (tmp_path / "lock.json").write_text("{")
    with pytest.raises(RecordError):
        summary.read_costs(tmp_path)
