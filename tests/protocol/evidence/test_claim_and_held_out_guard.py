import subprocess
import sys

import finished_study
import pytest
import studies

from protocol.evidence import claim, ledger, seal
from protocol.evidence.held_out_guard import HeldOutGuard
from protocol.evidence.registration import Registration
from protocol.evidence.shard_writer import ShardWriter
from protocol.formats.refusals import AlreadyClaimed, BadInput, Tampered
from protocol.lock import lock

RUN = """
import sys
from pathlib import Path
from protocol.evidence import claim
from protocol.evidence.registration import Registration
from protocol.formats.refusals import Refusal

folder = Path(sys.argv[1])
try:
    with claim.exclusive_run(Registration(folder)):
        claim.take(Registration(folder))
        print("running", flush=True)
        sys.stdin.read()
except Refusal as refusal:
    print(type(refusal).__name__, flush=True)
    sys.exit(refusal.exit_status)
"""


def start(folder):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", RUN, str(folder)], **pipes)


@pytest.fixture
def folder(tmp_path):
    finished_study.locked(tmp_path / "study")
    return tmp_path / "study"


def test_of_two_processes_at_once_one_runs_and_the_other_is_refused(folder):
    with start(folder) as one, start(folder) as two:
        said = {one: one.stdout.readline().strip(), two: two.stdout.readline().strip()}
        assert sorted(said.values()) == ["AlreadyClaimed", "running"]
        one.stdin.close(), two.stdin.close()
    assert sorted([one.returncode, two.returncode]) == [0, 4]
    assert [entry.event for entry in ledger.read(folder)] == ["register", "claim", "attempt"]


def test_a_killed_run_holds_nothing_and_is_resumed_as_the_next_attempt(folder):
    with start(folder) as first:
        first.stdout.readline()
        first.kill()
    taken = (folder / claim.NAME).read_bytes()
    with claim.exclusive_run(Registration(folder)):
        assert claim.take(Registration(folder)) == 2
    assert (folder / claim.NAME).read_bytes() == taken
    assert ledger.count_events(folder, "claim") == 1


def test_the_claim_names_the_lock_and_the_ledger_as_it_stood(folder):
    head = ledger.read_head(folder)
    with claim.exclusive_run(Registration(folder)):
        claim.take(Registration(folder))
    content = Registration(folder).claim.content
    assert (content["lock"], content["ledger"]) == (lock.read(folder).digest, head)


def test_a_sealed_study_is_never_claimed_again(folder):
    finished_study.confirm(folder)
    with (
        studies.unchanged(folder),
        claim.exclusive_run(Registration(folder)),
        pytest.raises(AlreadyClaimed, match="replicate"),
    ):
        claim.take(Registration(folder))


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / ledger.NAME).unlink(),
        lambda folder: (folder / ledger.NAME).write_bytes(b""),
        lambda folder: (folder / claim.NAME).unlink(),
        lambda folder: (folder / claim.NAME).write_bytes(b"{}\n"),
        lambda folder: (folder / "records/shard-0.jsonl").write_bytes(b"{}\n"),
    ],
)
def test_damaged_evidence_is_not_resumed_and_not_touched(folder, damage):
    finished_study.confirm(folder, stop_after=1)
    damage(folder)
    with studies.unchanged(folder), claim.exclusive_run(Registration(folder)), pytest.raises(Tampered):
        claim.take(Registration(folder))


def test_a_folder_that_is_not_locked_is_not_run(tmp_path):
    with pytest.raises(BadInput, match=r"kv-prereg register"), claim.exclusive_run(Registration(tmp_path)):
        pass
    assert list(tmp_path.iterdir()) == []


def test_every_access_is_in_the_ledger_with_its_purpose(folder):
    with claim.exclusive_run(Registration(folder)):
        claim.take(Registration(folder))
        door = HeldOutGuard(lock.read(folder), folder)
        assert door.ids("toy", "confirm") == finished_study.CONFIRM
        with pytest.raises(BadInput, match="'toys' is not in the lock"):
            door.ids("toys", "confirm")
        with pytest.raises(BadInput, match="purpose"):
            door.ids("toy", "")
    last = ledger.read(folder)[-1]
    assert (last.event, last.body) == ("held-out", {"task": "toy", "purpose": "confirm"})


def test_a_seal_needs_a_record_for_every_registered_lane(folder):
    finished_study.confirm(folder, stop_after=5)
    with (
        studies.unchanged(folder),
        pytest.raises(BadInput, match=r"1 registered records are missing, the first is tiny/toy/0\.5/crystal/0/p4"),
    ):
        seal.write(Registration(folder))


@pytest.mark.parametrize("change", [{"problem": "p0"}, {"registration": "f" * 64}, {"phase": "probe"}])
def test_a_seal_refuses_what_is_not_registered(folder, change):
    finished_study.confirm(folder, stop_after=5)
    held = lock.read(folder)
    with ShardWriter(folder / "records") as shard:
        shard.append([(finished_study.body(held.digest, "crystal", "p4") | change, {"attempt": 1})])
    with studies.unchanged(folder), pytest.raises(Tampered):
        seal.write(Registration.with_lock(folder, held))
