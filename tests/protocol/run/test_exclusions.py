"""A registered rule leaves problems out by the length of their prompt: recorded for every lane, never run."""

import pytest
import studies

from protocol import engine
from protocol.evidence import records
from protocol.evidence.shard_writer import ShardWriter
from protocol.plan import grid, toml_reader
from protocol.run.executors import Job, local
from protocol.workspace.planned_study import PlannedStudy
from splits import load

TASK = "needle-256"
DEV = load(TASK).dev


@pytest.fixture
def execute(tiny_model, tmp_path):
    """Runs every lane of some development problems with a limit; returns body by (arm, problem)."""

    def act(limit, problems=DEV):
        rule = {'missing = "inconclusive"': f'missing = "inconclusive"\n[exclude]\nprompt_tokens_above = {limit}'}
        folder = studies.write(tmp_path / "study", tiny_model, studies.ONE_TASK | (rule if limit else {}))
        protocol = toml_reader.parse((folder / "protocol.toml").read_bytes(), "protocol.toml")
        job = Job(protocol.models[0], TASK, tuple(problems), tuple(grid.cells(protocol)))
        done = local.make_executor(PlannedStudy(protocol, tmp_path), {job.model: 1000})(job)
        bodies = {(cell.arm, problem): body for (cell, problem), (body, _) in done.records.items()}
        return bodies, done.trajectories

    return act


@pytest.fixture
def lengths(execute):
    """prompt_tokens of each development problem, without a rule."""
    return {problem: body["prompt_tokens"] for (_, problem), body in execute(None)[0].items()}


def test_the_longer_prompts_are_excluded_in_every_lane_and_the_others_run_as_if_alone(execute, lengths):
    limit = sorted(lengths.values())[len(lengths) // 2]
    long = {problem for problem, tokens in lengths.items() if tokens > limit}
    assert 0 < len(long) < len(DEV)
    bodies, trajectories = execute(limit)
    assert {problem for (_, problem), body in bodies.items() if body["state"] == "excluded"} == long
    for (arm, problem), body in bodies.items():
        if problem not in long:
            assert body["state"] in ("ok", "failed")
            assert body["batch"]["problems"] == [item for item in DEV if item not in long]
            continue
        assert body["reason"] == f"prompt_tokens: {lengths[problem]}, above {limit}"
        assert (body["prompt_tokens"], body["text"], body["tokens"]) == (lengths[problem], "", 0)
        assert [body[name] for name in ("grade", "cache", "trajectory", "stop", "answer")] == [None] * 5
        assert (body["slots"] is None) == (arm == "full")
    again = execute(None, [problem for problem in DEV if problem not in long])
    assert {lane: body for lane, body in bodies.items() if body["state"] != "excluded"} == again[0]
    assert trajectories == again[1]


def test_a_prompt_as_long_as_the_limit_is_run(execute, lengths):
    bodies, _ = execute(max(lengths.values()))
    assert "excluded" not in {body["state"] for body in bodies.values()}


def test_where_every_problem_is_excluded_nothing_is_run_and_all_is_recorded(execute, lengths, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "run", lambda *_, **__: pytest.fail("a lane ran"))
    bodies, trajectories = execute(min(lengths.values()) - 1)
    assert {body["state"] for body in bodies.values()} == {"excluded"}
    assert trajectories == ()
    with ShardWriter(tmp_path / "records") as shard:
        named = ({"registration": "0" * 64, "phase": "confirm", **body} for body in bodies.values())
        shard.append([(body, {"attempt": 1}) for body in named])
    assert len(records.read_records(tmp_path / "records")) == len(bodies) == 4 * len(DEV)
