"""A study that samples from a nucleus, evicts while its model thinks and preserves by one rule: locked, run,
judged and audited.
"""

import pytest
import studies

from protocol.evidence import records
from protocol.plan import grid, toml_reader
from protocol.run import lane_comparison
from protocol.run.executors import Job, local
from protocol.workspace.planned_study import PlannedStudy
from splits import load

RULE = 'preserve = { prompt = true, recent = "min(16, K/50)" }'
# A prompt has 204 to 217 tokens; 4 more are recent, and 24 are new.
CHANGES = {
    **studies.ONE_TASK,
    "temperature = 0\n": "temperature = 0.9\ntop_p = 0.9\n",
    "threads = 1": f"threads = 1\ninterval = 2\nthink_only = true\n{RULE}\nproblems_per_batch = 4",
    "budgets = [0.8]": "budgets = [221]",
    'crystal = { policy = "crystal-token-level" }': 'crystal = { policy = "h2o" }',
}


def carried_out(name, *arguments):
    return studies.ran(0, name, *arguments).stdout


@pytest.fixture(scope="module")
def confirmed(tmp_path_factory, thinking_model):
    """Its folder. Twelve problems decide nothing, whatever a random model says: the status is SCREENED."""
    folder = tmp_path_factory.mktemp("shelf") / "registrations" / "study"
    studies.write(folder, thinking_model, CHANGES)
    carried_out("register", folder)
    assert studies.here("confirm", folder).returncode == 11
    return folder


def bodies(folder):
    return [record["body"] for record in records.read_records(folder / "records")]


def test_events_fire_while_it_thinks_alone(confirmed):
    found = bodies(confirmed)
    assert {body["state"] for body in found} == {"ok"}
    evicting = [body for body in found if body["cell"]["arm"] != "full"]
    late = 0
    for body in evicting:
        steps = [step for step, *_ in body["cache"]["events"][1:]]
        due = 223 - body["prompt_tokens"]  # a lane grows to its budget and an interval
        last = body["thought"] or 99
        assert steps == [step for step in range(due, body["tokens"], 2) if step < last]
        late += due < last < body["tokens"] - 2
    assert late > 2  # of lanes that would have been cut after their mark


@pytest.mark.parametrize("changes", [CHANGES, studies.ONE_TASK], ids=["as registered", "as without it"])
def test_the_engine_is_asked_for_what_is_registered(thinking_model, tmp_path, monkeypatch, changes):
    folder = studies.write(tmp_path / "study", thinking_model, changes)
    protocol = toml_reader.parse((folder / "protocol.toml").read_bytes(), "protocol.toml")
    asked = {}

    class Asked(Exception): ...

    def run(model, requests, **how):
        asked.update(how, model=model)
        raise Asked

    monkeypatch.setattr(local.engine, "run", run)
    cells = tuple(grid.cells(protocol))
    job = Job(protocol.models[0], "needle-256", tuple(load("needle-256").dev[:1]), cells)
    with pytest.raises(Asked):
        local.make_executor(PlannedStudy(protocol, tmp_path), {})(job)
    if changes is CHANGES:
        assert asked["top_p"] == 0.9
        assert len(asked["marks"]) > 20
        assert asked["marks"] == asked["model"].answer_marks
    else:
        assert asked["top_p"] == 1
        assert not asked["marks"]


def test_the_lock_has_what_was_registered_and_the_policy_of_each_arm(confirmed):
    lock = studies.content(confirmed / "lock.json")
    generation = lock["protocol"]["content"]["generation"]
    assert generation["top_p"] == "0.9"
    assert generation["think_only"] is True
    assert generation["preserve"] == {"prompt": True, "recent": "min(16, K/50)"}
    for arm in ("crystal", "random", "streaming"):
        assert lock["policies"][arm]["protect"] == "policies.protect.Preserve()"
        assert lock["policies"][arm]["protect.recent"] == "'min(16, K/50)'"
    assert lock["policies"]["full"]["protect"] != "policies.protect.Preserve()"


def test_an_audit_holds_and_decodes_its_lanes_again(confirmed):
    said = carried_out("audit", confirmed, "--replay", 6, "--nonce", 32 * "5a")
    assert "6 of 6 lanes drawn with the nonce" in said


def test_a_mark_that_was_said_elsewhere_is_found(confirmed):
    """By a replay, where every digest of the folder fits again."""
    body = next(body for body in bodies(confirmed) if body["thought"])
    other = body | {"thought": body["thought"] + 1}
    assert lane_comparison.find_difference(other, body, compare_bytes=True).field == "thought"
    assert lane_comparison.find_difference(body, body, compare_bytes=True) is None
