"""A study run again on fresh problems, which are drawn after the lock, and told apart from a reproduction."""

import re
import shutil
import tomllib
from types import SimpleNamespace

import pytest
import studies

from protocol.evidence import late_randomness
from protocol.evidence.audit import study_status
from protocol.evidence.registration import Registration
from protocol.formats.refusals import BadInput
from protocol.lock.lock import Lock
from protocol.preflight import fresh_replication, sibling_registrations
from protocol.recompute import study_files
from protocol.status import next_step

pytestmark = pytest.mark.usefixtures("same_environment")
SHIPPED = [  # that this project decodes
    path.parent.name
    for path in sorted((studies.ROOT / "registrations").glob("*/lock.json"))
    if Registration(path.parent).protocol.get("generation")
]


@pytest.fixture(scope="module")
def replicated(confirmed, tmp_path_factory):
    """A parent on its shelf and its fresh replication."""
    parent = shutil.copytree(confirmed, tmp_path_factory.mktemp("fresh") / "registrations" / "study")
    done = studies.ran((0, 10, 11), "replicate", "--fresh", parent)
    return parent, parent.parent.parent / "replications" / "study-fresh-001", done.stdout


def prompts(folder):
    bodies = [record["body"] for record in Registration(folder).confirm_records]
    return {(body["cell"]["model"], body["cell"]["task"], body["problem"]): body["prompt"] for body in bodies}


def test_its_problems_are_other_ones_and_none_of_them_existed_at_the_lock(replicated):
    parent, child, out = replicated
    assert prompts(parent).keys() == prompts(child).keys()
    assert not set(prompts(parent).values()) & set(prompts(child).values())
    locked = studies.content(child / "lock.json")
    assert locked["parent"]["fresh"] is True
    assert (locked["opened"], locked["judging"]) == ([], 3)
    assert locked["protocol"]["content"]["randomness"] == {"source": "local"}
    value = studies.content(child / "claim.json")["randomness"]["value"]
    assert re.fullmatch("[0-9a-f]{64}", value)
    assert value not in (child / "lock.json").read_text()
    assert "on fresh problems and seeds" in out


def test_its_words_are_those_of_a_study_of_its_own(replicated):
    _, child, _ = replicated
    judged = studies.content(child / "verdict.json")["judged"]
    assert {entry["word"] for entry in judged["qualifiers"]}.isdisjoint({"RE-USED", "REPRODUCTION"})
    assert any("a number that the author's machine drew after the lock" in said for said in judged["does_not_prove"])


def test_it_audits_and_an_edited_number_or_protocol_does_not(replicated, tmp_path):
    parent, child, _ = replicated
    assert studies.here("audit", child).returncode == 0, studies.here("audit", child).stdout
    copy = shutil.copytree(parent.parent.parent, tmp_path / "all") / "replications" / child.name
    study = Registration(copy)
    study.lock.content["protocol"]["content"]["decision"]["at_least"] = 2
    assert [fault.partition(":")[0] for fault in sibling_registrations.find_contradictions(study)] == [
        "protocol.content.decision"
    ]
    del study.lock.content["protocol"]["content"]["randomness"]
    assert any(fault.startswith("parent.fresh") for fault in sibling_registrations.find_contradictions(study))


def test_a_study_that_draws_its_problems_late_is_reproduced_by_nobody(replicated):
    """Every lock draws others."""
    _, child, _ = replicated
    assert f"kv-prereg replicate --fresh {child}" in studies.ran(2, "replicate", child).stderr


def test_a_reproduction_names_what_was_opened_before_its_parent(confirmed, replicated):
    """What others open afterwards changes no word; an emptied or invented list does not follow from the parent."""
    parent, _, _ = replicated
    study = Registration(parent.parent / "study")
    reproduction = SimpleNamespace(
        folder=parent.parent.parent / "replications" / "study-001",
        lock=Lock({**study.lock.content, "parent": {"name": "study", "lock": study.lock.digest}}, "0" * 64),
        parent={"name": "study", "lock": study.lock.digest},
        reproduces=True,
        protocol=study.protocol,
        find_parent=lambda: study,
    )
    assert [*sibling_registrations.find_contradictions(reproduction)] == []
    assert sibling_registrations.check_opened(reproduction) == ([], [])
    reproduction.lock.content["opened"] = [{"name": "other", "lock": None, "problems": {}}]
    (fault,) = sibling_registrations.find_contradictions(reproduction)
    assert fault.startswith("opened: ")


@pytest.mark.parametrize("source", ["nonce", "beacon", "anchor"])
def test_the_parents_own_source_is_kept_unless_its_value_is_older_than_the_new_lock(source):
    randomness = {"source": source} | ({"name": "drand", "round": 7} if source == "beacon" else {})
    content = {"title": "t", "decision": {"method": "t"}, "randomness": randomness}
    parent = Lock({"name": "study", "protocol": {"content": content}}, "0" * 64)
    text = 'title = "t"\n[randomness]\n' + "".join(f"{key} = {value!r}\n" for key, value in randomness.items())
    drawn = tomllib.loads(fresh_replication.complete_protocol(text, parent))["randomness"]
    assert drawn == ({"source": "local"} if source == "beacon" else randomness)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_study_is_completed_in_its_gate_memory_method_and_randomness_alone(name):
    study = Registration(studies.ROOT / "registrations" / name)
    text = (study.folder / "protocol.toml").read_text()
    before, after = tomllib.loads(text), tomllib.loads(fresh_replication.complete_protocol(text, study.lock))
    assert after.pop("randomness") == {"source": "local"}
    assert before.pop("randomness", {"source": "local"})["source"] in ("local", "cited")
    assert after.pop("gate") == before.pop("gate", {"accuracy": 0.5, "truncated": 0.1})
    first, second = before.pop("decision"), after.pop("decision")
    assert before == after
    changed = {field for field in first.keys() | second.keys() if first.get(field) != second.get(field)}
    assert changed <= {"method", "draws", "seed", "memory", "cache_tolerance"}
    assert "memory" in second
    assert float(second["cache_tolerance"]) <= 0.02


def test_published_problems_and_those_of_a_file_have_no_fresh_ones(monkeypatch, confirmed):
    study = Registration(confirmed)
    monkeypatch.setattr(study_files.drift, "refuse_edited", lambda _: None)
    monkeypatch.setattr(study_files, "refuse_other_lock", lambda _: None)
    study.lock.content["protocol"]["content"]["tasks"][0]["name"] = "math500"
    with pytest.raises(BadInput, match="math500 is not generated, so it has no fresh problems"):
        study_files.check_replicate(study, is_fresh=True)


def test_a_local_value_is_passed_by_nobody_and_drawn_anew_each_time():
    content = {"protocol": {"content": {"randomness": {"source": "local"}}}}
    locked = Lock(content, "0" * 64)
    first, second = (late_randomness.draw_value(locked, None) for _ in range(2))
    assert first["value"] != second["value"]
    claimed = SimpleNamespace(content={"randomness": first})
    assert late_randomness.claim_key(locked, claimed) == first["key"]
    assert "no outside record shows that they were drawn only once" in late_randomness.verify(locked, claimed)
    with pytest.raises(BadInput, match='source = "local"'):
        late_randomness.draw_value(locked, studies.ROOT / "README.md")


def test_an_interrupted_replication_is_continued_as_one(replicated):
    _, child, _ = replicated
    status = study_status.read_status(Registration(child))._replace(state="claimed")
    assert next_step(status, []).startswith("kv-prereg replicate --fresh ")
    assert next_step(status._replace(reproduces=True), []).startswith("kv-prereg replicate /")
