"""What a run says of itself while it runs."""

from protocol.plan.grid import Cell
from protocol.running import progress, runner

CELL = Cell("tiny", "needle-256", "0.5", "crystal", 0)
UNIT = runner.Unit("tiny", "needle-256", ("needle/256/0/000",), (CELL, CELL._replace(arm="random")))


def words(**changes):
    seen = runner.Progress(
        done=12, total=48, lanes=24, cells=0, all_cells=4, seconds=24.0, fresh=12, unit=UNIT
    )
    return progress.words(seen._replace(**changes))


def test_problems_lanes_cells_and_time_left_are_shown():
    assert words() == "12/48 problems, 24 lanes, 0/4 cells, 72 s left, tiny needle-256"
    assert "5 min left" in words(seconds=100.0)  # 36 problems at 100/12 seconds each


def test_what_an_earlier_attempt_recorded_does_not_count_as_speed():
    assert "36 s left" in words(seconds=2.0, fresh=2)


def test_nothing_is_foretold_before_the_first_problem_of_an_attempt_or_after_the_last():
    assert "left" not in words(fresh=0)
    assert "left" not in words(done=48)
