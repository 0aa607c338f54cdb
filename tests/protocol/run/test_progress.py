"""What a run says of itself while it runs."""

from protocol.engine import Progress
from protocol.plan.grid import Cell
from protocol.run import progress, runner
from protocol.run.executors import Job, Loading

CELL = Cell("tiny", "needle-256", "0.5", "crystal", 0)
UNIT = Job("tiny", "needle-256", ("needle/256/0/000",), (CELL, CELL._replace(arm="random")))
REACHED = runner.Progress(done=12, total=48, lanes=24, all_lanes=96, seconds_left=72.0, groups_left=0, unit=UNIT)


def said(*events):
    told = []
    report = progress.make_reporter(48, 96, told.append)
    for event in events:
        report(event)
    return told[-1]


def test_problems_lanes_and_time_left_are_told():
    at = said(REACHED)
    assert at.words == "12 of 48 problems, 24 of 96 lanes"
    assert (at.done, at.total, at.left, at.of, at.more) == (24, 96, 72.0, "", "tiny needle-256")


def test_the_time_left_is_said_to_be_of_this_model_and_task_where_others_follow():
    assert said(REACHED._replace(groups_left=3)).of == " of this model and task, then 3 more"


def test_nothing_is_foretold_before_anything_was_timed():
    assert said(Loading("tiny")).left is None
    assert said(Loading("tiny"), Progress("prefilling", 0, 8, 0)).left is None
    assert said(REACHED._replace(seconds_left=None), Progress("decoding", 1, 8, 5)).left is None


def test_lanes_of_the_batch_that_runs_count_for_the_bar_and_not_as_recorded():
    at = said(REACHED, Progress("decoding", 3, 8, 1234))
    assert (at.words, at.done) == ("12 of 48 problems, 24 of 96 lanes", 27)
    assert (at.heading, at.more) == ("decoding", "in this batch 3 of 8 lanes, step 1,234")


def test_time_left_goes_down_within_a_batch(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    told = []
    report = progress.make_reporter(48, 96, told.append)
    report(REACHED)
    now[0] += 30
    report(Progress("decoding", 1, 8, 5))
    assert told[-1].left == 42.0


def test_going_on_is_said_where_an_earlier_attempt_recorded_anything():
    assert progress.format_continuation(1204, 12054) == "continuing: 1,204 of 12,054 lanes recorded"
    assert progress.format_continuation(0, 12054) == ""
