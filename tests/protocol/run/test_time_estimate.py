"""How long a study will take: from batches as wide as registered, checked against batches counted by hand."""

import pytest

from protocol.plan.grid import Cell
from protocol.run import time_estimate
from protocol.run.executors import JobResult
from protocol.run.time_estimate import Batch, Speed

CELL = Cell("tiny", "chain", "64", "random", 0)
FULL = CELL._replace(arm="full", budget="full")


def step_by_step(lengths, lanes):
    """Every forward, one after the other."""
    waiting, running, forwards = list(lengths), [], 0
    while waiting or running:
        while waiting and len(running) < lanes:
            running.append(waiting.pop(0))
        forwards += 1
        running = [left - 1 for left in running if left > 1]
    return forwards


@pytest.mark.parametrize("lanes", [1, 2, 3, 7, 50])
def test_forwards_of_a_batch_are_counted_as_they_would_be_run(lanes):
    lengths = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9]
    assert time_estimate.count_forwards(lengths, lanes) == step_by_step(lengths, lanes)


def test_a_batch_is_read_from_its_records():
    def lane(joined, tokens, prefill):
        return {"tokens": tokens, "batch": {"joined": joined}}, {"prefill_seconds": prefill, "decode_seconds": "1"}

    failed = {"tokens": 0, "batch": {}}, {"prefill_seconds": "0.250"}
    records = {
        (CELL, "a"): lane(0, 4, "0.500"),  # forwards 1 to 5: the query and four tokens
        (FULL, "a"): lane(0, 2, "0.500"),
        (CELL, "b"): lane(3, 6, "0.250"),  # 4 to 10
        (FULL, "b"): failed,
        (FULL, "c"): ({"tokens": 0}, {}),  # excluded: it was not fed
    }
    found = time_estimate.summarize_batch(JobResult(records, (), 10.0))
    assert found == Batch(problems=2, prefill=0.75, decode=9.25, forwards=10, lane_steps=5 + 3 + 7)


def test_what_a_forward_and_a_lane_cost_is_found_from_a_narrow_and_a_wide_batch():
    true = Speed(per_prompt=0.3, per_forward=0.02, per_lane=0.004)
    sizes = ((2, 60, 100), (24, 32, 1500))
    measured = [
        Batch(
            problems, problems * true.per_prompt, forwards * true.per_forward + lanes * true.per_lane, forwards, lanes
        )
        for problems, forwards, lanes in sizes
    ]
    assert time_estimate.fit_speed(measured) == pytest.approx(true)


def test_no_cost_is_negative_and_one_batch_is_enough():
    assert min(time_estimate.fit_speed([Batch(1, 0.1, 2.0, 100, 900)])) >= 0
    shrinking = [Batch(1, 0.1, 5.0, 100, 200), Batch(1, 0.1, 1.0, 100, 2000)]
    assert min(time_estimate.fit_speed(shrinking)) >= 0


def test_batches_of_the_registered_size_are_summed_and_the_last_is_smaller():
    answers = {CELL: [9, 19], FULL: [4]}
    taken = Speed(per_prompt=1.0, per_forward=0.1, per_lane=0.01)
    found = time_estimate.predict_seconds(taken, [CELL, FULL], answers, problems=3, problems_per_batch=2, lanes=4)
    # Of two problems: lanes of 10, 5, 20 and 5 steps at once, so 20 forwards; of the third: 10 and 5, so 10.
    assert found == pytest.approx(3 * 1.0 + 0.1 * (20 + 10) + 0.01 * (40 + 15))


def test_a_narrow_batch_says_too_much_of_a_wide_one():
    """What this module is for: of two problems a lane takes 0.05 s a step, of 24 it takes 0.009."""
    taken = time_estimate.fit_speed([Batch(2, 0.0, 10.0, 100, 200), Batch(24, 0.0, 21.0, 100, 2400)])
    wide = time_estimate.predict_seconds(taken, [CELL], {CELL: [99]}, problems=240, problems_per_batch=24, lanes=24)
    assert wide == pytest.approx(210.0)
    assert 240 * 10.0 / 2 == 1200.0  # by the seconds a lane of the narrow one
