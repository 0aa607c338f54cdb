"""Drawings of measured time and memory: numbers by hand, and what is said of them."""

import copy
import json

import drawing_checks
import judgements
import lanes
import pytest
from measured_cost import CONTENT, whole

from analysis.stats.paired_ratios import GeometricMean
from figures.report_page.glossary import DRAWINGS
from protocol.evidence.audit import inventory
from protocol.instruments.cost import summary
from protocol.instruments.cost.drawings import draw as commands
from protocol.instruments.cost.drawings.concurrency import CARD, projected_requests, slots_at
from protocol.instruments.cost.drawings.frontier import cost_frontier, timed_curves
from protocol.instruments.cost.drawings.memory import cost_memory, freed_bytes
from protocol.instruments.cost.drawings.prefill import added_share, cost_prefill
from protocol.instruments.cost.drawings.throughput import cost_throughput

GIB = 2**30


def seconds(due):
    return 0.5 * 2**due.repetition * (1 if due.point.budget == "full" else 2)


@pytest.fixture
def found(tmp_path):
    return measured(tmp_path, whole(seconds))


def measured(folder, one, **changes):
    content = copy.deepcopy(CONTENT)
    content["protocol"]["content"]["cost"] |= changes
    (folder / "lock.json").write_text(json.dumps(content))
    (folder / "cost").mkdir(exist_ok=True)
    lines = [{"registration": one.registration, "machine": one.machine}, *one.bodies]
    text = "".join(json.dumps({"body": body}) + "\n" for body in lines)
    (folder / "cost" / one.name).write_text(text)
    return summary.read_costs(folder)


def test_the_projection_has_the_numbers_of_epikv():
    """Appendix I: on 80 GiB, beside 16 GiB of weights, at 128 KiB a token, requests of 32,768 tokens."""
    weights, token = 16 * GIB, 128 * 1024
    assert projected_requests(CARD, weights, token, slots_at("full", 32_768)) == 14
    assert projected_requests(CARD, weights, token, slots_at("2048", 32_768)) == 224
    assert projected_requests(CARD, weights, token, slots_at("0.5", 32_768)) == 28
    assert projected_requests(CARD, 80 * GIB, token, 100) == 0
    assert slots_at("2048", 512) == 512
    assert slots_at("48 KiB", 512) is None


def test_the_added_share_is_that_of_crystalcache_and_its_limits_keep_their_order():
    """Table 12: 0.39 of 1.30 seconds at 4K, and 25.74 of 40.40 at 32K."""
    low, high = GeometricMean(1.30 / 0.91, None, None, 1), GeometricMean(40.40 / 14.66, 40 / 16, 40 / 12, 5)
    assert added_share(low) == (pytest.approx(0.30), None, None)
    assert added_share(high) == pytest.approx((0.637, 0.6, 0.7), abs=1e-3)


def test_rates_and_bytes_are_drawn_where_they_were_measured(found):
    gids = drawing_checks.by_gid(drawing_checks.drawn(cost_throughput, found))
    (rate,) = gids["rate-tiny/100/20/h2o"]
    assert list(rate.get_ydata()) == pytest.approx([10 / 8, 40 / 8])
    (bytes_,) = gids["bytes-tiny/100/20/h2o"]
    assert list(bytes_.get_ydata()) == [4 * 64 * (20 + 11), 4 * 4 * 64 * (20 + 11)]
    (full,) = gids["bytes-tiny/100/20/full"]
    assert list(full.get_ydata()) == [4 * 64 * 111, 4 * 4 * 64 * 111]


def test_a_prefill_is_split_into_the_full_caches_and_the_rest(found):
    gids = drawing_checks.by_gid(drawing_checks.drawn(cost_prefill, found))
    (forward,), (more,) = gids["forward-tiny/100/20/h2o"], gids["added-tiny/100/20/h2o"]
    assert (forward.get_width(), more.get_width()) == pytest.approx((2, 2))  # twice as long as 2 seconds
    assert "added-tiny/100/full/full" not in gids


def test_bytes_are_freed_per_lane_layer_and_head(found):
    rows = {row.place: row for row in found[0].rows}
    arm, full = rows["tiny", 100, 4, "20", "h2o"], rows["tiny", 100, 4, "full", "full"]
    assert freed_bytes(arm, full) == {"allocated": (100 - 20) * 64}
    assert freed_bytes(full, full) == {}
    assert freed_bytes(arm, None) == {}


def test_every_drawing_says_who_measured_and_what_makes_it_worth_less(tmp_path):
    one = whole(seconds)
    one.bodies[0]["load"]["before"] = "9.00"
    del one.bodies[17]
    found = measured(tmp_path, one)
    for drawing in (cost_throughput, cost_prefill, cost_memory):
        text = " ".join(part.get_text() for part in drawing_checks.drawn(drawing, found).texts)
        assert "Measured on here" in text
        assert "INCOMPLETE: 17 of 18" in text
        assert "BUSY MACHINE: 1 of 17" in text
        assert "CONFIRMED" not in text


def test_the_frontier_has_judged_accuracy_measured_seconds_and_says_that_these_are_two_runs(found):
    place = {"model": "tiny", "task": "chain"}
    judged = [judgements.arm("full", **place)]
    right = {f"p{i}": i < 6 for i in range(10)}
    rows = [lanes.lanes("full", right, budget="full", **place)]
    for arm, budget in (("h2o", "0.5"), ("h2o", "20"), ("unmeasured", "20")):
        judged.append(judgements.arm(arm, budget=budget, **place))
        rows.append(lanes.lanes(arm, right, budget=budget, **place))
    judgement = judgements.judgement(arms=judged)
    (drawn,) = timed_curves(judgement, lanes.table(*rows), found)
    assert drawn.arms.keys() == {"h2o"}
    assert [point.value for point in drawn.arms["h2o"]] == pytest.approx([12, 12])  # 4 and 8, one lane
    assert drawn.full.value == pytest.approx(6)
    lock = {"protocol": {"content": {"arms": {}}}}
    judgement["contrasts"][0]["subject"] = "h2o"
    figure = drawing_checks.drawn(cost_frontier, judgement, lock, [drawn], found)
    assert "TWO RUNS" in " ".join(part.get_text() for part in figure.texts)


def test_the_command_draws_without_a_verdict_and_every_file_is_known(found, tmp_path, capsys):
    assert commands.main([str(tmp_path)]) == 0
    drawn = [line.rpartition("/")[2] for line in capsys.readouterr().out.splitlines()]
    assert len(drawn) == 8
    assert set(drawn) <= inventory.DRAWINGS
    assert {name.partition(".")[0] for name in drawn} <= DRAWINGS.keys()
    assert commands.main([str(tmp_path / "cost")]) == 2
