"""The index of registrations, on studies written through the evidence layer alone."""

import json
import os
import shutil
import subprocess

import finished_study as toy
import pytest
import studies

from analysis.judgement import recorded_judgement
from protocol import status
from protocol.evidence import claim, ledger, seal, verdict
from protocol.evidence.audit import amendment
from protocol.evidence.registration import Registration
from protocol.formats import documents
from protocol.formats.refusals import BadInput
from protocol.lock import lock


@pytest.fixture(autouse=True)
def made_up_verdicts_are_read(monkeypatch):
    """That records support a verdict is for tests/attacks/test_unsupported_verdicts.py."""
    monkeypatch.setattr(recorded_judgement, "refuse_unsupported", lambda folder: None)


@pytest.fixture(autouse=True)
def undrifted(monkeypatch):
    """A toy has no weights and no environment to compare."""
    monkeypatch.setattr(status.installed_files, "environment", dict)
    monkeypatch.setattr(status.run_inputs, "list_drift", lambda locked, home, environment: [])


@pytest.fixture
def shelf(tmp_path):
    return tmp_path / "registrations"


def registered(shelf, name="study"):
    shelf.mkdir(exist_ok=True)
    toy.locked(shelf / name)
    return shelf / name


def judged(folder, word="REFUTED"):
    toy.confirm(folder, stop_after=2)
    toy.confirm(folder)
    verdict.write(Registration(folder), toy.JUDGED | {"verdict": word})


def amended(old, name, seeds):
    """`old` amended by a study with other seeds, as the command does it."""
    held, new = lock.read(old), old.parent / name
    written = held.content["protocol"]["content"] | {"seeds": seeds}
    protocol = held.content["protocol"] | {"content": written}
    content = {**held.content, "name": name, "protocol": protocol}
    new.mkdir()
    (new / "protocol.toml").write_bytes(toy.PROTOCOL)
    lock.write(
        new,
        {
            **content,
            "amends": amendment.describe_amendment(Registration.with_lock(old, held), "a typing error", content),
        },
    )
    made = lock.read(new)
    ledger.append(new, "register", {"lock": made.digest})
    amendment.close_ledger(Registration(old), made)
    return new


def said(folder, *, exits=0):
    return studies.ran(exits, "status", folder).stdout


def values(folder, *, exits=0):
    return json.loads(studies.ran(exits, "status", folder, "--json").stdout)


def one(folder, **keys):
    """The only registration that status knows in `folder`."""
    (found,) = values(folder, **keys)["registrations"]
    return found


def cut(folder, lines):
    """The ledger without its last lines."""
    kept = (folder / ledger.NAME).read_bytes().splitlines(keepends=True)[:-lines]
    (folder / ledger.NAME).write_bytes(b"".join(kept))


def test_a_locked_study_is_confirmed_next(shelf):
    folder = registered(shelf)
    found, head = one(folder), ledger.read_head(folder)
    assert found["state"] == "locked"
    assert (found["lock"], found["ledger"]) == (lock.read(folder).digest, head)
    assert found["next"] == f"kv-prereg confirm {folder}"
    text = said(folder)
    assert f"locked; ledger: 1 line, head {head['head'][:8]}\n" in text
    assert f"next: kv-prereg confirm {folder}\n" in text
    assert text.endswith("\n1 registered, 0 judged; 1 locked, not run\n")


def test_a_claimed_study_shows_its_records_and_its_aborted_attempts(shelf):
    folder = registered(shelf)
    toy.confirm(folder, stop_after=2)
    toy.confirm(folder, stop_after=1)
    found = one(folder)
    assert (found["state"], found["records"], found["registered"], found["attempts"]) == ("claimed", 3, 6, 2)
    assert "claimed, 3 of 6 records; 2 attempts, 2 aborted; ledger: 6 lines" in said(folder)
    assert said(folder).endswith("\n1 registered, 0 judged; 1 claimed, unfinished\n")
    assert found["next"] == f"kv-prereg confirm {folder}"


def test_a_sealed_study_is_judged_next(shelf):
    folder = registered(shelf)
    toy.confirm(folder)
    found = one(folder)
    assert (found["state"], found["records"], found["next"]) == ("sealed", 6, f"kv-prereg confirm {folder}")
    assert "sealed, not judged; 1 attempt; " in said(folder)
    assert said(folder).endswith("\n1 registered, 0 judged; 1 claimed, unfinished\n")


def test_a_verdict_without_its_line_is_completed_next(shelf):
    folder = registered(shelf)
    judged(folder)
    cut(folder, 1)
    assert one(folder)["state"] == "sealed"


def test_a_judged_study_shows_its_word_and_who_witnessed_it(shelf):
    folder = registered(shelf)
    judged(folder)
    assert "REFUTED, UNANCHORED; 2 attempts, 1 aborted; ledger: 8 lines, head " in said(folder)
    assert f"next: kv-prereg audit {folder}\n" in said(folder)
    assert one(folder)["anchors"] == "UNANCHORED"


def test_a_proof_that_nobody_knows_does_not_anchor(shelf):
    folder = registered(shelf)
    judged(folder)
    (folder / "anchors").mkdir()
    (folder / "anchors" / "lock.oracle").write_bytes(b"trust me")
    assert one(folder)["anchors"] == "UNANCHORED"
    assert "failed" in said(folder)


def test_the_index_counts_only_what_was_locked_and_only_what_was_confirmed(shelf):
    words = ("CONFIRMED", "REFUTED", "REFUTED", "INCONCLUSIVE", "DEVIATED")
    for number, word in enumerate(words):
        judged(registered(shelf, f"study-{number}"), word)
    registered(shelf, "locked")
    (shelf / "idea").mkdir()
    (shelf / "idea" / "protocol.toml").write_text("not even a protocol")
    found = values(shelf)
    assert found["counts"] == {
        "registered": 6,
        "judged": 5,
        "CONFIRMED": 1,
        "REFUTED": 2,
        "INCONCLUSIVE": 1,
        "SCREENED": 0,
        "DEVIATED": 1,
        "RE-USED": 0,
        "one_model": 0,
        "unwitnessed": 0,
        "INVALID": 0,
        "cannot tell": 0,
        "amended": 0,
        "withdrawn": 0,
        "locked": 1,
        "unfinished": 0,
    }
    assert [each["name"] for each in found["written"]] == ["idea"]
    text = said(shelf)
    total = "6 registered, 5 judged: 1 CONFIRMED, 2 REFUTED, 1 INCONCLUSIVE, 1 DEVIATED; 1 locked, not run"
    assert f"\n{total}\n" in text
    assert "written, not locked:\nidea " in text
    assert f"next: kv-prereg register {shelf / 'idea'}" in text


@pytest.mark.parametrize("claimed", [False, True])
def test_a_withdrawal_stays_in_the_index_with_its_reason(shelf, claimed):
    folder = registered(shelf)
    if claimed:
        toy.confirm(folder, stop_after=2)
    amendment.withdraw(Registration(folder), "wrong golds")
    found = one(folder)
    assert (found["state"], found["why"], found["after_claim"]) == ("withdrawn", "wrong golds", claimed)
    text = said(folder)
    assert f"withdrawn {'after' if claimed else 'before'} its claim; " in text
    assert "because: wrong golds" in text
    assert text.endswith("\n1 registered, 0 judged; 1 withdrawn\n")


def test_an_amended_study_leads_to_its_amendment(shelf):
    first = registered(shelf, "first")
    second = amended(first, "second", [1])
    toy.confirm(second, stop_after=1)
    third = amended(second, "third", [2])
    found = {registration["name"]: registration for registration in values(shelf)["registrations"]}
    assert [each["state"] for each in found.values()] == ["amended", "amended", "locked"]
    assert [each["after_claim"] for each in found.values()] == [False, True, False]
    assert found["first"]["amended"] == lock.read(second).digest
    assert found["first"]["next"] == f"kv-prereg status {second}"
    assert found["third"]["amends"] == {"name": "second", "lock": lock.read(second).digest, "after_claim": True}
    text = said(shelf)
    assert "amends first, before any claim" in text
    assert "amends second, after a claim, so the verdict is DEVIATED whatever the rule says" in text
    assert "\n3 registered, 0 judged; 1 locked, not run; 2 amended\n" in text
    shutil.rmtree(third)
    assert f"next: restore the registration with the lock {found['second']['amended']}" in said(second)


def test_a_study_that_drifted_says_so_before_it_is_run(shelf, monkeypatch):
    folder = registered(shelf)
    lines = ["sources/analysis/judge.py: changed", "environment/python: changed"]
    monkeypatch.setattr(status.run_inputs, "list_drift", lambda locked, home, environment: lines)
    assert "locked, drifted: sources/analysis/judge.py: changed (and 1 more); " in said(folder)
    assert f"next: restore the locked files; or: kv-prereg amend {folder} <new" in said(folder)
    assert one(folder)["drifted"] == lines
    toy.confirm(folder, stop_after=1)
    assert "claimed, 1 of 6 records, drifted: sources/analysis/judge.py" in said(folder)
    assert "next: restore the locked files\n" in said(folder)


def test_a_protocol_that_is_not_the_locked_one_has_drifted(shelf):
    folder = registered(shelf)
    (folder / "protocol.toml").write_text("other")
    assert one(folder)["drifted"] == ["protocol.toml: changed"]
    (folder / "protocol.toml").unlink()
    assert one(folder)["drifted"] == ["protocol.toml: missing"]


def test_the_environment_is_read_once_and_only_for_what_is_still_to_run(shelf, monkeypatch):
    reads = []
    monkeypatch.setattr(studies, "surroundings", lambda: reads.append(1))
    judged(registered(shelf, "judged"))
    said(shelf)
    assert reads == []
    for name in ("a", "b"):
        registered(shelf, name)
    said(shelf)
    assert reads == [1]


def spoil(name):
    def edit(folder):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data.replace(b"toy", b"joy") if b"toy" in data else data[:-9] + data[-8:])

    return edit


DAMAGE = {
    "an edited lock": spoil(lock.NAME),
    "an edited ledger": spoil(ledger.NAME),
    "an edited claim": spoil(claim.NAME),
    "an edited verdict": spoil(verdict.NAME),
    "no lock": lambda folder: (folder / lock.NAME).unlink(),
    "no ledger": lambda folder: (folder / ledger.NAME).unlink(),
    "no claim": lambda folder: (folder / claim.NAME).unlink(),
    "no seal": lambda folder: (folder / seal.NAME).unlink(),
    "no verdict": lambda folder: (folder / verdict.NAME).unlink(),
    "nothing but records": lambda folder: [path.unlink() for path in folder.glob("*.json*")],
    "a folder for a seal": lambda folder: ((folder / seal.NAME).unlink(), (folder / seal.NAME).mkdir()),
    "a list for a verdict": lambda folder: (folder / verdict.NAME).write_bytes(b"[]\n"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_registration_is_invalid_and_stops_no_other(shelf, damage):
    judged(registered(shelf, "damaged"))
    registered(shelf, "sound")
    damage(shelf / "damaged")
    text = said(shelf, exits=3)
    assert text.startswith("damaged  INVALID: ")
    assert f"next: kv-prereg audit {shelf / 'damaged'}\n" in text
    assert "sound    locked; " in text
    assert "\n2 registered, 0 judged; 1 locked, not run; 1 INVALID\n" in text
    assert values(shelf, exits=3)["counts"]["INVALID"] == 1


def test_a_study_without_its_lock_was_not_just_written(shelf):
    folder = registered(shelf)
    (folder / lock.NAME).unlink()
    assert one(folder, exits=3)["why"] == "lock.json: missing, although ledger.jsonl exists"


def test_a_verdict_of_another_vocabulary_is_invalid(shelf):
    folder = registered(shelf)
    judged(folder)
    content = documents.read(folder / verdict.NAME).content
    content["judged"]["verdict"] = "SUPPORTED"
    cut(folder, 1)
    (folder / verdict.NAME).unlink()
    documents.write(folder / verdict.NAME, content)
    assert one(folder, exits=3)["why"] == "verdict.json: says 'SUPPORTED', which is not a verdict of any rule"


def test_a_lock_that_lacks_a_part_is_invalid(shelf):
    folder = registered(shelf)
    content = lock.read(folder).content
    (folder / lock.NAME).unlink()
    documents.write(folder / lock.NAME, {name: content[name] for name in content if name != "weights"})
    why = "lock.json: the fields ['weights'] are missing or unknown; it was edited, or another version of "
    assert one(folder, exits=3)["why"] == f"{why}kv-prereg wrote it"


def test_a_lock_that_lacks_what_only_its_reader_knows_is_invalid(shelf, monkeypatch):
    monkeypatch.setattr(
        status.run_inputs, "list_drift", lambda study, home, environment: study.lock.content["environment"]["libraries"]
    )
    assert one(registered(shelf), exits=3)["why"] == "lock.json: is not a complete lock: KeyError('libraries')"


def test_a_lock_whose_ledger_a_crash_cut_off_is_registered_again(shelf):
    folder = registered(shelf)
    (folder / ledger.NAME).unlink()
    found = one(folder)
    assert (found["state"], found["next"]) == ("locking", f"kv-prereg register {folder}")


def test_a_registration_that_git_knows_and_that_is_gone_is_named(shelf):
    def git(*arguments):
        identity = ["-c", "user.name=A", "-c", "user.email=a@b.example"]
        plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        settings = plain | {"GIT_CONFIG_GLOBAL": os.devnull}
        subprocess.run(["git", *identity, *arguments], cwd=shelf.parent, env=settings, check=True)

    registered(shelf, "shown")
    registered(shelf, "hidden")
    assert "other registrations may be gone too" in said(shelf)
    git("init", "--quiet")
    git("add", "--all")
    git("commit", "--quiet", "-m", "two studies")
    assert "gone" not in said(shelf)
    shutil.rmtree(shelf / "hidden")
    assert "gone, although git has the lock: hidden\n" in said(shelf)
    assert values(shelf)["gone"] == {"names": ["hidden"], "told": True}
    assert "1 registered" in said(shelf)
    assert "gone" not in said(shelf / "shown"), "one registration was asked for"


def test_long_texts_are_folded_to_the_width_of_a_page(shelf):
    folder = registered(shelf)
    amendment.withdraw(Registration(folder), "because " * 40)
    lines = [line for line in said(shelf).splitlines() if "next: " not in line]
    assert max(map(len, lines)) <= 110
    assert sum("because" in line for line in lines) > 2


def test_where_there_is_no_registration_the_answer_is_one_line(tmp_path):
    for place in (tmp_path, tmp_path / "nowhere"):
        done = studies.here("status", place)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert "no protocol.toml here" in done.stderr
    with pytest.raises(BadInput):
        status.read_index(tmp_path)
