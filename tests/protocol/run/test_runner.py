"""The runner: units in registered order, nothing run twice, the time left told from what was timed."""

from functools import partial

from protocol.plan.grid import Cell
from protocol.run import runner
from protocol.run.executors import JobResult

CELLS = [Cell("tiny", task, "0.5", arm, 0) for task in ("a", "b") for arm in ("crystal", "random")]


def body(cell, problem):
    return {
        "cell": cell._asdict(),
        "problem": problem,
        "state": "failed",
        "reason": "a test",
        "prompt": "0" * 64,
        "prompt_tokens": 1,
        "slots": 1,
        "text": "",
        "tokens": 0,
        "stop": None,
        "answer": None,
        "grade": None,
        "grade_reason": "",
        "cache": None,
        "trajectory": None,
    }


def run(folder, work, jobs, took=0.0, beside=1):
    seen = []

    def execute(job):
        jobs.append(job.problems)
        lanes = [(cell, problem) for cell in job.cells for problem in job.problems]
        return JobResult({lane: (body(*lane), {}) for lane in lanes}, (), took)

    written = runner.record_units(
        folder,
        work,
        partial(map, execute),
        phase="confirm",
        registration="0" * 64,
        attempt=1,
        report=seen.append,
        concurrency=beside,
    )
    return written, seen


def test_units_go_by_task_as_registered_and_by_problem_sorted():
    work = runner.split_into_units(CELLS, {"a": ["a2", "a1"], "b": ["b1"]})
    assert [unit.problems for unit in work] == [("a1",), ("a2",), ("b1",)]
    assert [len(unit.cells) for unit in work] == [2, 2, 2]


def test_problems_and_lanes_are_counted_as_they_are_recorded(tmp_path):
    work = runner.split_into_units(CELLS, {"a": ["a1", "a2"], "b": ["b1"]})
    written, seen = run(tmp_path, work, [])
    assert written == 6
    assert [(one.done, one.total, one.lanes, one.all_lanes) for one in seen] == [
        (1, 3, 2, 6),
        (2, 3, 4, 6),
        (3, 3, 6, 6),
    ]


def test_what_is_recorded_is_not_run_again(tmp_path):
    work = runner.split_into_units(CELLS, {"a": ["a1", "a2"], "b": ["b1"]})
    jobs = []
    assert run(tmp_path, work[:2], jobs)[0] == 4
    written, seen = run(tmp_path, work, jobs)
    assert jobs == [("a1",), ("a2",), ("b1",)]
    assert written == 2
    assert [one.lanes for one in seen] == [2, 4, 6]


def test_problems_of_one_task_go_together_as_registered():
    work = runner.split_into_units(CELLS, {"a": ["a3", "a1", "a2"], "b": ["b1"]}, 2)
    assert [unit.problems for unit in work] == [("a1", "a2"), ("a3",), ("b1",)]


def test_a_batch_that_lacks_one_record_is_run_again_whole_and_only_the_missing_are_written(tmp_path):
    """The composition of a batch, and with it the rounding of every number in it, must not change."""
    jobs = []
    problems = {"a": ["a1", "a2"], "b": ["b1"]}
    assert run(tmp_path, runner.split_into_units(CELLS, {"a": ["a1"], "b": []}), jobs)[0] == 2
    written, seen = run(tmp_path, runner.split_into_units(CELLS, problems, 2), jobs)
    assert jobs == [("a1",), ("a1", "a2"), ("b1",)]
    assert written == 4
    assert [(one.done, one.total, one.lanes) for one in seen] == [(2, 3, 4), (3, 3, 6)]


def test_the_time_left_is_that_of_the_units_of_this_model_and_task_which_were_timed(tmp_path):
    work = runner.split_into_units(CELLS, {"a": ["a1", "a2", "a3"], "b": ["b1", "b2"]})
    _, seen = run(tmp_path, work, [], took=10.0)
    assert [one.seconds_left for one in seen] == [20.0, 10.0, 0.0, 10.0, 0.0]
    assert [one.groups_left for one in seen] == [1, 1, 1, 0, 0]


def test_units_that_run_side_by_side_take_so_much_less(tmp_path):
    _, seen = run(tmp_path, runner.split_into_units(CELLS, {"a": ["a1", "a2", "a3"], "b": []}), [], took=10.0, beside=2)
    assert [one.seconds_left for one in seen] == [10.0, 5.0, 0.0]


def test_nothing_is_foretold_from_what_an_earlier_attempt_recorded(tmp_path):
    work = runner.split_into_units(CELLS, {"a": ["a1", "a2", "a3"], "b": []})
    run(tmp_path, work[:1], [], took=10.0)
    _, seen = run(tmp_path, work, [], took=4.0)
    assert [one.seconds_left for one in seen] == [None, 4.0, 0.0]
