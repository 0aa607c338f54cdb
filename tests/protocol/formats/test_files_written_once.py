import contextlib
import errno
import os
import resource
import tempfile
from pathlib import Path

import finished_study
import pytest
from looped import looped

from protocol.evidence import ledger, records
from protocol.evidence.shard_writer import ShardWriter
from protocol.formats import documents, files, journal
from protocol.formats.refusals import AlreadyClaimed, BadInput, Tampered


def test_a_file_is_created_once_and_never_replaced(tmp_path):
    path = tmp_path / "new" / "claim.json"
    files.create(path, b"first")
    with pytest.raises(BadInput, match="never overwritten"):
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
    with journal.open_journal(path, wait=False) as lines:
        lines.append([b"one"])
        monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:4]))
        with pytest.raises(OSError, match="only part"):
            lines.append([b"second"])
    assert path.read_bytes() == b"one\n"


def test_a_torn_tail_is_cut_before_anything_is_added(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntw")
    with journal.open_journal(path, wait=False) as lines:
        assert path.read_bytes() == b"one\ntw"  # opening alone changes nothing
        lines.append([b"three"])
    assert path.read_bytes() == b"one\nthree\n"


def test_a_journal_has_one_writer(tmp_path):
    with (
        journal.open_journal(tmp_path / "lines", wait=False),
        pytest.raises(AlreadyClaimed, match="another process"),
        journal.open_journal(tmp_path / "lines", wait=False),
    ):
        pass


def test_a_document_needs_its_last_newline(tmp_path):
    path = tmp_path / "lock.json"
    digest = documents.write(path, {"a": 1})
    assert documents.read(path) == ({"a": 1}, digest)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Tampered, match=r"lock\.json: does not end"):
        documents.read(path)


@contextlib.contextmanager
def full_after(size):
    """The kernel lets no file grow beyond `size` bytes: what is written across that is cut there."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Failing:
    """Calls of a function of `os`, of which the k-th (from 0) and all later ones fail."""

    def __init__(self, monkeypatch, name, k=None):
        self.calls, self.k, self.real = 0, k, getattr(os, name)
        monkeypatch.setattr(os, name, self)

    def __call__(self, *arguments):
        self.calls += 1
        if self.k is not None and self.calls > self.k:
            raise OSError(errno.EIO, "Input/output error")
        return self.real(*arguments)


LINES = [b"first", b"second line", b"third"]


@looped("room", range(len(b"one\n"), len(b"one\nfirst\nsecond line\nthird\n")))
def test_an_append_is_all_there_or_not_at_all_wherever_the_disk_is_full(tmp_path, room):
    path = tmp_path / "lines"
    path.write_bytes(b"one\n")
    with journal.open_journal(path, wait=False) as lines:
        with full_after(room), pytest.raises(OSError, match=str(path)):
            lines.append(LINES)
        assert path.read_bytes() == b"one\n"
        lines.append(LINES)
    assert path.read_bytes() == b"one\nfirst\nsecond line\nthird\n"


@looped("room", range(len(b'{"a":"0123456789"}\n')))
def test_a_document_is_there_whole_or_not_at_all_wherever_the_disk_is_full(tmp_path, room):
    path = tmp_path / "claim.json"
    with full_after(room), pytest.raises(OSError, match=str(path)):
        documents.write(path, {"a": "0123456789"})
    assert list(tmp_path.iterdir()) == []
    documents.write(path, {"a": "0123456789"})
    assert documents.read(path).content == {"a": "0123456789"}


@pytest.mark.parametrize("k", range(2))
def test_a_sync_that_fails_leaves_a_document_whole_or_not_there(tmp_path, monkeypatch, k):
    path = tmp_path / "claim.json"
    Failing(monkeypatch, "fsync", k)
    with pytest.raises(OSError, match=str(tmp_path)):
        documents.write(path, {"a": 1})
    found = [each.name for each in tmp_path.iterdir()]
    assert found == ([] if k == 0 else ["claim.json"])  # its bytes first, then its name
    assert not found or documents.read(path).content == {"a": 1}


def test_a_name_that_cannot_be_given_leaves_nothing(tmp_path, monkeypatch):
    Failing(monkeypatch, "link", 0)
    with pytest.raises(OSError, match="Input/output"):
        files.create(tmp_path / "claim.json", b"text")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["write", "fsync", "ftruncate"])
def test_no_acknowledged_line_is_lost_whichever_call_fails(tmp_path, monkeypatch, name):
    """Each call of a session fails in turn, and those after it: a device that went away."""

    def session(path, told):
        with journal.open_journal(path, wait=False) as lines:
            for number in range(3):
                batch = [b"%d a" % number, b"%d b" % number]
                lines.append(batch)
                told += batch

    with monkeypatch.context() as patched:
        counted = Failing(patched, name)
        (tmp_path / "undisturbed").write_bytes(b"torn")
        session(tmp_path / "undisturbed", [])
    assert counted.calls >= 1
    for k in range(counted.calls):
        path, told = tmp_path / f"{name} {k}", []
        path.write_bytes(b"torn")
        with monkeypatch.context() as patched:
            Failing(patched, name, k)
            with pytest.raises(OSError, match=str(tmp_path)):
                session(path, told)
        found = [] if path.read_bytes() == b"torn" else journal.split_lines(path.read_bytes()).complete
        assert found == told
        session(path, found)  # the device is back, and the same writer goes on
        assert journal.split_lines(path.read_bytes()) == (found, 0)


def test_a_record_and_a_ledger_line_are_whole_or_not_there_when_the_disk_is_full(tmp_path):
    first = ledger.append(tmp_path, "register", {"lock": "0" * 64})
    place = tmp_path / "records"
    body = finished_study.body
    with ShardWriter(place) as shard:
        shard.append([(body("0" * 64, "full", "p2"), {"attempt": 1})])
        size = (place / "shard-0.jsonl").stat().st_size
        ends = size + 1, size + 100, 2 * size - 1, 2 * size + 50
        for room in ends:
            batch = [(body("0" * 64, arm, "p3"), {"attempt": 1}) for arm in finished_study.ARMS]
            with full_after(room), pytest.raises(OSError, match=r"shard-0\.jsonl"):
                shard.append(batch)
            assert [record["body"]["problem"] for record in records.read_records(place)] == ["p2"]
        shard.append(batch)
    assert len(records.read_records(place)) == 3
    size = (tmp_path / ledger.NAME).stat().st_size
    for room in (size, size + 1, size + 200):
        with full_after(room), pytest.raises(OSError, match=r"ledger\.jsonl"):
            ledger.append(tmp_path, "probe", {"number": 1})
        assert ledger.read(tmp_path) == [first]


def test_a_folder_that_is_made_has_its_own_name_on_disk_first(tmp_path, monkeypatch):
    synced, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd)))
    with journal.open_journal(tmp_path / "a" / "b" / "lines", wait=False) as lines:
        lines.append([b"one"])
    expected = [tmp_path, tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "lines"]
    assert synced == [str(path) for path in expected]


@contextlib.contextmanager
def unprivileged():
    """Root may write everywhere; nobody may not."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_folder_that_takes_no_writes_is_named_and_left_as_it_was():
    with tempfile.TemporaryDirectory() as name:  # tmp_path lies in a folder that others cannot enter
        folder = Path(name)
        (folder / "lines").write_bytes(b"one\n")
        (folder / "lines").chmod(0o444)
        folder.chmod(0o555)
        with unprivileged(), pytest.raises(PermissionError, match=r"claim\.json"):
            files.create(folder / "claim.json", b"text")
        with unprivileged(), pytest.raises(PermissionError, match="lines"):
            journal.open_journal(folder / "lines", wait=False).__enter__()
        assert [path.name for path in folder.iterdir()] == ["lines"]
        assert (folder / "lines").read_bytes() == b"one\n"


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_what_is_no_plain_file_is_neither_read_nor_appended_to(tmp_path, kind):
    (tmp_path / "real").write_bytes(b'{"a":1}\n')
    path = tmp_path / "claim.json"
    {"link": lambda: path.symlink_to("real"), "folder": path.mkdir, "pipe": lambda: os.mkfifo(path)}[kind]()
    with pytest.raises(Tampered, match=r"claim\.json: is not a plain file"):
        documents.read(path)
    with pytest.raises(Tampered, match=r"claim\.json: is not a plain file"), journal.open_journal(path, wait=False):
        pass
    assert (tmp_path / "real").read_bytes() == b'{"a":1}\n'


def test_a_document_whose_text_is_not_nfc_is_neither_written_nor_read(tmp_path):
    path = tmp_path / "lock.json"
    with pytest.raises(BadInput, match=r"lock\.json: items\[0\]\.name: text is not in Unicode normal form NFC"):
        documents.write(path, {"items": [{"name": "e\u0301"}]})
    assert list(tmp_path.iterdir()) == []
    path.write_bytes('{"title":"e\u0301"}\n'.encode())
    with pytest.raises(Tampered, match=r"lock\.json: title: text is not in Unicode normal form NFC"):
        documents.read(path)
