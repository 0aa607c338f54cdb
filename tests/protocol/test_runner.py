"""The runner: units in registered order, cells counted once complete, nothing run twice."""

from functools import partial

from protocol.plan.grid import Cell
from protocol.running import runner
from protocol.running.executors import Produced

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


def run(folder, work, jobs):
    seen = []

    def execute(job):
        jobs.append(job.problems)
        lanes = [(cell, problem) for cell in job.cells for problem in job.problems]
        return Produced({lane: (body(*lane), {}) for lane in lanes}, ())

    written = runner.record(
        folder,
        work,
        partial(map, execute),
        phase="confirm",
        registration="0" * 64,
        attempt=1,
        report=seen.append,
    )
    return written, seen


def test_units_go_by_task_as_registered_and_by_problem_sorted():
    work = runner.units(CELLS, {"a": ["a2", "a1"], "b": ["b1"]})
    assert [unit.problems for unit in work] == [("a1",), ("a2",), ("b1",)]
    assert [len(unit.cells) for unit in work] == [2, 2, 2]


def test_a_cell_counts_when_its_last_problem_is_recorded(tmp_path):
    work = runner.units(CELLS, {"a": ["a1", "a2"], "b": ["b1"]})
    written, seen = run(tmp_path, work, [])
    assert written == 6
    assert [(one.done, one.lanes, one.cells, one.all_cells) for one in seen] == [
        (1, 2, 0, 4),
        (2, 4, 2, 4),
        (3, 6, 4, 4),
    ]


def test_what_is_recorded_is_not_run_again(tmp_path):
    work = runner.units(CELLS, {"a": ["a1", "a2"], "b": ["b1"]})
    jobs = []
    assert run(tmp_path, work[:2], jobs)[0] == 4
    written, seen = run(tmp_path, work, jobs)
    assert jobs == [("a1",), ("a2",), ("b1",)]
    assert written == 2
    assert [one.fresh for one in seen] == [0, 0, 1]


def test_problems_of_one_task_go_together_as_registered():
    work = runner.units(CELLS, {"a": ["a3", "a1", "a2"], "b": ["b1"]}, 2)
    assert [unit.problems for unit in work] == [("a1", "a2"), ("a3",), ("b1",)]


def test_a_batch_that_lacks_one_record_is_run_again_whole_and_only_the_missing_are_written(tmp_path):
    """The composition of a batch, and with it the rounding of every number in it, must not change."""
    jobs = []
    problems = {"a": ["a1", "a2"], "b": ["b1"]}
    assert run(tmp_path, runner.units(CELLS, {"a": ["a1"], "b": []}), jobs)[0] == 2
    written, seen = run(tmp_path, runner.units(CELLS, problems, 2), jobs)
    assert jobs == [("a1",), ("a1", "a2"), ("b1",)]
    assert written == 4
    assert [(one.done, one.total, one.lanes, one.fresh) for one in seen] == [(2, 3, 4, 2), (3, 3, 6, 3)]
