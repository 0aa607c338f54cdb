import gzip
import hashlib

import finished_study as toy
import pytest

from protocol.evidence import ledger, probe_attempts, records
from protocol.evidence.registration import Registration
from protocol.evidence.shard_writer import ShardWriter
from protocol.formats import canonical
from protocol.formats.refusals import Tampered


def look(folder, digest, problem):
    """One attempt to probe that records a problem."""
    number = probe_attempts.begin_attempt(Registration(folder))
    with ShardWriter(folder / "probe") as shard:
        costs = {"attempt": number, "prefill_seconds": "0.1", "decode_seconds": "0.1"}
        cited = records.make_citation(shard.keep_trajectories([{"held": [number]}]), 0)
        bodies = (toy.body(digest, arm, problem, phase="probe", trajectory=cited) for arm in toy.ARMS)
        shard.append([(body, costs) for body in bodies])
    probe_attempts.end_attempt(Registration(folder))


@pytest.fixture
def study(tmp_path):
    held = toy.locked(tmp_path / "study")
    look(tmp_path / "study", held.digest, "p0")
    look(tmp_path / "study", held.digest, "p1")
    return tmp_path / "study"


def amount(study, found):
    sides = records.hash_trajectories(study / "probe", found)
    assert sides == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (study / "probe" / "trajectories").iterdir()
        if any(record["body"]["trajectory"].startswith(path.name[:64]) for record in found)
    }
    outcome = records.outcome_digest(found)
    return {"records": len(found), "outcome": outcome, "trajectories": canonical.digest(sides)}


def holding(study, **read):
    """The registration, of which this was read."""
    opened = Registration(study)
    vars(opened).update(read)
    return opened


def test_each_look_says_what_it_began_and_ended_with(study):
    lines = [(entry.event, entry.body) for entry in ledger.read(study)][1:]
    found = records.read_records(study / "probe")
    assert lines == [
        ("probe", {"number": 1, "records": 0}),
        ("probed", amount(study, found[:2])),
        ("probe", {"number": 2, "records": 2}),
        ("probed", amount(study, found)),
    ]
    probe_attempts.verify(Registration(study))


def test_records_that_were_deleted_or_made_anew_after_a_look_show(study):
    found = records.read_records(study / "probe")
    other = {**found[0], "body": {**found[0]["body"], "text": "another"}}
    for kept in (found[:2], found[1:], found[2:], [], [other, *found[1:]]):
        with pytest.raises(Tampered, match="probe attempt"):
            probe_attempts.verify(holding(study, probe_records=kept))


def test_a_trajectory_that_was_packed_otherwise_shows(study):
    """Its content is the same: no record shows it."""
    side = min((study / "probe" / "trajectories").iterdir())
    before = side.read_bytes()
    other = gzip.compress(gzip.decompress(before), 0, mtime=0)
    side.write_bytes(before[:10] + other[10:])  # with the header of before, which names no level
    with pytest.raises(Tampered, match="probe attempt"):
        probe_attempts.verify(Registration(study))


def test_a_look_that_was_cut_off_promises_nothing(study):
    entries = [entry for entry in ledger.read(study) if entry.event != "probed"]
    probe_attempts.verify(holding(study, entries=entries, probe_records=[]))
