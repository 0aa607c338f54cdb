"""What the engine runs makes sense: every policy, with events while decoding and without, and failures."""

import shutil
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import pytest
import studies

import policies
from policies import catalogue
from policies.crystal_kv import crystal_kv
from protocol.engine.native import library
from protocol.evidence import records
from protocol.evidence.audit import consistency
from protocol.evidence.invariants.planned_lanes import derive_plan
from protocol.plan import grid, toml_reader
from protocol.run import runner
from protocol.run.executors import local, process_pool
from protocol.workspace.planned_study import PlannedStudy
from splits import load

DIGEST = "7" * 64
HERE = [name for name in policies.names() if not policies.get(name).calibrated and name != "full"]
CARRIED = [name for name in HERE if not policies.get(name).prefill_only_signals]


def ran(tmp_path, model, arms, changes, places, problems=3):
    """What a run of some development problems leaves, and what its lock would say of it."""
    found, content = left(tmp_path, model, arms, changes, places, problems)
    return found, broken_of(tmp_path, found, content)


def broken_of(tmp_path, found, content):
    plan = derive_plan(content, DIGEST, "confirm")
    return consistency.find_violations(plan, [found], tmp_path / "study" / "records", {})


def left(tmp_path, model, arms, changes, places, problems=3):
    """What a run of some development problems leaves, and what of its lock relations read."""
    listed = "".join(f'"{arm}" = {{ policy = "{arm}" }}\n' for arm in arms)
    own = {
        f"path:{model}": str(model) if model == "chain-llama" else f"path:{model}",
        'crystal = { policy = "crystal-token-level" }\n': listed,
        'random = { policy = "random" }\nstreaming = { policy = "streaming" }\n': "",
        'subject = "crystal"': f'subject = "{arms[0]}"',
        'against = ["random", "streaming"]': f'against = ["{arms[1]}"]',
        "max_new_tokens = 24": "max_new_tokens = 12",
        **changes,
    }
    folder = studies.write(tmp_path / "study", model, own)
    protocol = toml_reader.parse((folder / "protocol.toml").read_bytes(), "protocol.toml")
    ids = {task.name: list(load(task.name).dev[:problems]) for task in protocol.tasks}
    cells, lanes = grid.cells(protocol), dict.fromkeys(protocol.models, places) if places else {}
    work = runner.split_into_units(cells, ids, protocol.generation.problems_per_batch)
    planned = PlannedStudy(protocol, tmp_path)
    decode, machine = local.make_executor(planned, lanes), process_pool._machine_fields(planned, "")
    execute = partial(map, lambda job: decode(job)._replace(where=machine))
    runner.record_units(
        folder, work, execute, phase="confirm", registration=DIGEST, attempt=1, report=lambda progress: None
    )
    content = {
        "protocol": {"content": protocol.content()},
        "grid": [list(cell) for cell in cells],
        "items": {task: {"confirm": items, "dev": []} for task, items in ids.items()},
        "batch": {"lanes": lanes, "first_event": protocol.generation.steps_before_eviction},
        "promises": protocol.promises(),
        "weights": {},
        **{field: {} for field in ("asked", "full_use", "slot_bytes", "layers")},
    }
    return records.read_records(folder / "records"), content


SETTINGS = {
    "at the prefill alone": (HERE, {}),
    "slack": (CARRIED, {"threads = 1": 'threads = 1\ninterval = 3\ncadence = "slack"'}),
    "exact": (CARRIED, {"threads = 1": 'threads = 1\ninterval = 3\ncadence = "exact"\nfirst_event = 0'}),
    "late": (CARRIED, {"threads = 1": "threads = 1\ninterval = 2\nfirst_event = 5"}),
    "thinking": (
        CARRIED,
        {
            "threads = 1": "threads = 1\ninterval = 3\nthink_only = true\ntop_p = 0.9\n"
            'preserve = { prompt = false, recent = "min(128, K/4)" }'
        },
    ),
    "pinned": (CARRIED, {"threads = 1": 'threads = 1\ninterval = 2\nprompt = "pinned"\nproblems_per_batch = 2'}),
}


KINDS = ["h2o", "ada-snapkv", "pyramidkv", "chunkkv", "crystal-over-budget", "random"]  # of shapes and of counts


def sensible(tmp_path, model, setting, budget, arms, problems):
    sampled = {"temperature = 0\n": "temperature = 0.9\n", "seeds = [0]": "seeds = [0, 5]"}
    more = SETTINGS[setting][1] | sampled | {"budgets = [0.8]": f"budgets = [{budget}]"}
    found, broken = ran(tmp_path, model, arms, more, places=7, problems=problems)
    assert broken == []
    assert {record["body"]["cell"]["arm"] for record in found} == {"full", *arms}
    return [record["body"] for record in found if record["body"]["state"] == "ok"]


@pytest.mark.parametrize("setting", SETTINGS)
def test_lanes_of_every_shape_make_sense(tmp_path, tiny_model, thinking_model, setting):
    arms = [name for name in KINDS if name in SETTINGS[setting][0]]
    model = thinking_model if setting == "thinking" else tiny_model
    ended = sensible(tmp_path, model, setting, "40", arms, problems=2)
    assert ("thought" in ended[0]) == (setting == "thinking")
    if setting == "thinking":
        thought = [body["thought"] for body in ended if body["cell"]["arm"] != "full"]
        assert None in thought
        assert len({*thought}) > 4
    decoding = any(len(body["cache"]["events"]) > 1 for body in ended)
    assert decoding == (setting not in ("at the prefill alone", "pinned"))


@pytest.mark.soak
@pytest.mark.parametrize("budget", ["0.8", "40"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_every_policy_makes_sense(tmp_path, tiny_model, thinking_model, setting, budget):
    model = thinking_model if setting == "thinking" else tiny_model
    sensible(tmp_path, model, setting, budget, SETTINGS[setting][0], problems=3)


def chains(budget, interval, tokens):
    """What makes a study of chains alone, with events on the way."""
    return {
        '[[tasks]]\nname = "association-256"\nquery = "outside"\nmax_new_tokens = 12\n': "",
        'name = "needle-256"': 'name = "chain"',
        "budgets = [0.8]": f"budgets = [{budget}]",
        "threads = 1": f"threads = 1\ninterval = {interval}\nproblems_per_batch = 2",
        "max_new_tokens = 12": f"max_new_tokens = {tokens}",
    }


@pytest.mark.parametrize(
    ("budget", "interval", "tokens"),
    [("24", 4, 40), pytest.param("0.999", 1, 12, id="what is held first does not fit the last room")],
)
def test_budgets_that_change_from_round_to_round_make_sense(tmp_path, budget, interval, tokens):
    gates = [name for name in policies.names() if name.startswith("schedule-")]
    found, broken = ran(tmp_path, "chain-llama", ["1d", *gates], chains(budget, interval, tokens), places=4)
    assert broken == []
    for gate in gates:
        own = (record["body"] for record in found if record["body"]["cell"]["arm"] == gate)
        assert any({*body["cache"]["granted"]} != {body["slots"]} for body in own), gate


def test_budgets_that_move_from_head_to_head_make_sense(tmp_path, monkeypatch):
    """With a period of 6 tokens, which these short answers reach."""
    moving = {**catalogue.CATALOGUE, "crystal-kv": crystal_kv(period=6)}
    monkeypatch.setattr(catalogue, "CATALOGUE", MappingProxyType(moving))
    found, broken = ran(tmp_path, "chain-llama", ["crystal-kv", "h2o"], chains("24", 4, 40), places=4)
    assert broken == []
    own = [record["body"] for record in found if record["body"]["cell"]["arm"] == "crystal-kv"]
    events = [event for body in own for event in body["cache"]["events"]]
    most = max(after for _, _, after in events)  # what an event leaves that gives every head the budget
    assert any(after < most for _, before, after in events if before > most)


@pytest.mark.skipif(not any(map(shutil.which, library.COMPILERS)), reason="needs a C++ compiler")
def test_records_of_the_native_kernel_say_nothing_of_a_batch_and_depend_on_none(tmp_path):
    """Under the lock of such a study, which gives no number of lanes; with one, who decoded together is missing."""
    bodies = {}
    for lanes in (2, 5):
        changes = chains("24", 4, 20)
        changes["threads = 1"] += f'\nkernel = "native"\ntemperature = 0.7\nlanes_per_batch = {lanes}'
        changes["temperature = 0\n"] = ""
        found, content = left(tmp_path / str(lanes), "chain-llama", ["h2o", "1d"], changes, places=0, problems=2)
        assert broken_of(tmp_path / str(lanes), found, content) == []
        bodies[lanes] = [record["body"] for record in found]
    assert bodies[2] == bodies[5]
    assert len(bodies[2]) == 6
    content["batch"]["lanes"] = {"chain-llama": 5}
    assert {violation.invariant.name for violation in broken_of(tmp_path / "5", found, content)} == {"company"}


ONE_TASK = {
    '[[tasks]]\nname = "association-256"\nquery = "outside"\nmax_new_tokens = 12\n': "",
    'name = "needle-256"': 'name = "chain"',
    "budgets = [0.8]": "budgets = [200]",
    "max_new_tokens = 12": "max_new_tokens = 80",
    "threads = 1": "threads = 1\ninterval = 7\nproblems_per_batch = 2",
}


@pytest.fixture
def short_thoughts(monkeypatch):
    """`thinkv` with segments of 8 tokens, so that short answers have some, and an event every 4 steps."""
    policy = policies.get("thinkv")
    short = replace(
        policy,
        scoring=replace(policy.scoring, size=8, reasoning=4, execution=2, transition=1),
        cadence=replace(policy.cadence, interval=4),
    )
    monkeypatch.setattr(policies.catalogue, "CATALOGUE", {**policies.catalogue.CATALOGUE, "thinkv": short})


def test_segments_that_leave_less_than_their_budget_make_sense_and_are_held_to_their_lock(tmp_path, short_thoughts):
    """200 slots a head are more than a lane comes to hold, and yet slots go."""
    found, content = left(tmp_path, "chain-llama", ["thinkv", "h2o"], ONE_TASK, places=4, problems=2)
    assert broken_of(tmp_path, found, content) == []
    events = [
        event
        for record in found
        for event in record["body"]["cache"]["events"][1:]
        if record["body"]["cell"]["arm"] == "thinkv"
    ]
    assert {step % 4 for step, *_ in events} == {0}
    assert all(before <= 4 * 200 for _, before, _ in events)
    assert any(after < before for _, before, after in events)
    for setting, relation in (
        ({"may_leave_less": False}, "left"),
        ({"interval": 5}, "cadence"),
        ({"fires": "slack"}, "cadence"),
    ):
        other = content["promises"] | {"thinkv": content["promises"]["thinkv"] | setting}
        broken = broken_of(tmp_path, found, content | {"promises": other})
        assert relation in {one.invariant.name for one in broken}, setting
