import shutil
import subprocess
import sys

import finished_study
import pytest
import studies
from finished_study import JUDGED

from protocol.evidence import ledger, records, seal, verdict
from protocol.evidence.audit import amendment, auditor
from protocol.evidence.audit.items import EXTERNAL_ITEMS
from protocol.evidence.registration import Registration
from protocol.evidence.shard_writer import ShardWriter
from protocol.formats.refusals import BadInput, Tampered

EVIDENCE = ["protocol.toml", "lock.json", "sources.zip", "ledger.jsonl", "claim.json", "seal.json"]
EVIDENCE += ["verdict.json", "records/shard-0.jsonl", "trajectory"]


@pytest.fixture
def folder(finished_toy, tmp_path):
    return shutil.copytree(finished_toy, tmp_path / "study")


def statuses(folder):
    return {finding.item: finding.status for finding in auditor.audit(Registration(folder))}


def evidence(folder, name):
    return min((folder / "records" / "trajectories").iterdir()) if name == "trajectory" else folder / name


def failures(folder):
    return [item for item, status in statuses(folder).items() if status == "failed"]


def test_a_finished_study_holds(folder):
    """Outside a repository, unsigned, unprobed and without a witness: that is said, and is no fault."""
    findings = auditor.audit(Registration(folder))
    rest = {finding.item: finding.status for finding in findings if finding.status != "held"}
    assert rest == {
        "commit": "not run",
        "signature": "not run",
        "history": "cannot tell",
        "probe": "not run",
        "anchors": "not run",
    }
    assert (auditor.failed_items(findings), auditor.undetermined_items(findings)) == ([], [])


def test_auditing_changes_nothing(folder):
    with studies.unchanged(folder):
        auditor.audit(Registration(folder))


@pytest.mark.parametrize("name", EVIDENCE)
def test_evidence_that_is_missing_or_empty_fails(folder, name):
    path = evidence(folder, name)
    path.write_bytes(b"")
    assert failures(folder)
    path.unlink()
    assert failures(folder)


def cut(folder, name, lines):
    path = folder / name
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-lines]))


@pytest.mark.parametrize("lines", [2, 3, 5])
def test_a_ledger_whose_tail_was_cut_off_fails(folder, lines):
    cut(folder, "ledger.jsonl", lines)
    assert "ledger" in failures(folder)


def test_what_a_seal_says_is_not_derived_from_a_torn_shard(folder):
    study = Registration(folder)
    with (folder / "records" / "shard-0.jsonl").open("ab") as shard:
        shard.write(b"{")
    with pytest.raises(Tampered, match="ends in a torn line"):
        seal.make_content(study, ledger.head_of(study.entries))


def test_a_finished_ledger_with_a_torn_line_fails(folder):
    with (folder / "ledger.jsonl").open("ab") as file:
        file.write(b'{"body"')
    assert failures(folder) == ["ledger"]


def test_an_event_out_of_its_order_fails(tmp_path):
    finished_study.locked(tmp_path / "study")
    ledger.append(tmp_path / "study", "seal", {"seal": "f" * 64})
    findings = {finding.item: finding.detail for finding in auditor.audit(Registration(tmp_path / "study"))}
    assert findings["ledger"].endswith("lists register, seal, but the files show register, claim, seal")


def test_records_cut_off_the_end_of_a_shard_fail(folder):
    cut(folder, "records/shard-0.jsonl", 1)
    assert {"grid", "seal"} <= set(failures(folder))


def test_a_ledger_written_anew_does_not_fit_the_heads_that_were_kept(folder):
    entries = ledger.read(folder)
    (folder / ledger.NAME).unlink()
    for entry in entries:
        body = {"number": 1, "records": 7} if entry.event == "attempt" else entry.body
        ledger.append(folder, entry.event, body)
    assert {"claim", "seal", "verdict"} <= set(failures(folder))


def rewrite_shard(folder, change):
    """What an author with the tools would do: edit a record and make every digest in the shard fit again."""
    place = folder / "records"
    found = records.read_records(place)
    change(found)
    (place / "shard-0.jsonl").unlink()
    with ShardWriter(place) as shard:
        shard.append([(record["body"], record["costs"]) for record in found])


def test_a_record_edited_with_all_its_digests_mended_does_not_fit_the_seal(folder):
    rewrite_shard(folder, lambda found: found[0]["body"].update(grade="wrong"))
    assert failures(folder) == ["seal"]


def test_records_dropped_between_attempts_and_run_again_are_found(folder):
    rewrite_shard(folder, lambda found: found[1]["costs"].update(attempt=2))
    assert "claim" in failures(folder)


def test_a_study_that_is_only_locked_says_what_was_not_run(tmp_path):
    finished_study.locked(tmp_path / "study")
    findings = auditor.audit(Registration(tmp_path / "study"))
    held = [finding.item for finding in findings if finding.status == "held"]
    assert held == ["files", "lock", "protocol", "sources", "ledger"]
    rest = [finding for finding in findings if finding.item not in {*held, *EXTERNAL_ITEMS}]
    assert {finding.status for finding in rest} == {"not run"}


def test_a_study_that_was_killed_says_what_is_left(tmp_path):
    finished_study.locked(tmp_path / "study")
    finished_study.confirm(tmp_path / "study", stop_after=4)
    with (tmp_path / "study" / "records" / "shard-0.jsonl").open("ab") as shard:
        shard.write(b'{"body"')
    found = {finding.item: finding for finding in auditor.audit(Registration(tmp_path / "study"))}
    assert found["claim"].status == "held"
    assert found["records"].status == "unfinished"
    assert found["grid"] == ("grid", "unfinished", "4 records, 2 to go")
    assert found["seal"].status == "unfinished"


def test_held_out_problems_in_the_probe_fail(tmp_path):
    held = finished_study.locked(tmp_path / "study")
    ledger.append(tmp_path / "study", "probe", {"number": 1, "records": 0})
    with ShardWriter(tmp_path / "study" / "probe") as shard:
        shard.append([(finished_study.body(held.digest, "full", "p0", phase="probe"), {"attempt": 1})])
        assert statuses(tmp_path / "study")["probe"] == "held"
        shard.append([(finished_study.body(held.digest, "full", "p2", phase="probe"), {"attempt": 1})])
    assert statuses(tmp_path / "study")["probe"] == "failed"


def test_sealing_removes_what_killed_lanes_left(tmp_path):
    folder = tmp_path / "study"
    finished_study.locked(folder)
    finished_study.confirm(folder, stop_after=1)
    with ShardWriter(folder / "records") as shard:
        orphan = shard.keep_trajectories([{"never": "recorded"}])
    finished_study.confirm(folder)
    with pytest.raises(Tampered, match="missing"):
        records.read_side_file(folder / "records", orphan)
    assert statuses(folder)["trajectories"] == "held"


def test_a_crash_between_seal_and_ledger_is_completed_by_the_verdict(tmp_path):
    folder = tmp_path / "study"
    held = finished_study.locked(folder)
    finished_study.confirm(folder)
    cut(folder, "ledger.jsonl", 1)
    assert (statuses(folder)["ledger"], failures(folder)) == ("unfinished", [])
    verdict.write(Registration.with_lock(folder, held), JUDGED)
    assert not failures(folder)


@pytest.mark.parametrize("name", [".DS_Store", "._shard-0.jsonl", "Thumbs.db", "desktop.ini"])
@pytest.mark.parametrize("place", ["records", "records/trajectories", "probe", "anchors", "."])
def test_what_a_file_manager_leaves_where_somebody_looked_fails_nothing(folder, place, name):
    (folder / place).mkdir(exist_ok=True)
    (folder / place / name).write_bytes(b"looked")
    found = {finding.item: finding for finding in auditor.audit(Registration(folder))}
    assert not failures(folder)
    assert f"NOT VOUCHED FOR: {'' if place == '.' else f'{place}/'}{name}" in found["files"].detail


def test_what_was_seen_of_a_study_that_was_withdrawn_in_the_middle_of_a_write_is_whole(tmp_path):
    folder = tmp_path / "study"
    finished_study.locked(folder)
    finished_study.confirm(folder, stop_after=1)
    with (folder / "records" / "shard-0.jsonl").open("ab") as shard:
        shard.write(b"{")
    (folder / "records" / "trajectories" / f"{'0' * 64}.json.gz").write_bytes(b"")
    before = statuses(folder)
    assert {before["records"], before["trajectories"]} == {"unfinished"}
    amendment.withdraw(Registration(folder), "wrong golds")
    after = statuses(folder)
    assert {after["records"], after["trajectories"], after["grid"], after["ending"]} == {"held"}


def test_the_same_verdict_again_changes_nothing_and_another_is_refused(folder):
    with studies.unchanged(folder):
        verdict.write(Registration(folder), JUDGED)
        with pytest.raises(Tampered, match="a different judgement"):
            verdict.write(Registration(folder), JUDGED | {"verdict": "CONFIRMED"})
        with pytest.raises(BadInput, match=r"share is the number 0\.5"):
            verdict.write(Registration(folder), {"share": 0.5})


def test_a_crash_between_verdict_and_ledger_is_completed_by_judging_again(folder):
    whole = studies.snapshot(folder)
    cut(folder, "ledger.jsonl", 1)
    assert (statuses(folder)["ledger"], failures(folder)) == ("unfinished", [])
    verdict.write(Registration(folder), JUDGED)
    assert not failures(folder)
    assert (folder / "verdict.json").read_bytes() == whole["verdict.json"]


def test_the_audit_needs_the_standard_library_only(folder):
    code = """
import sys
blocked = {"torch", "numpy"}
sys.modules.update(dict.fromkeys(blocked))
from pathlib import Path
from protocol.evidence.audit import amendment, auditor
from protocol.evidence.audit.items import EXTERNAL_ITEMS
from protocol.evidence.registration import Registration
assert all(finding.status != "failed" for finding in auditor.audit(Registration(Path(sys.argv[1]))))
roots = {name.partition(".")[0] for name in sys.modules}
print(*sorted(roots - blocked - set(sys.stdlib_module_names)))
"""
    isolated = [sys.executable, "-S", "-c", code, str(folder)]
    done = subprocess.run(isolated, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, ["__main__", "protocol"]), done.stderr


def test_the_seal_counts_every_state(folder):
    content = Registration(folder).seal.content
    assert (content["expected"], content["found"]) == (6, {"ok": 6, "failed": 0, "excluded": 0})
    assert content["claim"] == Registration(folder).claim.digest
