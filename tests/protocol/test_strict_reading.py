"""Every file that people or this project write has one reading, or is refused in one line that names it."""

import gzip
import hashlib
import os

import pytest
import studies
from looped import looped

import splits
from analysis.judgement import study_files as table
from protocol.evidence import ledger, records
from protocol.formats import documents
from protocol.formats.refusals import BadInput, Drifted, Tampered
from protocol.models import checksums
from protocol.plan import toml_reader
from splits import make

REFUSALS = (BadInput, Drifted, Tampered, splits.SplitError, table.RecordError)

# What is wrong with bytes that should be JSON: text that may be read in two ways, or in none.
NOT_ONE_READING = {
    "empty": b"",
    "blank": b" ",
    "cut": b'{"a":',
    "not UTF-8": b'{"a":"\xff"}',
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"a":1}',
    "NUL": b'{"a":1}\x00',
    "garbage after the end": b'{"a":1}}',
    "two values": b'{"a":1}{"a":1}',
    "key twice": b'{"a":1,"a":1}',
    "key twice at depth": b'{"a":[{"b":{"c":1,"c":2}}]}',
    "NaN": b'{"a":NaN}',
    "infinity": b'{"a":-Infinity}',
    "float": b'{"a":0.5}',
    "exponent": b'{"a":1e3}',
    "integer of 2^53": b'{"a":9007199254740992}',
    "integer of 5,000 digits": b'{"a":' + b"9" * 5000 + b"}",
    "half a surrogate pair": b'{"a":"\\ud800"}',
    "nested 100,000 deep": b"[" * 100_000 + b"]" * 100_000,
    "nested 5,000 deep": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "a list": b"[1]",
    "a number": b"1",
}
# What a lenient reader of JSON takes, and ours does not, since it digests what it reads.
OTHER_SPELLINGS = {
    "spaces": b'{"a": 1}',
    "keys out of order": b'{"b":1,"a":1}',
    "needless escape": b'{"a":"\\u0041"}',
    "minus zero": b'{"a":-0}',
    "carriage return": b'{"a":1}\r',
}


def document(folder, data):
    (folder / "lock.json").write_bytes(data + b"\n")
    documents.read(folder / "lock.json")


def ledger_line(folder, data):
    (folder / "ledger.jsonl").write_bytes(data + b"\n")
    ledger.read(folder)


def record_line(folder, data):
    (folder / "shard-0.jsonl").write_bytes(data + b"\n")
    records.read_shard(folder / "shard-0.jsonl")


def side_file(folder, data):
    (folder / "trajectories").mkdir()
    name = hashlib.sha256(data).hexdigest()
    (folder / "trajectories" / f"{name}.json.gz").write_bytes(gzip.compress(data, mtime=0))
    records.hash_trajectories(folder, [{"body": {"trajectory": f"{name}#0"}}])


def lock_of_the_analysis(folder, data):
    (folder / "lock.json").write_bytes(data + b"\n")
    table.read_document(folder / "lock.json")


def manifest(folder, data):
    (folder / "tiny.json").write_bytes(data + b"\n")
    splits.load("tiny", folder)


def ids(folder, data):
    (folder / "data.jsonl").write_bytes(data + b"\n")
    make.read_ids(folder / "data.jsonl")


CANONICAL = {"lock.json": document, "ledger.jsonl:1": ledger_line, "shard-0.jsonl:1": record_line}
READERS = CANONICAL | {
    ".json.gz": side_file,
    "lock.json ": lock_of_the_analysis,
    "tiny.json": manifest,
    "data.jsonl: line 1": ids,
}


def refused(read, *arguments) -> str:
    """The refusal of `read`: one line, whatever was wrong."""
    with pytest.raises(REFUSALS) as refusal:
        read(*arguments)
    text = str(refusal.value)
    assert "\n" not in text
    return text


@looped("defect", NOT_ONE_READING)
@looped("file", READERS)
def test_a_file_that_has_no_one_reading_is_refused_by_its_name(tmp_path, file, defect):
    assert file.strip() in refused(READERS[file], tmp_path, NOT_ONE_READING[defect])


@looped("defect", OTHER_SPELLINGS)
@looped("file", CANONICAL)
def test_evidence_in_another_spelling_is_refused_with_its_place(tmp_path, file, defect):
    text = refused(CANONICAL[file], tmp_path, OTHER_SPELLINGS[defect])
    if defect == "carriage return":  # in every line of the file: what git does to a clone on Windows
        assert text.startswith(f"{file.partition(':')[0]}: its line endings were rewritten in this copy")
    else:
        assert text.startswith(f"{file}: not canonical JSON from byte ")


@looped("kind", ["link", "folder", "pipe", "nothing"])
@looped(
    ("name", "read"),
    [
        ("lock.json", documents.read),
        ("shard-0.jsonl", records.read_shard),
        (f"{'e' * 64}.json.gz", lambda path: records.read_side_file(path.parents[1], "e" * 64)),
    ],
)
def test_evidence_is_a_plain_file(tmp_path, name, read, kind):
    folder = tmp_path / "trajectories"
    folder.mkdir()
    (tmp_path / "elsewhere").write_bytes(b'{"a":1}\n')
    path = folder / name
    if kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    if (kind, name) == ("nothing", "shard-0.jsonl"):  # nobody asks for a shard that is not there
        return
    assert name in refused(read, path)


def test_ids_of_a_data_file_keep_what_only_looks_like_an_end_of_line(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text('{"unique_id":"a","text":"one\u2028two\x85three"}\n{"unique_id":"b"}\n', "utf-8")
    assert make.read_ids(path) == ["a", "b"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"unique_id":"b","unique_id":"c"}', "unique_id: occurs twice"),
        ('{"unique_id":"b","answer":{"x":1,"x":2}}', "x: occurs twice"),
        ('{"unique_id":"b","level":NaN}', "NaN is not JSON"),
        ('{"unique_id":"b","level":-Infinity}', "-Infinity is not JSON"),
    ],
)
def test_a_line_of_a_data_file_with_two_readings_is_refused_by_its_number(tmp_path, line, why):
    path = tmp_path / "data.jsonl"
    path.write_text(f'{{"unique_id":"a","level":0.5}}\n{line}\n', "utf-8")
    assert f"line 2: {why}" in refused(make.read_ids, path)


def test_an_id_in_another_spelling_and_a_source_that_is_no_digest_are_refused(tmp_path):
    assert "'e\u0301' is not NFC" in refused(make.write_split, "tiny", ["e\u0301"], "0" * 64, tmp_path)
    assert "'newest' is not a SHA-256" in refused(make.write_split, "tiny", ["a"], "newest", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_command_that_freezes_a_split_refuses_in_one_line(tmp_path, capsys):
    path = tmp_path / "data.jsonl"
    for defect, data in NOT_ONE_READING.items():
        if defect not in ("integer of 2^53", "float", "exponent"):  # other people's numbers are theirs
            path.write_bytes(data)
            assert make.main(["never-written", str(path)]) == 2, defect
            error = capsys.readouterr().err
            assert error.startswith("SplitError: ")
            assert error.count("\n") == 1
    assert not (splits.manifest.FOLDER / "never-written.json").exists()


SUM = "0" * 64


@looped(
    "listing",
    [
        b"\xff",
        b"config.json\n",
        f"{SUM} config.json\n".encode(),
        f"{SUM[1:]}  config.json\n".encode(),
        f"{SUM}  ../config.json\n".encode(),
        f"{SUM}  config.json\n{SUM}  config.json\n".encode(),
    ],
)
def test_digests_of_weights_in_another_form_are_refused_by_line(tmp_path, listing):
    (tmp_path / "config.json").write_bytes(b"{}")
    (tmp_path / "SHA256SUMS").write_bytes(listing)
    assert "SHA256SUMS" in refused(checksums.verify, tmp_path, "mine", "fetch it again")


PROTOCOL = studies.PROTOCOL.format(model="/weights")
SEEDS = "seeds = [0]"
# What is too large for a line of plan/refused_protocols.txt: the text replaced, by what, and the place that is named.
WRONG = {
    "integer of 5,000 digits": (SEEDS, f"seeds = [{'9' * 5000}]", "number"),
    "share of too many decimals": ("budgets = [0.8]", f"budgets = [0.{'1' * 40}]", "budgets[0]"),
    "nested too deeply": (SEEDS, f"seeds = {'[' * 100_000}{']' * 100_000}", "nested too deeply"),
}


@pytest.mark.parametrize("defect", WRONG)
def test_a_protocol_with_a_mistake_is_refused_with_its_place(defect):
    old, new, named = WRONG[defect]
    assert PROTOCOL.count(old) == 1
    text = refused(toml_reader.parse, PROTOCOL.replace(old, new).encode(), "protocol.toml")
    assert text.startswith("protocol.toml: ")
    assert named in text


@looped(
    ("data", "named"),
    [
        (b"", "title: missing"),
        (PROTOCOL.encode("utf-16"), "not UTF-8 at byte 0"),
        (b"\xef\xbb\xbf" + PROTOCOL.encode(), "byte order mark"),
        (PROTOCOL.encode() + b"\x00", "invalid TOML"),
        (PROTOCOL.encode() + b"}", "invalid TOML"),
        (PROTOCOL.replace("\n", "\r").encode(), "invalid TOML"),
    ],
)
def test_bytes_that_are_no_protocol_are_refused_by_name(data, named):
    text = refused(toml_reader.parse, data, "protocol.toml")
    assert text.startswith("protocol.toml: ")
    assert named in text


def test_the_protocol_that_all_these_mistakes_are_made_in_is_right():
    assert toml_reader.parse(PROTOCOL.encode(), "protocol.toml").title == "A study for the test suite"
    assert toml_reader.parse(PROTOCOL.replace("\n", "\r\n").encode(), "protocol.toml").seeds == (0,)
