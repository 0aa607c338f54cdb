"""A shard that is too large to be kept parsed says the same as one that is kept."""

import shutil

import finished_study
import pytest
from finished_study import body

from protocol.evidence import record_lines, records
from protocol.evidence.audit import auditor, consistency
from protocol.evidence.registration import Registration
from protocol.evidence.shard_writer import ShardWriter
from protocol.formats import canonical, files, journal
from protocol.formats.refusals import BadInput, Tampered

COSTS = {"attempt": 1, "prefill_seconds": "0.1"}


@pytest.fixture
def place(tmp_path):
    with ShardWriter(tmp_path / "records") as shard:
        shard.append([(body("0" * 64, arm, "p2") | {"text": '","chain":"'}, COSTS) for arm in ("b", "a")])
        shard.append([(body("0" * 64, "a", "p3") | {"text": "½ \U0001f600"}, COSTS)])
    return tmp_path / "records"


@pytest.fixture
def large(monkeypatch):
    monkeypatch.setattr(record_lines, "MAX_PARSED_BYTES", -1)


def test_its_records_are_those_of_a_shard_that_is_kept(place, monkeypatch):
    kept = records.read_shard(place / "shard-0.jsonl")
    monkeypatch.setattr(record_lines, "MAX_PARSED_BYTES", -1)
    again = records.read_shard(place / "shard-0.jsonl")
    assert isinstance(kept.records, list)
    assert isinstance(again.records, record_lines.LazyRecords)
    assert [*again.records] == kept.records
    assert (again.records[1:], again.records[-1]) == (kept.records[1:], kept.records[-1])
    assert again[1:] == kept[1:]
    assert [*records.record_heads(again.records)] == [*records.record_heads(kept.records)]
    assert [*records.select_records(again.records, [2, 0])] == [kept.records[2], kept.records[0]]


def test_its_outcome_is_that_of_a_shard_that_is_kept(place, monkeypatch):
    kept = records.outcome_digest(records.read_records(place))
    shutil.copy(place / "shard-0.jsonl", second := place.parent / "shard-0.jsonl")
    monkeypatch.setattr(record_lines, "MAX_PARSED_BYTES", -1)
    assert records.outcome_digest(records.read_records(place)) == kept
    parted = records.read_shard(second).records
    assert records.outcome_digest(record_lines.JoinedRecords([parted[:1], parted[1:]])) == kept
    assert records.outcome_digest(record_lines.JoinedRecords([parted, []])) == kept


def test_a_line_that_changes_while_it_is_read_is_tampering(place, large):
    path = place / "shard-0.jsonl"
    found = records.read_records(place)
    path.write_bytes(path.read_bytes().replace(b'"p3"', b'"p4"'))
    assert found[0]["body"]["problem"] == "p2"
    with pytest.raises(Tampered, match=r"shard-0.jsonl:3: was changed while it was read"):
        list(found)
    with pytest.raises(Tampered, match=r"shard-0.jsonl:3: was changed while it was read"):
        records.outcome_digest(found)


def test_its_torn_tail_is_cut_and_the_rest_goes_on(place, large):
    path = place / "shard-0.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert records.read_shard(path).torn == len(whole.splitlines()[-1]) - 4
    with ShardWriter(place) as shard:
        shard.append([(body("0" * 64, "a", "p3") | {"text": "½ \U0001f600"}, COSTS)])
    assert path.read_bytes() == whole


def test_a_lane_that_it_has_twice_is_tampering(place, large):
    shutil.copy(place / "shard-0.jsonl", place / "shard-1.jsonl")
    with pytest.raises(Tampered, match="is recorded twice"):
        records.read_records(place)


@pytest.mark.parametrize("damage", ["none", "edited", "cut", "swapped", "torn", "windows"])
def test_an_audit_finds_the_same_in_it(tmp_path, monkeypatch, damage):
    finished_study.finished(folder := tmp_path / "registrations" / "study")
    path = folder / "records" / "shard-0.jsonl"
    first, second, *rest = path.read_bytes().splitlines(keepends=True)
    damaged = {
        "none": [first, second, *rest],
        "edited": [first.replace(b'"text":"', b'"text":"!', 1), second, *rest],
        "cut": [first, second, *rest[:-1]],
        "swapped": [second, first, *rest],
        "torn": [first, second, *rest, b'{"body":'],
        "windows": [line.replace(b"\n", b"\r\n") for line in (first, second, *rest)],
    }
    path.write_bytes(b"".join(damaged[damage]))
    kept = auditor.audit(Registration(folder))
    assert (damage == "none") == (not auditor.failed_items(kept) and not auditor.undetermined_items(kept))
    monkeypatch.setattr(record_lines, "MAX_PARSED_BYTES", -1)
    assert auditor.audit(Registration(folder)) == kept


def test_its_records_make_sense_as_those_of_a_shard_that_is_kept(confirmed, monkeypatch):
    kept = consistency.check(Registration(confirmed))
    monkeypatch.setattr(record_lines, "MAX_PARSED_BYTES", -1)
    assert consistency.check(Registration(confirmed)) == kept


def test_a_line_without_end_is_refused_before_it_is_read_whole(place, monkeypatch):
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 200)
    with pytest.raises(Tampered, match="has more than 200 bytes, which no record has"):
        records.read_records(place)


@pytest.mark.parametrize("data", [b"", b"\n", b"a", b"a\n", b"a\nbcd", b"a\n" + b"x" * 40, b"x" * 40])
def test_the_bytes_after_the_last_newline_are_counted_from_the_end(tmp_path, monkeypatch, data):
    monkeypatch.setattr(journal, "_BLOCK", 16)
    (path := tmp_path / "lines").write_bytes(data)
    with path.open("rb") as file:
        assert journal.count_torn(file) == journal.split_lines(data).torn


@pytest.mark.parametrize("number", [2**53, -(2**53), 1.0])
def test_a_list_of_numbers_with_one_that_none_of_ours_is_is_refused(number):
    assert canonical.dumps([1, True, -(2**53) + 1, 2**53 - 1]) == b"[1,true,-9007199254740991,9007199254740991]"
    with pytest.raises(BadInput, match=r"\[1\] is"):
        canonical.dumps([1, number, 2])
