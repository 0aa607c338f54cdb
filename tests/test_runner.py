"""The runner: units in registered order, cells counted once complete, nothing run twice."""

from protocol import runner
from protocol.executors import Produced
from protocol.grid import Cell

CELLS = [Cell("tiny", task, "0.5", arm, 0) for task in ("a", "b") for arm in ("crystal", "random")]


def body(cell, problem):
    return {
        "cell": cell.content(),
        "problem": problem,
        "state": "failed",
        "reason": "a test",
        "prompt": "",
        "prompt_tokens": 0,
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
        jobs.append(job.problem)
        return Produced({cell: (body(cell, job.problem), {}) for cell in job.cells}, ())

    written = runner.run(
        folder, work, execute, phase="confirm", registration="0" * 64, attempt=1, report=seen.append
    )
    return written, seen


def test_units_go_by_task_as_registered_and_by_problem_sorted():
    work = runner.units(CELLS, {"a": ["a2", "a1"], "b": ["b1"]})
    assert [unit.problem for unit in work] == ["a1", "a2", "b1"]
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
    assert jobs == ["a1", "a2", "b1"]
    assert written == 2
    assert [one.fresh for one in seen] == [0, 0, 1]
