"""What a judgement reports beside the registered family: other arms, memory problem by problem, a sweep."""

import hashlib
import json
from pathlib import Path

import pytest
import study

from analysis.judge import judge
from analysis.judgement import statements
from analysis.judgement.untrusted_files import RecordError

# arm, budget -> problems of twelve that both seeds solve
SOLVED = {
    ("crystal", "64"): {*range(8)},
    ("crystal", "128"): {*range(10)},
    ("snapkv", "64"): {*range(2)},
    ("snapkv", "128"): {*range(6)},
    ("h2o", "64"): {*range(1, 3)},
    ("h2o", "128"): {*range(10)},
}
SLOTS = {("crystal", "64"): 80, ("crystal", "128"): 144}  # the others hold their budget


def answers(lane: study.Lane) -> dict:
    *_, budget, arm, _, problem = lane
    slots = SLOTS.get((arm, budget), 512 if budget == "full" else int(budget))
    solved = int(problem[1:]) in SOLVED.get((arm, budget), range(12))
    cache = study.cache(slots) | {"state_bytes": 100 if arm == "h2o" else 0}
    return {"cache": cache} | ({"grade": "correct"} if solved else {})


def write(folder: Path, record=answers, **decision) -> Path:
    content = study.content(**{"against": ["snapkv"], "method": "t"} | decision) | {"budgets": ["64", "128"]}
    return study.write(folder / "small", content, 12, record)


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> dict:
    return judge(write(tmp_path_factory.mktemp("plain")))


@pytest.fixture(scope="module")
def judged(tmp_path_factory) -> dict:
    return judge(write(tmp_path_factory.mktemp("beside"), beside=["h2o"], memory="slots"))


def test_nothing_is_added_where_nothing_is_registered(plain):
    assert not {"beside", "selected"} & plain.keys()
    assert all("isocache" not in row for row in plain["contrasts"])
    assert all("mean_state_bytes" not in row for row in plain["arms"])


def test_what_stands_beside_changes_neither_verdict_nor_family(plain, judged):
    def registered(judgement):
        rows = [{k: v for k, v in row.items() if k != "isocache"} for row in judgement["contrasts"]]
        kept = ("verdict", "family", "corrected_alpha", "rule", "missing", "proves")
        return rows, [judgement[name] for name in kept]

    assert registered(plain) == registered(judged)
    assert plain["family"] == 2


def test_the_head_to_head_is_counted_by_hand_at_its_own_level(judged):
    beside = judged["beside"]
    assert (beside["family"], beside["alpha"], beside["corrected_alpha"]) == (2, "0.050000", "0.025000")
    first, second = beside["contrasts"]
    assert (first["subject"], first["against"], first["budget"]) == ("crystal", "h2o", "64")
    # Six of twelve problems won (0 and 3 to 7), none lost; at 128 both solve the same ten.
    assert (first["difference"], first["gains"], first["losses"]) == ("0.500000", 12, 0)
    assert (second["difference"], second["p"]) == ("0.000000", "1.000000")
    assert not first["matched"]  # crystal holds 80 slots against 64: whatever it wins, memory may have bought
    assert not first["better"]
    assert float(first["p_holm"]) == pytest.approx(2 * float(first["p"]), abs=2e-6)
    assert set(first) == set(judged["contrasts"][0])


def test_the_auxiliary_contrast_is_not_corrected(judged):
    first, second = judged["beside"]["auxiliary"]
    assert (first["subject"], first["against"]) == ("snapkv", "h2o")
    # snapkv solves 0 and 1, h2o 1 and 2; at 128 six against ten.
    assert (first["difference"], second["difference"]) == ("0.000000", f"{-4 / 12:.6f}")
    assert second["p_holm"] == second["p"]
    for row in (first, second):
        assert (row["low_simultaneous"], row["high_simultaneous"]) == (row["low"], row["high"])
    assert second["worse"]
    assert 0.025 < float(second["p"]) < 0.05, "a correction would have changed it"


def test_the_statements_say_that_it_is_outside_the_rule(judged):
    assert any("about h2o" in line and "outside the rule" in line for line in judged["does_not_prove"])


def test_an_unmatched_contrast_is_estimated_between_the_fixed_budgets(judged):
    low, high = (row["isocache"] for row in judged["contrasts"])
    assert (low["ratio"], low["within"]) == ("1.250000", "0.000000")  # 80 over 64
    # 80 lies a quarter of the way from 64 to 128: snapkv would have 2 + (6 - 2) / 4 = 3 of 12 there.
    assert low["why"] == "interpolated"
    assert low["interpolated"]["difference"] == f"{5 / 12:.6f}"
    assert (low["interpolated"]["weight"], low["interpolated"]["between"]) == ("0.250000", ["64", "128"])
    assert float(low["interpolated"]["low"]) < 5 / 12 < float(low["interpolated"]["high"])
    assert (high["why"], high["interpolated"]) == ("outside", None)  # 144 is above 128


def test_a_matched_contrast_is_not_interpolated(judged):
    for row in judged["beside"]["auxiliary"]:
        assert row["isocache"] == {"ratio": "1.000000", "within": "1.000000", "interpolated": None, "why": "matched"}


def test_bytes_of_the_policies_own_state_stand_beside_the_slots(judged):
    state = {(row["arm"], row["budget"]): row["mean_state_bytes"] for row in judged["arms"]}
    assert state["h2o", "64"] == "100.000000"
    assert state["crystal", "64"] == "0.000000"


def test_a_lane_missing_beside_makes_the_verdict_inconclusive_as_registered(tmp_path):
    def record(lane):
        return None if lane[3:] == ("h2o", 0, "p003") and lane[2] == "64" else answers(lane)

    found = judge(write(tmp_path, record, beside=["h2o"], memory="slots"))
    assert found["rule_says"] == "INCONCLUSIVE"
    assert found["beside"]["contrasts"][0]["n"] == 11


# ---------------------------------------------------------------- a sweep


def swept(folder: Path) -> Path:
    """The study above, locked with a sweep of which crystal, as an arm, is the confirmed winner."""
    folder = write(folder)
    lock = json.loads((folder / "lock.json").read_bytes())
    content = lock["protocol"]["content"]
    content["sweep"] = {"name": "crystal", "candidates": ["light", "heavy"]}
    data = study.canonical(lock)
    digest = hashlib.sha256(data).hexdigest()
    (folder / "lock.json").write_bytes(data + b"\n")
    bodies = [body | {"registration": digest} for body in study.bodies(folder)]
    (folder / "records" / "shard-0.jsonl").unlink()
    study.append(folder, *bodies)
    return folder


def test_the_judgement_of_a_sweep_names_the_winner_and_what_selected_it(tmp_path):
    folder = swept(tmp_path)
    data = study.canonical({"selected": {"winner": "heavy", "policy": "heavy-policy"}})
    (folder / "selection.json").write_bytes(data + b"\n")
    found = judge(folder)
    assert found["selected"] == {
        "arm": "heavy",
        "policy": "heavy-policy",
        "selection": hashlib.sha256(data).hexdigest(),
    }
    assert any("Anything about light: heavy alone was confirmed" in line for line in found["does_not_prove"])
    assert {row["subject"] for row in found["contrasts"]} == {"crystal"}


def test_a_sweep_without_a_selection_cannot_be_judged(tmp_path):
    with pytest.raises(RecordError, match=r"selection\.json: is missing"):
        judge(swept(tmp_path))


def test_statements_without_sweep_or_beside_are_those_of_before(plain):
    assert statements._choice_sentences(plain, {"protocol": {"content": {}}}) == []
