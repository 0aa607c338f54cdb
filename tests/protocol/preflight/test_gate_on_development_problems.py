"""What development problems say of the gate before anything is decided, and that a study without one is not
registered.
"""

import json
import shutil
from pathlib import Path

import pytest
import studies

from protocol import register
from protocol.evidence.registration import Registration
from protocol.formats.refusals import BadInput
from protocol.plan import toml_reader
from protocol.preflight import development_results, feasibility, frozen_problems
from protocol.workspace.planned_study import read_protocol

GATE = "[gate]\naccuracy = 0.05\ntruncated = 0.5\n"


def body(arm: str, grade: str | None = "correct", stop: str | None = "eos", **where) -> dict:
    cell = {"model": "path:x", "task": "needle-256", "budget": "full" if arm == "full" else "0.8", "arm": arm}
    state = "ok" if grade else "failed"
    return {"cell": cell | where, "state": state, "grade": grade, "stop": stop}


def protocol(**changes: str):
    text = studies.PROTOCOL.format(model="x").replace("accuracy = 0.05", "accuracy = 0.5")
    return toml_reader.parse(text.encode(), "p.toml")


def test_shares_are_of_all_lanes_that_ran():
    lanes = [body("h2o"), body("h2o", "wrong"), body("h2o", "no answer", "length"), body("h2o", None, None)]
    counted = development_results.count_answers(lanes)
    assert counted == {"lanes": 4, "correct": 1, "truncated": 1, "no_answer": 1, "failed": 1, "excluded": 0}
    words = " ".join(development_results.format_shares(counted).split())
    assert words == "1/4 25.0% 25.0% truncated 25.0% no answer 1 failed"
    left_out = body("h2o", None, None) | {"state": "excluded"}
    beside = development_results.count_answers([*lanes, left_out, left_out])
    assert beside == counted | {"excluded": 2}
    assert " ".join(development_results.format_shares(beside).split()) == f"{words} 2 excluded"
    assert development_results.format_shares(development_results.count_answers([left_out])) == "1 excluded"


def test_a_gate_that_development_problems_fail_is_named_by_model_and_task():
    good = [body("full", task="association-256"), body("full", task="association-256")]
    bad = [body("full"), body("full", "wrong"), body("full", "no answer", "length")]
    others = [body("random", "wrong")] * 9  # no other arm is asked
    assert development_results.gate_warnings(protocol(), [*good, *bad, *others]) == [
        "gate would FAIL on path:x, needle-256: the full cache answers 1 of 3 (gate: 0.50)"
    ]
    assert development_results.gate_warnings(protocol(), [*good, body("full"), body("full", "wrong")]) == []


def test_the_second_run_of_a_probe_is_not_counted_twice():
    repeated = [body("full (again)", "wrong", task=task) for task in ("needle-256", "association-256")]
    once = [body("full", task=task) for task in ("needle-256", "association-256")]
    assert development_results.gate_warnings(protocol(), [*once, *repeated * 5]) == []


def test_a_probe_without_the_full_cache_says_where_to_look():
    (said,) = development_results.gate_warnings(protocol(), [body("h2o"), body("streaming")])
    assert "kv-prereg rehearse" in said


def test_a_rehearsal_says_what_arms_answered_and_that_a_gate_would_fail(tiny_model, tmp_path):
    folder = studies.write(tmp_path / "study", tiny_model, studies.SWEEP)
    done = studies.here("rehearse", folder, "--problems", 2, "--tokens", 5)
    assert f"gate would FAIL on path:{tiny_model}, needle-256: the full cache answers 0 of 2" in done.stdout
    assert "no answer" in done.stdout
    assert "stopped after 5 tokens" in done.stdout
    assert "stand-ins'" not in done.stdout


def test_answers_of_stand_ins_are_called_so(tiny_model, tmp_path):
    folder = studies.write(tmp_path / "study", tiny_model, studies.SWEEP)
    text = (folder / "protocol.toml").read_text().replace(f"path:{tiny_model}", f"hf:a/b@{'0' * 40}")
    (folder / "protocol.toml").write_text(text)
    stand_in = f"hf:a/b@{'0' * 40}=path:{tiny_model}"
    done = studies.here("rehearse", folder, "--problems", 2, "--tokens", 5, "--stand-in", stand_in)
    assert "these answers come from stand-in models" in done.stdout


def test_a_probe_prints_the_shares_of_every_arm_and_warns(probed, tmp_path):
    folder = shutil.copytree(probed, tmp_path / "study")
    found = json.loads(studies.here("probe", folder, "--json").stdout)
    assert all({"truncated", "no_answer", "correct"} <= row.keys() for row in found["arms"])
    for task in ("needle-256", "association-256"):  # a model that knows nothing fails on both
        assert any(f", {task}: the full cache answers 0 of" in line for line in found["gate"])
    text = studies.here("probe", folder).stdout
    assert all(line in text for line in found["gate"])


def gateless(folder: Path) -> Path:
    path = folder / "protocol.toml"
    assert GATE in path.read_text()
    path.write_text(path.read_text().replace(GATE, ""))
    return folder


@pytest.mark.parametrize("act", ["register", "rehearse"])
def test_a_new_study_without_a_gate_is_refused_in_one_line(tiny_model, tmp_path, act):
    folder = gateless(studies.write(tmp_path / "study", tiny_model))
    with studies.unchanged(folder):
        studies.refused(2, "gate: missing; add the table [gate] with accuracy and truncated", act, folder)


def test_a_gate_cannot_be_amended_away(registered, tmp_path):
    shelf = tmp_path / "registrations"
    old = shelf / "study"
    studies.shutil.copytree(registered, old)
    new = shelf / "study-b"
    new.mkdir()
    (new / "protocol.toml").write_bytes((old / "protocol.toml").read_bytes())
    done = studies.here("amend", old, gateless(new), "--reason", "the gate was in the way")
    assert (done.returncode, "gate: missing" in done.stderr) == (2, True)


def test_a_protocol_without_a_gate_is_registered_as_a_replication_of_a_shipped_study_alone(
    tiny_model, tmp_path, monkeypatch
):
    """Of the one that has this protocol: neither another parent nor another protocol is excused."""
    folder = gateless(studies.write(tmp_path / "study", tiny_model))
    reached: list[object] = []

    def items(planned):
        reached.append(planned)
        raise BadInput("reached")

    monkeypatch.setattr(frozen_problems, "freeze_items", items)
    with pytest.raises(BadInput, match="gate: missing"):
        register.register(folder, tmp_path)
    quickstart = Registration(studies.ROOT / "registrations" / "quickstart").lock.content
    shipped = Registration(studies.ROOT / "registrations" / "quickstart").lock.digest
    for parent in ("0" * 64, shipped):
        with pytest.raises(BadInput, match="gate: missing"):
            register.register(
                folder, tmp_path, parent=register.Parent({"name": "quickstart", "lock": parent}, quickstart)
            )
    assert not reached
    (folder / "protocol.toml").write_bytes((studies.ROOT / "registrations/quickstart/protocol.toml").read_bytes())
    with pytest.raises(BadInput, match="reached"):
        register.register(folder, tmp_path, parent=register.Parent({"name": "quickstart", "lock": shipped}, quickstart))


def test_every_protocol_that_is_shipped_and_not_locked_has_a_gate():
    folders = sorted(path.parent for path in (studies.ROOT / "registrations").glob("*/protocol.toml"))
    open_ = [folder for folder in folders if not (folder / "lock.json").exists()]
    assert {folder.name for folder in open_} >= {"alpha-math500", "crystal-retrieval-8b"}
    for folder in open_:
        _, written = read_protocol(folder)
        assert written.gate is not None, folder.name


def test_one_model_under_two_names_is_no_second_model():
    one = {"model.safetensors": "a", "config.json": "c", "statistics-text.safetensors": "s"}
    feasibility.refuse_duplicate_models({"x": one, "y": one | {"model.safetensors": "b"}})
    again = one | {"config.json": "other", "statistics-text.safetensors": "other"}
    with pytest.raises(BadInput, match="models: x and z have the same weights"):
        feasibility.refuse_duplicate_models({"x": one, "z": again})
