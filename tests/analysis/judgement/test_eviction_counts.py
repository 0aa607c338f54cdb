"""What an arm held and whether it evicted, against lanes that are followed moment by moment."""

import itertools
import json
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType

import pytest
import study
from sampled import decoded_here

from analysis import evicted as command
from analysis import judge
from analysis.judgement import arm_text, eviction_counts, untrusted_files
from protocol.formats import record_fields

SHIPPED = sorted((Path(__file__).resolve().parents[3] / "registrations").glob("*/verdict.json"))
ALPHA = Path(__file__).resolve().parents[3] / "registrations" / "alpha-chain"
HEADS = 6
INSIDE, OUTSIDE = ({"name": "needle", "query": query} for query in ("inside", "outside"))
CONTENT = {"tasks": [INSIDE], "arms": {"h2o": {"policy": "h2o"}}}


def lane(arm, prompt, budget, generated, *, asked=0, every=4, stop="eos", problem="p0"):
    """A record of a lane that is cut to its budget at the prefill and at every `every`th new token, and its
    moments, followed one by one.
    """
    fed = generated - (stop == "length")
    held, events, moments = prompt, [], []

    def event(step):
        nonlocal held
        if budget is not None:
            left = min(held, budget)
            events.append([step, HEADS * held, HEADS * left])
            held = left

    event(0)
    moments.append(held)
    if asked:
        held += asked
        moments.append(held)
    for step in range(1, fed + 1):
        held += 1
        if step % every == 0:
            event(step)
        moments.append(held)
    body = {
        "cell": {
            "model": "m",
            "task": "needle",
            "budget": "full" if budget is None else str(budget),
            "arm": arm,
            "seed": 0,
        },
        "problem": problem,
        "state": "ok",
        "prompt_tokens": prompt,
        "slots": budget,
        "tokens": generated,
        "stop": stop,
        "cache": {
            "prefill_end": f"{moments[0]:.6f}",
            "mean": f"{sum(moments) / len(moments):.6f}",
            "peak": f"{max(moments):.6f}",
            "mean_bytes": 10 * sum(moments) // len(moments),
            "peak_bytes": 10 * max(moments),
            "events": events,
        },
    }
    return body, moments


def by_arm(bodies, task=INSIDE, arms=MappingProxyType({})):
    return {row["arm"]: row for row in eviction_counts.count_arms(bodies, {"tasks": [task], "arms": arms})}


def test_each_ratio_of_one_lane_counted_by_hand():
    # Prompt 10, budget 6, answer of 5 tokens, cut every 4 tokens: 6 7 8 9 6 7, where nothing evicted is
    # 10 to 15. The full cache answers in 8 tokens: 10 to 18.
    cut, moments = lane("h2o", 10, 6, 5)
    whole, grown = lane("full", 10, None, 8)
    assert moments == [6, 7, 8, 9, 6, 7]
    assert grown == list(range(10, 19))
    row = by_arm([whole, cut])["h2o"]
    assert {name: float(value) for name, value in row["ratios"].items()} == pytest.approx(
        {
            "prefill": 6 / 10,
            "budget/prompt": 6 / 10,
            "budget/text": 6 / 15,
            "budget/answer": 6 / 8,
            "mean": (43 / 6) / 12.5,
            "mean/full": (43 / 6) / 14,
            "peak": 9 / 15,
            "peak/full": 9 / 18,
            "bytes/full": 71 / 140,
            "peak bytes/full": 90 / 180,
        },
        abs=1e-6,
    )
    assert (row["events"], row["fired"], row["never"]) == ({"mean": 2, "least": 2, "most": 2}, 2, 0)
    assert {name: float(value) for name, value in row["of_budget"].items()} == pytest.approx(
        {"prefill_end": 1, "mean": 43 / 36, "peak": 1.5}, abs=1e-6
    )


@pytest.mark.parametrize(("stop", "asked"), [*itertools.product(("eos", "length"), (0, 3))])
def test_what_would_have_been_held_is_what_a_lane_without_a_budget_held(stop, asked):
    """The full cache by its own definition is 1, and another arm's text is followed without its evictions."""
    task = OUTSIDE if asked else INSIDE
    whole, _ = lane("full", 20, None, 9, asked=asked, stop=stop)
    cut, moments = lane("h2o", 20, 12, 14, asked=asked, stop=stop)
    _, grown = lane("h2o", 20, None, 14, asked=asked, stop=stop)
    rows = by_arm([whole, cut], task)
    alone = [float(value) for value in rows["full"]["ratios"].values() if value is not None]
    assert alone == pytest.approx([1] * 7, abs=1e-6)
    assert float(rows["h2o"]["ratios"]["mean"]) == pytest.approx(sum(moments) / sum(grown), abs=1e-6)
    assert float(rows["h2o"]["ratios"]["peak"]) == pytest.approx(max(moments) / max(grown), abs=1e-6)


def test_a_question_outside_that_no_whole_lane_measured_leaves_ratios_of_the_text_open():
    ratios = by_arm([lane("h2o", 20, 12, 14, asked=3)[0]], OUTSIDE)["h2o"]["ratios"]
    assert {name for name, value in ratios.items() if value is not None} == {"prefill", "budget/prompt"}


def test_ratios_are_of_sums_and_pairs_of_the_same_problem():
    lanes = [lane("h2o", 10, 6, 5, problem="a")[0], lane("h2o", 40, 6, 5, problem="b")[0]]
    whole = [lane("full", 10, None, 3, problem="a")[0]]
    row = by_arm([*lanes, *whole])["h2o"]
    assert row["ratios"]["prefill"] == Fraction(12, 50)
    assert row["ratios"]["budget/answer"] == Fraction(6, 3)  # of problem a alone


def test_an_event_that_removes_nothing_is_no_eviction():
    idle, _ = lane("h2o", 10, 99, 30)
    row = by_arm([idle])["h2o"]
    assert (row["fired"], row["events"]["most"], row["never"]) == (8, 0, 1)
    assert eviction_counts.never_evicted(row)
    (said,) = eviction_counts.eviction_warnings([row])
    assert said == (
        "arm h2o evicted nothing in any of 1 lanes at 99 (m, needle): it is the full cache under another "
        "name, so that nothing is shown about its policy"
    )


def test_an_arm_that_stores_or_was_asked_otherwise_is_not_called_the_full_cache():
    """A coded value is not the value, and an answer to another prompt is another answer."""
    idle, _ = lane("h2o", 10, 99, 30)
    row = by_arm([idle])["h2o"]
    state = {"policies": {"h2o": {"state": "policies.subspace.Subspace()"}, "lru": {}}}
    for own, unlike in ((state, {"h2o"}), ({"asked": {"h2o": "State:"}}, {"h2o"}), ({}, set())):
        found = arm_text.altered_arms({"protocol": {"content": {}}, **own})
        assert found == unlike
        (said,) = eviction_counts.eviction_warnings([row], found)
        assert ("the full cache under another name" in said) is not bool(unlike)
        assert said.endswith("nothing is shown about its eviction") is bool(unlike)
    swept = {"protocol": {"content": {"sweep": {"name": "won", "candidates": ["lru", "h2o"]}}}}
    assert arm_text.altered_arms({**state, **swept}) == {"h2o", "won"}


def test_a_press_that_holds_every_slot_may_mask_and_is_not_called_the_full_cache():
    """kvpress masks in place what AdaKV evicts: its answers are not those of the full cache."""
    idle, _ = lane("ada", 10, 99, 30)
    row = by_arm([idle], arms={"ada": {"press": "kvpress:AdaKVPress"}})["ada"]
    (said,) = eviction_counts.eviction_warnings([row])
    assert said.endswith("it keeps every slot, although it may mask some, so that nothing is shown at its budget")
    assert "full cache" not in said


def test_lanes_that_failed_are_warned_of():
    lanes = [lane("h2o", 10, 6, 3, problem=str(n))[0] for n in range(3)]
    (row,) = eviction_counts.count_arms([*lanes[:2], lanes[2] | study.FAILED], CONTENT)
    assert (row["lanes"], row["failed"]) == (2, 1)
    assert "arm h2o failed in 1 of 3 lanes at 6" in eviction_counts.eviction_warnings([row])[0]


def test_lanes_that_never_evicted_are_warned_of_in_one_line():
    lanes = [lane("h2o", 10 * n, 25, 3, problem=str(n))[0] for n in (1, 2, 3, 4)]
    rows = eviction_counts.count_arms([*lanes, lane("full", 10, None, 3)[0]], CONTENT)
    assert rows[0]["never"] == 2
    assert eviction_counts.eviction_warnings(rows) == [
        "50 % of the lanes of h2o at 25 evicted nothing: in these, the arm is the full cache"
    ]


def test_what_always_evicts_and_what_never_may_is_not_warned_of():
    rows = eviction_counts.count_arms([lane("h2o", 10, 6, 3)[0], lane("full", 10, None, 3)[0]], CONTENT)
    assert eviction_counts.eviction_warnings(rows) == []


def test_failed_and_excluded_lanes_are_no_lanes():
    failed = lane("h2o", 10, 6, 3)[0] | study.FAILED
    assert eviction_counts.count_arms([failed], CONTENT) == []


# ---------------------------------------------------------------- judged


def judged(folder, crystal):
    """crystal: events of the subject's lanes, by problem."""

    def change(lane):
        if lane[3] != "crystal":
            return {}
        return {"cache": study.cache(256) | {"events": crystal(lane[5])}}

    return judge.judge(study.write(folder, study.content(), 12, change))


def about(found):
    return [said for said in found["does_not_prove"] if "evicted nothing" in said or "evicted anything" in said]


def test_an_arm_that_never_evicted_proves_nothing_about_its_policy(tmp_path):
    (said,) = about(judged(tmp_path / "s", lambda problem: [[0, 256, 256]]))
    assert said.startswith("Anything about the policies in 2 of 2 contrasts")
    assert "crystal at 0.5 (tiny needle)" in said


def test_answers_of_a_press_that_holds_every_slot_are_not_said_to_be_the_full_caches(tmp_path):
    content = study.content()
    content["arms"]["crystal"] = {"press": "kvpress:AdaKVPress"}
    idle = {"cache": study.cache(256) | {"events": [[0, 256, 256]]}}
    change = lambda lane: idle if lane[3] == "crystal" else {}  # noqa: E731
    found = judge.judge(study.write(tmp_path / "s", content, 12, change))
    assert about(found) == []
    (said,) = [said for said in found["does_not_prove"] if "a press kept every slot" in said]
    assert said.startswith("Anything about their registered budget in 2 of 2 contrasts")


def test_answers_of_an_arm_that_codes_every_slot_are_not_said_to_be_the_full_caches(tmp_path):
    idle = {"cache": study.cache(256) | {"events": [[0, 256, 256]]}}
    change = lambda lane: idle if lane[3] == "crystal" else {}  # noqa: E731
    states = {"crystal": {"state": "policies.subspace.Subspace()"}}
    found = judge.judge(study.write(tmp_path / "s", study.content(), 12, change, policies=states))
    (said,) = about(found)
    assert "its answers are the full cache's" not in said
    assert said.startswith("Anything about what is evicted in 2 of 2 contrasts")
    assert "and it stores its slots or was asked otherwise: crystal at 0.5" in said


def test_one_lane_that_evicts_is_an_arm_that_evicts(tmp_path):
    found = judged(tmp_path / "s", lambda problem: [[0, 512, 256]] if problem == "p003" else [])
    assert about(found) == []


@pytest.mark.parametrize("events", [[[0, "a", 3]], [[0, 1]], [7], 7])
def test_events_of_another_shape_are_refused_by_their_line(tmp_path, events):
    with pytest.raises(ValueError, match=r"shard-0.jsonl:.*events"):
        judged(tmp_path / "s", lambda problem: events)


# ---------------------------------------------------------------- shipped studies and the command


@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(path.parent, marks=[] if path.parent.name == "alpha-chain" else [pytest.mark.soak])
        for path in SHIPPED
        if decoded_here(path.parent)
    ],
    ids=lambda folder: folder.name,
)
def test_a_lane_that_never_evicted_has_the_text_of_the_full_cache(folder):
    """But for an arm that stores other numbers, one that asks another question, and one that reads a part."""
    lanes, lock = {}, json.loads((folder / "lock.json").read_text())
    arms, promises = lock["protocol"]["content"]["arms"], lock.get("promises", {})
    others = {name for name in promises if not promises[name].get("stores_as_computed", True)}
    others |= {name for name, arm in arms.items() if "state" in arm.get("set", {})} | {"subspace", "state_ask"}
    for body in untrusted_files.read_bodies(folder / "records"):
        differs = body["cell"]["arm"] in others
        if body["state"] == "ok" and not differs and not record_fields.count_evictions(body["cache"]["events"]):
            cell = body["cell"]
            at = (cell["model"], cell["task"], cell["seed"], body["problem"])
            lanes.setdefault(at, set()).add(body["text"])
    assert lanes
    assert {len(texts) for texts in lanes.values()} == {1}


def test_the_command_prints_the_same_for_people_and_programs(tmp_path, capsysbinary):
    def change(lane):
        idle = lane[3] == "h2o" and int(lane[5][1:]) < 3
        return {"cache": study.cache(512) | {"events": [[0, 512, 512]]}} if idle else {}

    folder = study.write(tmp_path / "s", study.content(), 12, change)
    (folder / "verdict.json").write_text("{}\n")  # the held-out records may be read
    assert command.main([str(folder)]) == 0
    said = capsysbinary.readouterr().out.decode()
    assert "25 % of the lanes of h2o at 0.5 evicted nothing: in these, the arm is the full cache" in said
    assert command.main([str(folder), "--json"]) == 0
    found = json.loads(capsysbinary.readouterr().out)
    one = next(row for row in found["arms"] if row["arm"] == "h2o")
    assert (one["lanes"], one["never"]) == (24, 6)
    assert "6 (25 %)" in said
    assert set(found["ratios"]) == set(one["ratios"]) == set(eviction_counts.RATIOS)
    assert found["warnings"][0] in said


def test_the_command_refuses_a_folder_without_records_in_one_line(tmp_path, capsys):
    assert command.main([str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
