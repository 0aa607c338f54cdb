"""A packed shard has the lines and digests of its plain form; any other packed file in its place is refused."""

import gzip
import io
import lzma
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import finished_study
import pytest
from finished_study import body

from analysis.judgement import untrusted_files
from protocol.evidence import pack_study, record_lines, records
from protocol.evidence.audit import auditor
from protocol.evidence.registration import Registration
from protocol.evidence.shard_writer import ShardWriter
from protocol.formats import packed_file, shards
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


def gzipped(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def another_length(packed: bytes, lines: bytes) -> bytes:
    """A shard of xz whose index states one byte of lines more, with the checksum that belongs to that."""
    index_bytes = 4 * (int.from_bytes(packed[-8:-4], "little") + 1)
    index = bytearray(packed[-12 - index_bytes : -16])
    place = next(number for number, byte in enumerate(index[2:], 2) if byte < 128) + 1  # after the packed size
    assert index[place] & 127 < 127
    index[place] += 1
    return packed[: -12 - index_bytes] + index + zlib.crc32(index).to_bytes(4, "little") + packed[-12:]


def flags(data: bytes, flag: int, extra: bytes) -> bytes:
    """A gzip file with one more field in its header."""
    return data[:3] + bytes([flag]) + data[4:10] + extra + data[10:]


def pack(plain: Path, compress: Callable[[bytes], bytes] = gzipped, suffix: str = ".gz") -> Path:
    """A shard in the earlier packed form, or in one that another program makes."""
    packed = plain.with_name(plain.name + suffix)
    packed.write_bytes(compress(plain.read_bytes()))
    plain.unlink()
    return packed


# By suffix and name: the damage, done to a packed shard of these lines, and the refusal.
REFUSED = {
    (".gz", "an empty file"): (lambda packed, lines: b"", "its compressed bytes are truncated"),
    (".gz", "no gzip file"): (lambda packed, lines: lines, "not readable: .*incorrect header check"),
    (".gz", "a flipped byte"): (
        lambda packed, lines: packed[:60] + bytes([packed[60] ^ 1]) + packed[61:],
        "not readable: ",
    ),
    (".gz", "a flipped byte of its checksum"): (
        lambda packed, lines: packed[:-8] + b"~" + packed[-7:],
        "incorrect data check",
    ),
    (".gz", "another length"): (lambda packed, lines: packed[:-4] + b"\xff\xff\0\0", "incorrect length check"),
    (".gz", "a length too short"): (lambda packed, lines: packed[:-4] + b"\1\0\0\0", "incorrect length check"),
    (".gz", "an end cut off"): (
        lambda packed, lines: packed[:-100],
        "not readable: its compressed bytes are truncated",
    ),
    # Where these decompress at all, it is not to a line of a shard.
    (".gz", "another end"): (
        lambda packed, lines: packed[:-100] + b"\xff\xff\0\0",
        r"shard-0\.jsonl\.gz(: not readable: |:\d+: not JSON: )",
    ),
    (".gz", "bytes after its end"): (
        lambda packed, lines: packed + packed[-4:] * 2,
        "has further bytes after its compressed content",
    ),
    (".gz", "a second member"): (
        lambda packed, lines: packed + gzipped(lines),
        "has further bytes after|has more than",
    ),
    (".gz", "a name"): (
        lambda packed, lines: flags(packed, 8, b"shard-0.jsonl\0"),
        "its gzip header has optional fields",
    ),
    (".gz", "a comment"): (
        lambda packed, lines: flags(packed, 16, b"best of three\0"),
        "its gzip header has optional fields",
    ),
    (".gz", "a time"): (
        lambda packed, lines: gzip.compress(lines, mtime=1),
        "its gzip header has optional fields",
    ),
    (".gz", "packed twice"): (lambda packed, lines: gzipped(packed), r"shard-0.jsonl.gz:1: "),
    (".xz", "an empty file"): (lambda packed, lines: b"", "its compressed bytes are truncated"),
    (".xz", "no xz file"): (lambda packed, lines: lines, "is not one block of xz|not readable: "),
    (".xz", "a gzip file"): (lambda packed, lines: gzipped(lines), "is not one block of xz|not readable: "),
    (".xz", "a flipped byte"): (
        lambda packed, lines: packed[:60] + bytes([packed[60] ^ 1]) + packed[61:],
        "not readable: Corrupt input data",
    ),
    (".xz", "another length"): (another_length, "not readable: Corrupt input data|has more than"),
    (".xz", "an end cut off"): (lambda packed, lines: packed[:-100], "is not one block of xz|not readable: "),
    (".xz", "bytes after its end"): (
        lambda packed, lines: packed[:-12] + bytes(4) + packed[-12:],
        "is not one block of xz|not readable: ",
    ),
    (".xz", "padding after its end"): (lambda packed, lines: packed + bytes(4), "is not one block of xz|has further"),
    (".xz", "a second stream"): (
        lambda packed, lines: packed + lzma.compress(lines),
        "has further bytes after its compressed content",
    ),
    (".xz", "two blocks"): (
        lambda packed, lines: (
            subprocess.run(["xz", "-c", "--block-size=500"], input=lines, capture_output=True, check=True).stdout
        ),
        "is not one block of xz",
    ),
    (".xz", "another checksum"): (
        lambda packed, lines: lzma.compress(lines, check=lzma.CHECK_CRC32),
        "its xz header has optional fields",
    ),
    (".xz", "packed twice"): (lambda packed, lines: lzma.compress(packed), r"shard-0.jsonl.xz:1: "),
}


def test_its_content_is_that_of_the_plain_form(study, plain):
    content = records.read_shard(plain)
    [packed] = pack_study.pack(study)
    assert packed.name == "shard-0.jsonl.xz"
    assert not plain.exists()
    assert records.read_shard(packed) == content
    lines = lzma.decompress(packed.read_bytes())
    assert lines.count(b"\n") == shards.count_lines(packed) == len(content.records)
    assert shards.plain_bytes(packed) == len(lines)


def test_packing_is_deterministic_and_reversible(study, plain):
    lines = plain.read_bytes()
    [packed] = pack_study.pack(study)
    first = packed.read_bytes()
    assert lzma.decompress(first) == lines
    packed.unlink()
    plain.write_bytes(lines)
    assert [path.read_bytes() for path in pack_study.pack(study)] == [first]
    assert [*pack_study.pack(study)] == []


def test_a_shard_in_the_earlier_form_is_packed_again(study, plain):
    content = records.read_shard(plain)
    earlier = pack(plain)
    assert records.read_shard(earlier) == content
    [packed] = pack_study.pack(study)
    assert (packed.name, earlier.exists()) == ("shard-0.jsonl.xz", False)
    assert records.read_shard(packed) == content


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16383, 16384, 2097151, 2097152])
def test_the_size_that_the_end_of_xz_states_is_that_of_its_lines(size):
    assert packed_file.stated_bytes(io.BytesIO(lzma.compress(bytes(size))), "a.xz") == size


@pytest.mark.parametrize("largest", [1 << 26, -1], ids=["parsed", "read again on access"])
def test_an_audit_says_the_same_of_both_forms(study, plain, monkeypatch, largest):
    monkeypatch.setattr(record_lines, "MAX_PARSED_BYTES", largest)
    findings = auditor.audit(Registration(study))
    assert not auditor.failed_items(findings)
    [*pack_study.pack(study)]
    assert auditor.audit(Registration(study)) == findings
    recorded = Registration(study).confirm_records
    assert [*recorded][::-1] == recorded[::-1]


def test_the_analysis_reads_both_forms(study, plain):
    lines = [line for *_, line in untrusted_files.read_shards(study / "records")]
    assert len(lines) > 1
    [*pack_study.pack(study)]
    assert [line for *_, line in untrusted_files.read_shards(study / "records")] == lines


@pytest.mark.parametrize(("suffix", "change"), REFUSED)
def test_any_other_file_in_its_place_is_tampering(study, plain, suffix, change):
    damage, message = REFUSED[suffix, change]
    lines = plain.read_bytes()
    packed = pack(plain, gzipped if suffix == ".gz" else lzma.compress, suffix)
    packed.write_bytes(damage(packed.read_bytes(), lines))
    with pytest.raises(Tampered, match=message) as refusal:
        records.read_shard(packed)
    assert "\n" not in str(refusal.value)
    with pytest.raises(untrusted_files.RecordError):
        [untrusted_files.parse_object(line, "line") for *_, line in untrusted_files.read_shards(study / "records")]
    assert auditor.failed_items(auditor.audit(Registration(study)))


def test_a_shard_in_both_forms_is_tampering(study, plain):
    lines = plain.read_bytes()
    [*pack_study.pack(study)]
    plain.write_bytes(lines)
    with pytest.raises(Tampered, match=r"shard-0.jsonl.xz: exists both packed and plain; remove one"):
        records.read_shards(study / "records")
    with pytest.raises(untrusted_files.RecordError, match="exists both packed and plain"):
        list(untrusted_files.read_shards(study / "records"))
    assert auditor.failed_items(auditor.audit(Registration(study)))


@pytest.mark.parametrize("make", [os.symlink, None], ids=["link", "pipe"])
def test_a_link_and_a_pipe_are_tampering(study, plain, make):
    packed = pack(plain)
    elsewhere = study.parent / packed.name
    shutil.move(packed, elsewhere)
    make(elsewhere, packed) if make else os.mkfifo(packed)
    with pytest.raises(Tampered, match=r"shard-0.jsonl.gz: is not a plain file"):
        records.read_shards(study / "records")
    assert auditor.failed_items(auditor.audit(Registration(study)))


def test_lines_that_were_edited_before_packing_are_tampering(plain):
    packed = pack(plain)
    packed.write_bytes(gzipped(gzip.decompress(packed.read_bytes()).replace(b'"ok"', b'"no"', 1)))
    with pytest.raises(Tampered, match=r"shard-0.jsonl.gz:\d+: its digest does not match body and costs"):
        records.read_shard(packed)


def test_a_packed_shard_that_claims_more_than_the_memory_is_not_read(plain, monkeypatch):
    packed = pack(plain)
    packed.write_bytes(packed.read_bytes()[:-4] + b"\xff\xff\xff\xff")
    monkeypatch.setattr("protocol.formats.files.machine_memory", lambda: 1 << 20)
    with pytest.raises(BadInput, match="has 4294967295 bytes, but this machine can read only"):
        records.read_shard(packed)


@pytest.mark.parametrize(("compress", "suffix"), [(gzipped, ".gz"), (lzma.compress, ".xz")])
def test_reading_ends_at_the_length_that_a_packed_shard_claims(compress, suffix):
    packed = io.BytesIO(compress(bytes(1 << 24)))
    with pytest.raises(Tampered, match="has more than 100000 bytes once unpacked"):
        packed_file.decompressed(packed, f"shard-0.jsonl{suffix}", 100_000).read()


def test_xz_that_takes_more_memory_than_ours_is_not_unpacked():
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": 1 << 28}]
    packed = io.BytesIO(lzma.compress(b"line", filters=filters))
    with pytest.raises(Tampered, match="not readable: Memory usage limit exceeded"):
        packed_file.decompressed(packed, "shard-0.jsonl.xz", 100).read()


def test_nothing_is_appended_to_a_packed_shard(study, plain):
    [*pack_study.pack(study)]
    with (
        pytest.raises(AlreadyClaimed, match="is packed: its study is finished"),
        ShardWriter(study / "records") as shard,
    ):
        shard.append([(body("0" * 64, "a", "p9"), COSTS)])
    assert not plain.exists()


def test_the_command_packs_finished_studies_alone(study, plain):
    command = [sys.executable, "-m", "protocol.evidence.pack_study", str(study)]
    ledger = study / "ledger.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(b"".join(lines[:-1]))  # without its verdict
    refused = subprocess.run(command, capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "has not ended; only studies that have ended can be packed" in refused.stderr
    ledger.write_bytes(b"".join(lines))
    packed = subprocess.run(command, capture_output=True, text=True)
    assert (packed.returncode, packed.stdout) == (0, f"{plain}.xz\n")
    again = subprocess.run(command, capture_output=True, text=True)
    assert (again.returncode, again.stdout) == (0, "")
    nothing = subprocess.run([*command[:-1], str(study / "lock.json")], capture_output=True, text=True)
    assert (nothing.returncode, nothing.stdout) == (2, "")
