"""Time and memory of a tiny study: measured before the claim, continued, audited, refused where absurd."""

import json
import shutil

import pytest
import studies

from protocol import engine
from protocol.evidence import ledger
from protocol.evidence.registration import Registration
from protocol.formats import canonical, journal
from protocol.formats.refusals import Tampered
from protocol.instruments.cost import measurement_file
from protocol.instruments.cost.run import measurement
from protocol.recompute import replay

COST = """
[cost]
prompt_tokens = [24]
new_tokens = 5
lanes = [1, 2]
repetitions = 2
warm_ups = 1
seed = 7
arms = ["full", "streaming"]
"""
DECODING = 'prefill_chunk = 9\nattention = "padded"'
DUE = 2 * 2 * 2  # arms, numbers of lanes, repetitions


@pytest.fixture(scope="module")
def measured(made, tiny_model):
    """Locked, and measured."""

    def make(shelves):
        changes = studies.ONE_TASK | {
            'missing = "inconclusive"': f'missing = "inconclusive"{COST}',
            "threads = 1": f"threads = 1\n{DECODING}",
        }
        folder = studies.write(shelves / "study", tiny_model, changes)
        for act in ("register", "cost"):
            done = studies.ran(0, act, folder)
        (shelves / "cost.txt").write_text(done.stdout)

    return made("measured", make) / "study"


@pytest.fixture
def study(measured, tmp_path):
    return shutil.copytree(measured, tmp_path / "study")


def the_file(folder):
    (path,) = (folder / "cost").iterdir()
    return path


def rechained(path, change):
    """The file as somebody would write it who knows how lines are chained. change: of the list of bodies."""
    bodies = [json.loads(line)["body"] for line in path.read_text().splitlines()]
    change(bodies)
    chain, lines = "0" * 64, []
    for body in bodies:
        sha256 = canonical.digest(body)
        chain = journal.next_chain(chain, sha256)
        lines.append(canonical.dumps({"body": body, "sha256": sha256, "chain": chain}) + b"\n")
    path.write_bytes(b"".join(lines))


def audited(folder):
    done = studies.here("audit", folder, "--json")
    found = {finding["item"]: finding for finding in json.loads(done.stdout)["findings"]}
    return found["cost"]["status"], found["cost"]["detail"]


def test_what_was_registered_is_measured_and_the_audit_holds_it(measured):
    path = the_file(measured)
    first, *rest = [json.loads(line)["body"] for line in path.read_text().splitlines()]
    assert path.name == measurement_file.file_name(first["machine"])
    assert len(rest) == DUE
    assert {body["state"] for body in rest} == {"ok"}
    wide = next(body for body in rest if body["point"]["lanes"] == 2 and body["slots"] is None)
    assert wide["prefill"]["tokens"] == 2 * 24
    assert wide["decode"]["tokens"] == 2 * 4
    heads, slot = 2 * 2, 2 * 8 * 4  # layers times KV heads; a key and a value of 8 float32 each
    assert (wide["memory"]["heads"], wide["memory"]["slot"]) == (heads, slot)
    assert wide["memory"]["held"] == 2 * heads * 24
    narrow = next(body for body in rest if body["slots"] is not None)
    assert narrow["slots"] == 20  # ceil(0.8 * 24)
    assert narrow["memory"]["held"] == narrow["point"]["lanes"] * heads * 20
    events = [(entry.event, entry.body.get("records")) for entry in Registration(measured).entries]
    assert events[1:] == [("cost", 0), ("costed", DUE)]
    status, detail = audited(measured)
    assert status == "held"
    assert f"{DUE} of {DUE} repetitions" in detail
    text = (measured.parent / "cost.txt").read_text()
    assert "too few for an interval" in text
    assert "CONFIRMED" not in text


def test_interrupted_it_goes_on_where_it_stopped(study):
    path = the_file(study)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:4]) + lines[4][:50])  # a crash tore the fourth repetition
    cut = (study / ledger.NAME).read_bytes().splitlines(keepends=True)
    (study / ledger.NAME).write_bytes(b"".join(cut[:2]))  # before the attempt ended
    assert audited(study)[0] == "unfinished"
    studies.ran(0, "cost", study)
    assert path.read_bytes().startswith(b"".join(lines[:4]))
    attempts = [json.loads(line)["body"]["attempt"] for line in path.read_text().splitlines()[1:]]
    assert attempts == [1, 1, 1, *(DUE - 3) * [2]]
    assert audited(study)[0] == "held"
    with studies.unchanged(study):
        assert studies.here("cost", study).returncode == 0  # finished: it is told again and nothing is run


def test_it_decodes_as_the_study_is_registered_to(study, monkeypatch):
    calls = []

    def spied(*arguments, **settings):
        calls.append(settings)
        return engine_run(*arguments, **settings)

    engine_run = engine.run
    monkeypatch.setattr(engine, "run", spied)
    the_file(study).unlink()
    (study / ledger.NAME).write_bytes((study / ledger.NAME).read_bytes().splitlines(keepends=True)[0])
    done = studies.here("cost", study)
    assert done.returncode == 0, done.stderr
    registered = {"temperature": 0.0, "top_p": 1.0, "prefill_chunk": 9, "first_event": 1, "attention": "padded"}
    assert len(calls) == 2 * DUE  # once for memory, once for time
    assert all(registered.items() <= settings.items() for settings in calls)


def slower(bodies):
    bodies[3]["decode"]["seconds"] = "9.000000000"


def fewer(bodies):
    del bodies[-1]


def lighter(bodies):
    bodies[1]["memory"]["room"] = 1


def elsewhere(bodies):
    bodies[0]["machine"]["host"] = "elsewhere"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (slower, "belong to it"),
        (fewer, "belong to it"),
        (lighter, "belong to it"),
        (elsewhere, "each machine needs its own file"),
    ],
)
def test_a_line_that_was_rewritten_does_not_fit_the_ledger(study, change, says):
    rechained(the_file(study), change)
    status, detail = audited(study)
    assert status == "failed"
    assert says in detail


@pytest.mark.parametrize(("change", "relation"), [(slower, "rates"), (lighter, "slots")])
def test_a_whole_forgery_with_its_ledger_still_breaks_a_relation(study, change, relation):
    path = the_file(study)
    rechained(path, change)
    lines = (study / ledger.NAME).read_bytes().splitlines(keepends=True)
    (study / ledger.NAME).write_bytes(b"".join(lines[:2]))
    registration = Registration(study)
    measurement_file.end_attempt(registration, json.loads(path.read_text().splitlines()[0])["body"]["machine"])
    status, detail = audited(study)
    assert status == "failed"
    assert f"{relation}: repetition" in detail


def test_a_measurement_that_vanished_is_missed(study):
    the_file(study).unlink()
    status, detail = audited(study)
    assert status == "failed"
    assert "missing" in detail


def test_it_is_refused_without_a_cost_and_once_claimed(registered, study, tmp_path):
    other = shutil.copytree(registered, tmp_path / "other" / registered.name)
    assert "registers no [cost]" in studies.ran(2, "cost", other).stderr
    (other / "cost").mkdir()
    shutil.copy(the_file(study), other / "cost")
    found = json.loads(studies.here("audit", other, "--json").stdout)["findings"]
    assert {one["item"]: one["status"] for one in found}["files"] == "failed"
    shutil.rmtree(study / "cost")
    lines = (study / ledger.NAME).read_bytes().splitlines(keepends=True)
    (study / ledger.NAME).write_bytes(lines[0])
    from protocol.evidence import claim

    claim.take(Registration(study))
    assert "is claimed" in studies.ran(4, "cost", study).stderr
    assert not (study / "cost").exists()
    assert audited(study) == ("not run", "registered, but not measured before the claim")


@pytest.mark.parametrize("field", ["", "held", "room_peak", "weights"])
def test_a_replay_counts_drawn_repetitions_again(study, tmp_path, field):
    def halve(bodies):
        for body in bodies[1:] if field else ():
            body["memory"][field] //= 2

    rechained(the_file(study), halve)
    engine = replay.Engine(0, 1, ())
    texts = replay._replay_instruments(Registration(study), tmp_path, "ab" * 16, engine)
    if not field:
        assert list(texts) == ["; cost: 27 values of 3 drawn lines were reproduced"]
        return
    with pytest.raises(Tampered, match=rf"cost: 3 of 27 values of 3 drawn lines differ; .*memory\.{field}"):
        list(texts)


def test_a_replay_where_memory_is_short_accuses_nobody(study, tmp_path, monkeypatch):
    lacking = {"slots": 0, "prompts": "", "state": "out of memory", "reason": "asked for 9 GB"}
    monkeypatch.setattr(measurement, "measure_point", lambda *about: lacking)
    with pytest.raises(MemoryError, match="asked for 9 GB"):
        list(replay._replay_instruments(Registration(study), tmp_path, "ab" * 16, replay.Engine(0, 1, ())))
