"""A packed shard has the lines and digests of its plain form; any other gzip file in its place is refused."""

import gzip
import io
import os
import shutil
import subprocess
import sys

import finished_study
import pytest
from finished_study import body

from analysis.judgement import untrusted_files
from protocol.evidence import pack_shards, record_lines, records
from protocol.evidence.audit import auditor
from protocol.evidence.registration import Registration
from protocol.evidence.shard_writer import ShardWriter
from protocol.formats import gzip_file, shards
from protocol.formats.refusals import AlreadyClaimed, BadInput, Tampered

COSTS = {"attempt": 1, "prefill_seconds": "0.1"}


@pytest.fixture
def study(tmp_path):
    finished_study.finished(folder := tmp_path / "registrations" / "study")
    return folder


@pytest.fixture
def plain(study):
    """The path of the plain shard, and its bytes."""
    return study / "records" / "shard-0.jsonl"


def flags(data: bytes, flag: int, extra: bytes) -> bytes:
    """A gzip file with one more field in its header."""
    return data[:3] + bytes([flag]) + data[4:10] + extra + data[10:]


REFUSED = {
    "an empty file": (lambda packed, lines: b"", "its compressed bytes are truncated"),
    "no gzip file": (lambda packed, lines: lines, "not readable: .*incorrect header check"),
    "a flipped byte": (lambda packed, lines: packed[:60] + bytes([packed[60] ^ 1]) + packed[61:], "not readable: "),
    "a flipped byte of its checksum": (lambda packed, lines: packed[:-8] + b"~" + packed[-7:], "incorrect data check"),
    "another length": (lambda packed, lines: packed[:-4] + b"\xff\xff\0\0", "incorrect length check"),
    "a length too short": (lambda packed, lines: packed[:-4] + b"\1\0\0\0", "incorrect length check"),
    "an end cut off": (lambda packed, lines: packed[:-100], "not readable: its compressed bytes are truncated"),
    # Where these decompress at all, it is not to a line of a shard.
    "another end": (
        lambda packed, lines: packed[:-100] + b"\xff\xff\0\0",
        r"shard-0\.jsonl\.gz(: not readable: |:\d+: not JSON: )",
    ),
    "bytes after its end": (
        lambda packed, lines: packed + packed[-4:] * 2,
        "has further bytes after its compressed content",
    ),
    "a second member": (
        lambda packed, lines: packed + gzip.compress(lines, mtime=0),
        "has further bytes after|has more than",
    ),
    "a name": (lambda packed, lines: flags(packed, 8, b"shard-0.jsonl\0"), "its gzip header has optional fields"),
    "a comment": (lambda packed, lines: flags(packed, 16, b"best of three\0"), "its gzip header has optional fields"),
    "a time": (lambda packed, lines: gzip.compress(lines, mtime=1), "its gzip header has optional fields"),
    "packed twice": (lambda packed, lines: gzip.compress(packed, mtime=0), r"shard-0.jsonl.gz:1: "),
}


def test_its_content_is_that_of_the_plain_form(plain):
    content = records.read_shard(plain)
    packed = pack_shards.pack(plain)
    assert packed.name == "shard-0.jsonl.gz"
    assert not plain.exists()
    assert records.read_shard(packed) == content
    assert gzip.decompress(packed.read_bytes()).count(b"\n") == shards.count_lines(packed) == len(content.records)


def test_packing_is_deterministic_and_reversible(plain):
    lines = plain.read_bytes()
    first = pack_shards.pack(plain).read_bytes()
    assert gzip.decompress(first) == lines
    assert first[3:8] == bytes(5)
    plain.with_name("shard-0.jsonl.gz").unlink()
    plain.write_bytes(lines)
    assert pack_shards.pack(plain).read_bytes() == first


@pytest.mark.parametrize("largest", [1 << 26, -1], ids=["parsed", "read again on access"])
def test_an_audit_says_the_same_of_both_forms(study, plain, monkeypatch, largest):
    monkeypatch.setattr(record_lines, "MAX_PARSED_BYTES", largest)
    findings = auditor.audit(Registration(study))
    assert not auditor.failed_items(findings)
    pack_shards.pack(plain)
    assert auditor.audit(Registration(study)) == findings
    recorded = Registration(study).confirm_records
    assert [*recorded][::-1] == recorded[::-1]


def test_the_analysis_reads_both_forms(study, plain):
    lines = [line for *_, line in untrusted_files.read_shards(study / "records")]
    assert len(lines) > 1
    pack_shards.pack(plain)
    assert [line for *_, line in untrusted_files.read_shards(study / "records")] == lines


@pytest.mark.parametrize("change", REFUSED)
def test_any_other_file_in_its_place_is_tampering(study, plain, change):
    damage, message = REFUSED[change]
    lines = plain.read_bytes()
    packed = pack_shards.pack(plain)
    packed.write_bytes(damage(packed.read_bytes(), lines))
    with pytest.raises(Tampered, match=message) as refusal:
        records.read_shard(packed)
    assert "\n" not in str(refusal.value)
    with pytest.raises(untrusted_files.RecordError):
        [untrusted_files.parse_object(line, "line") for *_, line in untrusted_files.read_shards(study / "records")]
    assert auditor.failed_items(auditor.audit(Registration(study)))


def test_a_shard_in_both_forms_is_tampering(study, plain):
    lines = plain.read_bytes()
    pack_shards.pack(plain)
    plain.write_bytes(lines)
    with pytest.raises(Tampered, match=r"shard-0.jsonl.gz: exists both packed and plain; remove one"):
        records.read_shards(study / "records")
    with pytest.raises(untrusted_files.RecordError, match="exists both packed and plain"):
        list(untrusted_files.read_shards(study / "records"))
    assert auditor.failed_items(auditor.audit(Registration(study)))


@pytest.mark.parametrize("make", [os.symlink, None], ids=["link", "pipe"])
def test_a_link_and_a_pipe_are_tampering(study, plain, make):
    packed = pack_shards.pack(plain)
    elsewhere = study.parent / packed.name
    shutil.move(packed, elsewhere)
    make(elsewhere, packed) if make else os.mkfifo(packed)
    with pytest.raises(Tampered, match=r"shard-0.jsonl.gz: is not a plain file"):
        records.read_shards(study / "records")
    assert auditor.failed_items(auditor.audit(Registration(study)))


def test_lines_that_were_edited_before_packing_are_tampering(plain):
    packed = pack_shards.pack(plain)
    packed.write_bytes(gzip.compress(gzip.decompress(packed.read_bytes()).replace(b'"ok"', b'"no"', 1), mtime=0))
    with pytest.raises(Tampered, match=r"shard-0.jsonl.gz:\d+: its digest does not match body and costs"):
        records.read_shard(packed)


def test_a_packed_shard_that_claims_more_than_the_memory_is_not_read(plain, monkeypatch):
    packed = pack_shards.pack(plain)
    packed.write_bytes(packed.read_bytes()[:-4] + b"\xff\xff\xff\xff")
    monkeypatch.setattr("protocol.formats.files.machine_memory", lambda: 1 << 20)
    with pytest.raises(BadInput, match="has 4294967295 bytes, but this machine can read only"):
        records.read_shard(packed)


def test_reading_ends_at_the_length_that_a_packed_shard_claims():
    with pytest.raises(Tampered, match="has more than 100000 bytes once unpacked"):
        gzip_file.decompressed(io.BytesIO(gzip.compress(bytes(1 << 30), mtime=0)), "shard-0.jsonl.gz", 100_000).read()


def test_nothing_is_appended_to_a_packed_shard(study, plain):
    pack_shards.pack(plain)
    with (
        pytest.raises(AlreadyClaimed, match="is packed: its study is finished"),
        ShardWriter(study / "records") as shard,
    ):
        shard.append([(body("0" * 64, "a", "p9"), COSTS)])
    assert not plain.exists()


def test_the_command_packs_finished_studies_alone(study, plain):
    command = [sys.executable, "-m", "protocol.evidence.pack_shards", str(plain)]
    ledger = study / "ledger.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(b"".join(lines[:-1]))  # without its verdict
    refused = subprocess.run(command, capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "has not ended; only shards of finished studies" in refused.stderr
    ledger.write_bytes(b"".join(lines))
    packed = subprocess.run(command, capture_output=True, text=True)
    assert (packed.returncode, packed.stdout) == (0, f"{plain}.gz\n")
    again = subprocess.run([*command[:-1], f"{plain}.gz"], capture_output=True, text=True)
    assert again.returncode == 2
    assert "is packed already" in again.stderr
    nothing = subprocess.run([*command[:-1], str(study / "lock.json")], capture_output=True, text=True)
    assert nothing.returncode == 2
