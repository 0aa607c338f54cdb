"""Arms that keep the same slots are told when a study is locked, rehearsed and probed."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import studies
import torch

import policies
from analysis.judgement import same_retained_slots as told
from analysis.judgement import statements
from policies.observer import observe
from policies.subspace import Subspace
from policies.syn_mem import StaticHybrid
from protocol.formats.vocabulary import RERUN_SUFFIX
from protocol.models import load
from protocol.models.random_network import build_random_model
from protocol.plan.design import Arm
from protocol.preflight import development_results, frozen_problems, same_slots
from protocol.workspace.planned_study import PlannedStudy, read_protocol

ARMS = """crystal = { policy = "crystal" }
uniform = { policy = "crystal-uniform" }
d-only = { policy = "crystal-d-only" }
twin = { policy = "random" }
"""
WITH_TWINS = {
    **studies.ONE_TASK,
    'name = "needle-256"': 'name = "needle-1024"',
    "budgets = [0.8]": "budgets = [0.5]",
    'crystal = { policy = "crystal-token-level" }\n': ARMS,
    'against = ["random", "streaming"]': 'against = ["random", "streaming", "uniform", "d-only", "twin"]',
}


@pytest.fixture(scope="module")
def twins(tiny_model, tmp_path_factory):
    return studies.write(tmp_path_factory.mktemp("twins") / "registrations" / "twins", tiny_model, WITH_TWINS)


@pytest.fixture
def planned(twins, tmp_path):
    return PlannedStudy(read_protocol(twins)[1], tmp_path)


def found(planned):
    return same_slots.find_same_slots(planned, frozen_problems.freeze_items(planned))


def pairs(check):
    return {tuple(pair["arms"]): pair["shared"] for pair in check["pairs"]}


def test_one_policy_under_two_names_and_one_by_construction_are_each_one_experiment(planned, tiny_model):
    check = found(planned)
    assert pairs(check)["twin", "random"] == "1.000"
    assert float(pairs(check)["uniform", "d-only"]) >= 0.97
    assert pairs(check).keys() == {("twin", "random"), ("uniform", "d-only")}
    assert check["on"] == {f"path:{tiny_model}": "itself"}
    assert {pair["problems"] for pair in check["pairs"]} == {2}


def test_a_large_model_is_stood_in_for_by_a_random_network_and_its_weights_are_not_read(planned, monkeypatch):
    monkeypatch.setattr(same_slots, "LIGHT_BYTES", 0)
    monkeypatch.setattr(load, "load", lambda *given, **named: pytest.fail("the weights were read"))
    check = found(planned)
    assert pairs(check).keys() == {("twin", "random"), ("uniform", "d-only")}
    assert set(check["on"].values()) == {"a random network of its architecture"}


def test_an_architecture_without_a_small_form_is_no_reason_to_refuse(planned, monkeypatch):
    def fails(*given):
        raise ValueError("hidden_size must be 4096")

    monkeypatch.setattr(same_slots, "LIGHT_BYTES", 0)
    monkeypatch.setattr(same_slots, "build_random_model", fails)
    check = found(planned)
    assert check["pairs"] == []
    assert [runs[:55] for runs in check["on"].values()] == ["nothing: no random network of its architecture can be m"]
    assert told.describe_pairs(check) == []


def test_arms_that_need_statistics_are_left_out_where_no_model_has_them(planned, monkeypatch):
    monkeypatch.setattr(same_slots, "LIGHT_BYTES", 0)
    arms = tuple(replace(arm, policy="1d") if arm.name == "twin" else arm for arm in planned.protocol.arms)
    check = found(planned._replace(protocol=replace(planned.protocol, arms=arms)))
    assert check["left_out"] == ["twin"]
    assert pairs(check).keys() == {("uniform", "d-only")}


def test_a_prompt_that_fits_every_budget_tells_nothing(planned):
    budget = planned.protocol.budgets[0]._replace(share=None, slots=4096)
    check = found(planned._replace(protocol=replace(planned.protocol, budgets=(budget,))))
    assert check["pairs"] == []


@pytest.mark.parametrize(("most", "kept"), [(48, 0), (16, 0), (8, 2)])
def test_arms_whose_events_come_later_than_any_that_was_watched_are_not_one(planned, monkeypatch, most, kept):
    """Every 12 and every 20 steps: told apart by the first of these, else not at all.
    Of answers of 8 tokens neither has an event, and they are one.
    """
    monkeypatch.setattr(same_slots, "MAX_NEW_TOKENS", most)
    names = {"crystal": 12, "uniform": 20}
    own = [Arm(name, "h2o", {"cadence.interval": steps}) for name, steps in names.items()]
    task = replace(planned.protocol.tasks[0], max_new_tokens=min(30, most) if kept else 30)
    whole = planned.protocol.arm("full")
    check = found(planned._replace(protocol=replace(planned.protocol, arms=(whole, *own), tasks=(task,))))
    assert sum(pair["problems"] for pair in check["pairs"]) == kept


def test_the_random_network_is_the_same_each_time_and_leaves_the_generator_alone(tiny_model, tmp_path):
    before = torch.random.get_rng_state()
    one, other = (build_random_model(f"path:{tiny_model}", tmp_path).network.state_dict() for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(one[name], other[name]) for name in one)


# ---------------------------------------------------------------- by hand


def view(tokens, stored=None):
    ids = torch.arange(tokens)
    stored = None if stored is None else torch.tensor(stored).view(1, 1, -1)
    return policies.View(ids, 1, 1, frozenset(), 0, {}, stored=stored)


def test_what_a_lane_lost_is_told_by_token_also_after_slots_moved():
    kept = torch.tensor([False, False, True, True]).view(1, 1, 4)
    lost = same_slots._dropped_tokens(view(4), kept)
    assert lost.view(-1).tolist() == [True, True, False, False]
    # Later: tokens 1, 2, 3 and 5 are stored and one place of the head is empty; 0 and 4 were dropped before.
    kept = torch.tensor([True, False, True, True, False]).view(1, 1, 5)
    lost = same_slots._dropped_tokens(view(6, [1, 2, 3, 5, -1]), kept)
    assert lost.view(-1).tolist() == [True, False, True, False, True, False]


def test_the_share_is_of_what_either_dropped_and_the_least_over_the_events():
    a, b, c = (torch.tensor(each, dtype=torch.bool) for each in ([1, 1, 1, 0], [0, 1, 1, 1], [1, 1, 1, 0]))
    assert share([a], [b]) == 2 / 4
    assert share([a, a], [c, b]) == 2 / 4
    assert share([a], [c]) == 1
    assert share([a], [c, c]) == same_slots._dropped_share(same_slots.LaneDrops([a], None), None) == share([], [a]) == 0


def share(one, other, *states):
    first, second = states or (None, None)
    return same_slots._dropped_share(same_slots.LaneDrops(one, first), same_slots.LaneDrops(other, second))


def test_slots_that_are_coded_or_merged_otherwise_are_not_the_same():
    lost = [torch.tensor([True, False])]
    assert share(lost, lost, StaticHybrid(), StaticHybrid()) == 1
    assert share(lost, lost, StaticHybrid(), StaticHybrid(mass=False)) == share(lost, lost, Subspace(), None) == 0


@pytest.mark.parametrize(("state", "budget", "told"), [(StaticHybrid(), 8, True), (StaticHybrid(), 3, False)])
def test_a_state_counts_where_it_did_anything(state, budget, told):
    """A quarter of 8 slots hold spans, and none of 3."""
    parts = replace(policies.get("random"), state=state, protect=policies.Protect(0, 1))
    notes = same_slots.DropRecorder(parts)
    observe(parts, notes.record).evict(view(16), budget)
    lost = same_slots._lane_drops(SimpleNamespace(statistics={}), notes)
    assert len(lost.dropped) == 1
    assert lost.state == (state if told else None)


# ---------------------------------------------------------------- what was recorded


def recorded(arm, text, problem, mean="4.0", events=((0, 16, 8),)):
    cell = {"model": "m", "task": "t", "budget": "0.5", "arm": arm, "seed": 0}
    cache = {"events": [list(event) for event in events], "mean": mean}
    return {"body": {"cell": cell, "problem": problem, "text": text, "cache": cache}}


def test_recorded_lanes_are_alike_by_text_and_memory_where_something_was_dropped():
    ids = [f"p{i}" for i in range(20)]
    one = [recorded("a", f"text {i}", i) for i in ids]
    nearly = [recorded("b", "other" if i == "p0" else f"text {i}", i) for i in ids]
    memory = [recorded("c", f"text {i}", i, mean="5.0") for i in ids]
    again = [recorded(f"a{RERUN_SUFFIX}", f"text {i}", i) for i in ids]
    whole = [recorded(arm, "x", i, events=()) for arm in ("d", "e") for i in ids]
    assert development_results.find_alike_arms(one + nearly + memory + again + whole) == [(("a", "b"), 19, 20)]
    two_differ = [recorded("b", "other" if i in ("p0", "p1") else f"text {i}", i) for i in ids]
    assert development_results.find_alike_arms(one + two_differ) == []


# ---------------------------------------------------------------- where it is said

LINE = (
    "arms uniform and d-only kept the same slots (98.8% of those dropped are dropped by both) on 6 "
    "development problems: one experiment, two contrasts"
)
CHECK = {
    "pairs": [{"arms": ["uniform", "d-only"], "shared": "0.988", "problems": 6}],
    "on": {"m": "itself"},
    "left_out": [],
}


def test_the_line_names_the_arms_how_alike_they_are_and_what_read_the_prompts():
    assert told.describe_pairs(CHECK) == [LINE]
    assert told.describe_pairs(None) == []
    stood_in = CHECK | {"on": {"m": "a random network of its architecture"}}
    assert "development problems, read by a random network: one" in told.describe_pairs(stood_in)[0]


def test_a_verdict_says_it_of_arms_that_are_compared(confirmed):
    judged, held = (studies.content(confirmed / f"{name}.json") for name in ("verdict", "lock"))
    compared = ["crystal", "random"]
    for arms, count in ((compared, 1), (["full", "random"], 0)):
        held["checks"]["same_kept"] = CHECK | {"pairs": [CHECK["pairs"][0] | {"arms": arms}]}
        said = statements.does_not_prove(judged["judged"], held)
        assert sum("kept the same slots" in each for each in said) == count
    del held["checks"]["same_kept"]
    assert not [each for each in statements.does_not_prove(judged["judged"], held) if "same slots" in each]


def test_registering_and_rehearsing_say_it_and_the_lock_keeps_it(tiny_model, tmp_path):
    twin = {
        **studies.ONE_TASK,
        "[arms]": '[arms]\ntwin = { policy = "random" }',
        'against = ["random", "streaming"]': 'against = ["random", "twin"]',
    }
    folder = studies.write(tmp_path / "registrations" / "twin", tiny_model, twin)
    done = studies.ran(0, "rehearse", folder, "--problems", "1", "--tokens", "2")
    assert "arms twin and random kept the same slots (100.0% of those dropped" in done.stdout
    done = studies.ran(0, "register", folder)
    assert "arms twin and random kept the same slots (100.0% of those dropped" in done.stdout
    pairs = studies.content(folder / "lock.json")["checks"]["same_kept"]["pairs"]
    assert ["twin", "random"] in [pair["arms"] for pair in pairs]


def test_probing_says_which_arms_its_lanes_do_not_tell_apart(capsys, monkeypatch, registered):
    from protocol import probe
    from protocol import probe as act
    from protocol.workspace import study

    done = act.ProbeResult([], None, [development_results.AlikeArms(("a", "b"), 19, 20)], [], ["arm a evicted nothing"])
    monkeypatch.setattr(act, "probe", lambda *given: done)
    monkeypatch.setattr(study, "open_study", lambda *given: SimpleNamespace())
    assert probe.main([str(registered)]) == 0
    said = capsys.readouterr().out
    assert "arms a and b gave the same text with the same memory on 19 of 20 development lanes" in said
    assert "arm a evicted nothing" in said


def test_arms_whose_slots_store_or_answer_something_else_are_not_one_by_the_slots_they_keep(monkeypatch):
    """A codec and means keep the slots of their parent; what is asked after the compression moves no slot."""
    names = ("1d", "subspace", "syn_mem", "syn_mem-massless", "state_ask", "h2o")
    arms = tuple(Arm(name, name, {}) for name in names)
    design = SimpleNamespace(
        arms=arms,
        policy=lambda name: policies.get(name),
        extra_prompt=lambda name: policies.get(name).decoding.extra_prompt,
    )
    tell = same_slots._are_slots_comparable
    assert tell(design, "1d", "h2o")
    assert tell(design, "subspace", "subspace")
    for one, other in (("1d", "subspace"), ("syn_mem", "syn_mem-massless"), ("1d", "state_ask")):
        assert not tell(design, one, other)


def test_a_codec_that_keeps_the_slots_of_its_parent_is_another_experiment(planned, tmp_path):
    arms = (planned.protocol.arm("full"), *(Arm(name, name, {}) for name in ("1d", "subspace")))
    one = planned.protocol.tasks[0]
    task = replace(one, name="chain", query="inside", max_new_tokens=1)
    budgets = (planned.protocol.budgets[0]._replace(share=None, slots=32),)
    design = replace(planned.protocol, arms=arms, models=("chain-llama",), tasks=(task,), budgets=budgets)
    assert found(planned._replace(protocol=design))["pairs"] == []
