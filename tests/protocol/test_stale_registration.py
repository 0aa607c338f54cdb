"""What confirm and seal go on must be what is in the folder then, not what was read of it before."""

import hashlib
import json
import shutil

import finished_study
import pytest
import studies

from protocol import confirm
from protocol.evidence import claim, seal
from protocol.evidence.registration import Registration
from protocol.evidence.shard_writer import ShardWriter
from protocol.formats import canonical
from protocol.formats.refusals import Tampered


def select_another(folder):
    """selection.json names another candidate, and the ledger cites it, chained anew."""
    chosen = studies.content(folder / "selection.json")
    chosen["selected"] |= {"winner": "random", "policy": "random"}
    data = canonical.dumps(chosen)
    (folder / "selection.json").write_bytes(data + b"\n")
    previous, lines = "0" * 64, []
    for line in (folder / "ledger.jsonl").read_bytes().splitlines():
        entry = json.loads(line)
        del entry["sha256"]
        if entry["event"] == "selection":
            entry["body"]["selection"] = hashlib.sha256(data).hexdigest()
        entry["previous"] = previous
        entry["sha256"] = previous = canonical.digest(entry)
        lines.append(canonical.dumps(entry) + b"\n")
    (folder / "ledger.jsonl").write_bytes(b"".join(lines))


def test_a_selection_that_is_replaced_while_weights_are_hashed_is_not_confirmed(tiny_model, tmp_path, monkeypatch):
    folder = studies.write(tmp_path / "registrations" / "study", tiny_model, studies.SWEEP)
    for act in ("register", "probe"):
        studies.ran(0, act, folder)
    refuse_drift, hashed = confirm.refuse_drift, []

    def hashing(study, **how):
        if not hashed:
            hashed.append(study)
            select_another(folder)
        refuse_drift(study, **how)

    monkeypatch.setattr(confirm, "refuse_drift", hashing)
    assert "selection.json: differs from what the rule selects, h2o" in studies.ran(3, "confirm", folder).stderr
    assert not (folder / "claim.json").exists()


def test_a_shard_that_changes_after_it_was_read_is_not_sealed(tmp_path, monkeypatch):
    folder = tmp_path / "registrations" / "study"
    folder.parent.mkdir()
    locked = finished_study.locked(folder)
    finished_study.confirm(folder, stop_after=0)
    with ShardWriter(folder / "records") as shard:
        for lane in finished_study.lanes():
            finished_study.record(shard, locked.digest, *lane)
    contents, path = seal.make_content, folder / "records" / "shard-0.jsonl"

    def meanwhile(*given):
        *lines, _ = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([*lines, b'{"no":"record"}\n']))
        return contents(*given)

    monkeypatch.setattr(seal, "make_content", meanwhile)
    with claim.exclusive_run(Registration(folder)), pytest.raises(Tampered, match="not a record"):
        seal.write(Registration(folder))
    assert not (folder / seal.NAME).exists()


@pytest.mark.parametrize("module", ["judge", "selection", "ablations", "diagnostics"])
def test_a_lock_that_is_no_lock_is_refused_in_one_line(confirmed, tmp_path, module):
    import importlib

    folder = shutil.copytree(confirmed, tmp_path / "study")
    (folder / "lock.json").write_bytes(b'{"a":1}\n')
    assert importlib.import_module(f"analysis.{module}").main([str(folder)]) == 2
