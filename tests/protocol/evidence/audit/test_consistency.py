"""What an audit says of the sense of real records: honest ones hold, and no field can be changed alone."""

import copy
import hashlib
import shutil

import pytest

from protocol.evidence import records
from protocol.evidence.audit import consistency
from protocol.evidence.invariants.registry import UNCHECKED_FIELDS
from protocol.evidence.registration import Registration
from protocol.formats import canonical
from protocol.formats.findings import CannotTell, NotRun
from protocol.formats.refusals import Tampered
from protocol.recompute import verify_grades as regrade


def test_a_study_of_which_nothing_ran_is_not_run(registered):
    with pytest.raises(NotRun):
        consistency.check(Registration(registered))
    with pytest.raises(NotRun):
        regrade.check_grades(Registration(registered))


def test_a_probed_and_a_confirmed_study_make_sense(probed, confirmed):
    assert "are satisfied in" in consistency.check(Registration(probed))
    assert "are satisfied in" in consistency.check(Registration(confirmed))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, confirmed):
    """A copy of the confirmed study, whose records are put back after each rewrite."""
    return shutil.copytree(confirmed, tmp_path_factory.mktemp("registrations") / "study")


def rewritten(folder, phase, change):
    """The study with its records changed and every digest in the shard mended."""
    place = folder / records.FOLDERS[phase]
    shard = place / "shard-0.jsonl"
    before = shard.read_bytes()
    found = records.read_records(place)
    chain, lines = "0" * 64, []
    change(found)
    for record in found:
        signed = canonical.digest({"body": record["body"], "costs": record["costs"]})
        chain = hashlib.sha256((chain + signed).encode()).hexdigest()
        lines.append(canonical.dumps({**record, "sha256": signed, "chain": chain}) + b"\n")
    shard.write_bytes(b"".join(lines))
    try:
        study = Registration(folder)
        assert len(study.probe_records) + len(study.confirm_records)  # read while the records are the changed ones
        return study
    finally:
        shard.write_bytes(before)


def test_every_free_field_says_what_it_is_and_what_reaches_it():
    assert all(len(reason.split(": ")) == 2 for reason in UNCHECKED_FIELDS.values())


def test_a_failure_names_relation_lane_field_and_both_values_and_counts(folder):
    def change(found):
        for record in found[:5]:
            record["body"]["cache"]["mean_bytes"] += 1

    before = Registration(folder).confirm_records[0]["body"]
    with pytest.raises(Tampered) as refusal:
        consistency.check(rewritten(folder, "confirm", change))
    mean = before["cache"]["mean_bytes"]
    said = f"cache.mean_bytes is {mean + 1}, but its trajectory gives {mean}"
    assert str(refusal.value) == f"summary: {records.body_key(before)}: {said} (5 such)"


def test_a_probe_is_read_for_sense_as_well(folder):
    def change(found):
        found[0]["body"]["cell"]["arm"] = "unregistered"

    with pytest.raises(Tampered, match=r"lanes: .*unregistered.* is not registered"):
        consistency.check(rewritten(folder, "probe", change))


def test_what_an_honest_study_may_break_cannot_be_told(folder):
    def change(found):
        prompts = {record["body"]["problem"]: record["body"]["prompt"] for record in found}
        one, other = sorted(prompts)[-2:]
        for record in found:
            if record["body"]["problem"] == other:
                record["body"]["prompt"] = prompts[one]

    with pytest.raises(CannotTell, match=r"own prompts: .* is the same as that of .*compare the two problems"):
        consistency.check(rewritten(folder, "confirm", change))


def flipped(found):
    body = copy.copy(found[0]["body"])
    found[0]["body"]["grade"] = "wrong" if body["grade"] == "correct" else "correct"


def test_a_flipped_grade_is_named(folder):
    with pytest.raises(Tampered, match=r"grade is .*, now .*; 1 of \d+ lanes differ"):
        regrade.check_grades(rewritten(folder, "confirm", flipped))


def test_grades_of_another_release_or_library_cannot_be_told(folder, monkeypatch):
    study = rewritten(folder, "confirm", flipped)
    libraries = study.lock.content["environment"]["distributions"]
    for where, name, value, reason in (
        (study.lock.content, "release", "9.0.9", r"locked by 9\.0\.9 of kv-prereg"),
        (libraries, "sympy", {"version": "1.0", "files": "0" * 64}, r"sympy [\w.]+ for '1\.0'"),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(where, name, value)
            with pytest.raises(CannotTell, match=f"{reason}; compare the graders"):
                regrade.check_grades(study)


def test_other_bundled_graders_are_no_excuse(folder, monkeypatch):
    """Their author chose them: one comment in a file made every forged grade a matter of opinion."""
    study = rewritten(folder, "confirm", flipped)
    monkeypatch.setitem(study.lock.content["sources"], "protocol/grading/exact.py", "0" * 64)
    with pytest.raises(Tampered, match="lanes differ"):
        regrade.check_grades(study)


def test_a_task_that_is_not_installed_cannot_be_told(folder, monkeypatch):
    from protocol import tasks

    others = {name: task for name, task in tasks.TASKS.items() if name != "needle-256"}
    monkeypatch.setattr(tasks.registry, "TASKS", others)
    with pytest.raises(CannotTell, match="task 'needle-256': unknown"):
        regrade.check_grades(Registration(folder))


@pytest.mark.parametrize("here", ["timeout", "error"])
def test_an_answer_that_was_not_graded_in_time_cannot_be_told(folder, monkeypatch, here):
    from protocol import grading
    from protocol.grading import Grade

    class Slow:
        def grade(self, gold, text):
            return Grade(here, None, "took more than 10 s")

    monkeypatch.setattr(grading, "GRADERS", {"exact": Slow})
    with pytest.raises(CannotTell, match=r"on an idle machine, run: kv-prereg regrade"):
        regrade.check_grades(Registration(folder))


def test_an_audit_grades_for_a_minute_and_no_longer(folder, monkeypatch):
    monkeypatch.setattr(regrade, "MAX_SECONDS", -1.0)
    with pytest.raises(CannotTell, match=r"not all texts could be graded in -1 s; run: kv-prereg regrade"):
        regrade.check_grades(Registration(folder))


def test_held_out_texts_are_not_graded_before_the_seal(folder):
    (folder / "seal.json").rename(folder / "away")
    try:
        study = Registration(folder)
        assert regrade.check_grades(study) == f"{len(study.probe_records)} texts grade as recorded"
    finally:
        (folder / "away").rename(folder / "seal.json")
