"""Somebody who does not like what came out, or fears it, runs until it pleases."""

import shutil

import pytest
import studies
from attacking import assert_audit_names, assert_refused, repository

from protocol.evidence import ledger


@pytest.mark.parametrize(
    ("act", "words"),
    [
        ("confirm", "the verdict closed it; to run it again: kv-prereg replicate"),
        ("register", "is locked already"),
        ("probe", "the verdict closed it"),
    ],
)
def test_a_finished_study_is_run_again(study, act, words):
    assert_refused(4, words, act, study)


def test_the_claim_of_a_run_that_began_is_removed_before_the_next(unconfirmed):
    studies.kill_when_it_grows(studies.start("confirm", unconfirmed), unconfirmed / "records" / "shard-0.jsonl")
    (unconfirmed / "claim.json").unlink()
    assert_refused(3, "claim.json: missing, although the claim was taken before", "confirm", unconfirmed)


def test_the_results_are_deleted_and_made_again_behind_the_same_lock(study):
    """Everything but the lock goes, the ledger is begun anew, and the study is confirmed a second time: every
    digest fits. What was committed after the first time does not.
    """
    first = studies.content(study / "lock.json")
    kept = {name: (study / name).read_bytes() for name in ("protocol.toml", "lock.json", "sources.zip")}
    line = ledger.read(study)[0]
    shutil.rmtree(study)
    study.mkdir()
    for name, data in kept.items():
        (study / name).write_bytes(data)
    ledger.append(study, line.event, line.body)
    assert studies.here("confirm", study).returncode in (10, 11)
    assert studies.content(study / "lock.json") == first
    assert_audit_names(study, "history", "has another claim.json: it was replaced")


def test_the_study_is_locked_anew_under_its_old_name(study, tiny_model):
    """A new lock, claim, records and verdict that fit each other, in place of those that were committed."""
    shutil.rmtree(study)
    studies.write(study, tiny_model, {"budgets = [0.8]": "budgets = [0.9]"})
    for act in ("register", "confirm"):
        assert studies.here(act, study).returncode in (0, 10, 11)
    repository(study).commit("as if nothing had been")
    assert_audit_names(study, "history", "lock.json")


@pytest.mark.soak
def test_the_study_is_run_a_second_time_under_another_name(study):
    """The folder is deleted, its lock brought back as another folder and confirmed there: its files fit each
    other. The history has the same lock, claimed, under the first name.
    """
    again = study.parent / "again"
    again.mkdir()
    for name in ("protocol.toml", "lock.json", "sources.zip"):
        shutil.copyfile(study / name, again / name)
    line = ledger.read(study)[0]
    ledger.append(again, line.event, line.body)
    shutil.rmtree(study)
    repository(again).commit("renamed")
    assert studies.here("confirm", again).returncode in (10, 11)
    assert_audit_names(again, "history", "has a claim of this lock in study: it was run there too")


@pytest.mark.soak
def test_two_processes_confirm_at_once(unconfirmed):
    """One runs; the other is told so, or that it is done."""
    both = [studies.typed("confirm", unconfirmed) for _ in range(2)]
    for process in both:
        process.join()
    statuses = sorted(process.exitcode for process in both)
    assert statuses[0] == 4
    assert statuses[1] in (10, 11)
    claims = [entry for entry in ledger.read(unconfirmed) if entry.event == "claim"]
    assert len(claims) == 1


def test_records_of_a_probe_are_thrown_away_and_drawn_again(unconfirmed):
    shutil.rmtree(unconfirmed / "probe")
    assert studies.here("probe", unconfirmed).returncode == 0
    assert_audit_names(unconfirmed, "probe", "attempt")
