"""How long a study will take: from batches as wide as registered, checked against batches counted by hand."""

import pytest

from protocol.plan.grid import Cell
from protocol.running import estimate
from protocol.running.estimate import Batch, Speed
from protocol.running.executors import Produced

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
    assert estimate.steps(lengths, lanes) == step_by_step(lengths, lanes)


def test_a_batch_is_read_from_its_records():
    def lane(joined, tokens, prefill):
        return {"tokens": tokens, "batch": {"joined": joined}}, {
            "prefill_seconds": prefill,
            "decode_seconds": "1",
        }

    failed = {"tokens": 0, "batch": {}}, {"prefill_seconds": "0.250"}
    records = {
        (CELL, "a"): lane(0, 4, "0.500"),  # forwards 1 to 5: the query and four tokens
        (FULL, "a"): lane(0, 2, "0.500"),
        (CELL, "b"): lane(3, 6, "0.250"),  # 4 to 10
        (FULL, "b"): failed,
        (FULL, "c"): ({"tokens": 0}, {}),  # excluded: it was not fed
    }
    found = estimate.batch(Produced(records, (), 10.0))
    assert found == Batch(problems=2, prefill=0.75, decode=9.25, forwards=10, lane_steps=5 + 3 + 7)


def test_what_a_forward_and_a_lane_cost_is_found_from_a_narrow_and_a_wide_batch():
    true = Speed(prompt=0.3, fixed=0.02, each=0.004)
    sizes = ((2, 60, 100), (24, 32, 1500))
    measured = [
        Batch(problems, problems * true.prompt, forwards * true.fixed + lanes * true.each, forwards, lanes)
        for problems, forwards, lanes in sizes
    ]
    assert estimate.speed(measured) == pytest.approx(true)


def test_no_cost_is_negative_and_one_batch_is_enough():
    assert min(estimate.speed([Batch(1, 0.1, 2.0, 100, 900)])) >= 0
    shrinking = [Batch(1, 0.1, 5.0, 100, 200), Batch(1, 0.1, 1.0, 100, 2000)]
    assert min(estimate.speed(shrinking)) >= 0


def test_batches_of_the_registered_size_are_summed_and_the_last_is_smaller():
    answers = {CELL: [9, 19], FULL: [4]}
    taken = Speed(prompt=1.0, fixed=0.1, each=0.01)
    found = estimate.seconds(taken, [CELL, FULL], answers, problems=3, together=2, lanes=4)
    # Of two problems: lanes of 10, 5, 20 and 5 steps at once, so 20 forwards; of the third: 10 and 5, so 10.
    assert found == pytest.approx(3 * 1.0 + 0.1 * (20 + 10) + 0.01 * (40 + 15))


def test_a_narrow_batch_says_too_much_of_a_wide_one():
    """What this module is for: of two problems a lane takes 0.05 s a step, of 24 it takes 0.009."""
    taken = estimate.speed([Batch(2, 0.0, 10.0, 100, 200), Batch(24, 0.0, 21.0, 100, 2400)])
    wide = estimate.seconds(taken, [CELL], {CELL: [99]}, problems=240, together=24, lanes=24)
    assert wide == pytest.approx(210.0)
    assert 240 * 10.0 / 2 == 1200.0  # by the seconds a lane of the narrow one
