import os

import pytest

from protocol.evidence import documents, files, journal
from protocol.evidence.refusals import AlreadyClaimed, BadInput, Tampered


def test_a_file_is_created_once_and_never_replaced(tmp_path):
    path = tmp_path / "new" / "claim.json"
    files.create(path, b"first")
    with pytest.raises(BadInput, match="written once"):
        files.create(path, b"second")
    assert path.read_bytes() == b"first"
    assert [each.name for each in path.parent.iterdir()] == ["claim.json"]


def test_a_write_that_fails_halfway_leaves_nothing(tmp_path, monkeypatch):
    def full_disk(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="disk full"):
        files.create(tmp_path / "claim.json", b"text")
    assert list(tmp_path.iterdir()) == []


def test_file_and_name_are_both_synced_to_disk(tmp_path, monkeypatch):
    synced, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd)))
    files.create(tmp_path / "claim.json", b"text")
    assert synced[0].startswith(f"{tmp_path}/.claim.json")
    assert synced[-1] == str(tmp_path)


def test_an_append_that_the_disk_cuts_short_leaves_no_trace(tmp_path, monkeypatch):
    path, real = tmp_path / "lines", os.write
    with journal.opened(path, wait=False) as lines:
        lines.append([b"one"])
        monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:4]))
        with pytest.raises(OSError, match="only a part"):
            lines.append([b"second"])
    assert path.read_bytes() == b"one\n"


def test_a_torn_tail_is_cut_before_anything_is_added(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntw")
    with journal.opened(path, wait=False) as lines:
        assert path.read_bytes() == b"one\ntw"  # opening alone changes nothing
        lines.append([b"three"])
    assert path.read_bytes() == b"one\nthree\n"


def test_a_journal_has_one_writer(tmp_path):
    with (
        journal.opened(tmp_path / "lines", wait=False),
        pytest.raises(AlreadyClaimed, match="another process"),
        journal.opened(tmp_path / "lines", wait=False),
    ):
        pass


def test_a_document_needs_its_last_newline(tmp_path):
    path = tmp_path / "lock.json"
    digest = documents.write(path, {"a": 1})
    assert documents.read(path) == ({"a": 1}, digest)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Tampered, match=r"lock\.json: does not end"):
        documents.read(path)
