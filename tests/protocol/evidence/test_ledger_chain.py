import json
import re

import pytest

from protocol.evidence import ledger
from protocol.formats import canonical, journal
from protocol.formats.refusals import AlreadyClaimed, BadInput, Tampered

DIGEST = "1" * 64
BODIES = {"register": {"lock": DIGEST}, "probe": {"number": 1}, "claim": {"claim": DIGEST}}
ATTEMPT = {"number": 1, "records": 0}
TIME = "2026-11-22T09:30:00+00:00"


@pytest.fixture
def folder(tmp_path):
    for event, body in BODIES.items():
        ledger.append(tmp_path, event, body)
    return tmp_path


def lines(folder):
    return (folder / ledger.NAME).read_bytes().splitlines(keepends=True)


def test_lines_are_chained_from_zeros(folder):
    entries = [json.loads(line) for line in lines(folder)]
    assert [entry["index"] for entry in entries] == [0, 1, 2]
    assert [entry["previous"] for entry in entries] == ["0" * 64, entries[0]["sha256"], entries[1]["sha256"]]
    assert ledger.read_head(folder) == {"count": 3, "head": entries[2]["sha256"]}
    assert ledger.count_events(folder, "probe") == 1


def test_without_lines_the_head_is_zeros(tmp_path):
    (tmp_path / ledger.NAME).touch()
    assert ledger.read_head(tmp_path) == {"count": 0, "head": journal.START}


@pytest.mark.parametrize(
    "edit",
    [
        lambda lines: [lines[0], lines[2]],
        lambda lines: lines[1:],
        lambda lines: [lines[1], lines[0], lines[2]],
        lambda lines: [*lines, lines[2]],
        lambda lines: [lines[0], lines[1].replace(b"probe", b"prose"), lines[2]],
        lambda lines: [*lines, b"{}\n"],
        lambda lines: [*lines, b"[]\n"],
        lambda lines: [*lines, b"\n"],
    ],
)
def test_lines_taken_out_swapped_repeated_or_edited_are_found(folder, edit):
    (folder / ledger.NAME).write_bytes(b"".join(edit(lines(folder))))
    before = (folder / ledger.NAME).read_bytes()
    with pytest.raises(Tampered, match=r"ledger\.jsonl:\d"):
        ledger.read(folder)
    with pytest.raises(Tampered):
        ledger.append(folder, "attempt", ATTEMPT)
    assert (folder / ledger.NAME).read_bytes() == before


def test_a_torn_tail_is_truncated_before_the_next_line(folder):
    whole = (folder / ledger.NAME).read_bytes()
    (folder / ledger.NAME).write_bytes(whole + b'{"body":{}')
    assert len(ledger.read(folder)) == 3
    ledger.append(folder, "attempt", ATTEMPT)
    assert (folder / ledger.NAME).read_bytes().startswith(whole)
    assert [entry.event for entry in ledger.read(folder)] == ["register", "probe", "claim", "attempt"]


def test_ensuring_a_line_that_is_there_changes_nothing(folder):
    before = lines(folder)
    ledger.ensure(folder, "claim", BODIES["claim"])
    assert lines(folder) == before
    ledger.ensure(folder, "claim", {"claim": "2" * 64})
    assert len(lines(folder)) == 4


CLOSED = {
    "verdict": {"sha256": DIGEST},
    "withdraw": {"reason": "wrong golds", "seen": {}},
    "amended": {"reason": "a typing error", "lock": DIGEST},
}


@pytest.mark.parametrize(
    ("event", "body", "said"),
    [
        ("verdict", CLOSED["verdict"], r"kv-prereg replicate"),
        ("withdraw", CLOSED["withdraw"], r"withdrawn \(wrong golds\)"),
        ("amended", CLOSED["amended"], rf"amended \(a typing error\).*{DIGEST}"),
    ],
)
def test_nothing_follows_what_closes_a_ledger(folder, event, body, said):
    ledger.refuse_closed(folder)
    assert ledger.closing_entry(ledger.read(folder)) is None
    closed = ledger.append(folder, event, body)
    assert ledger.closing_entry(ledger.read(folder)) == closed
    before = lines(folder)
    for act in (
        lambda: ledger.append(folder, "probe", {"number": 2}),
        lambda: ledger.ensure(folder, "claim", {"claim": "2" * 64}),
        lambda: ledger.refuse_closed(folder),
    ):
        with pytest.raises(AlreadyClaimed, match=said):
            act()
    ledger.ensure(folder, "claim", BODIES["claim"])
    assert lines(folder) == before


@pytest.mark.parametrize("event", CLOSED)
def test_a_line_that_was_forged_onto_a_closed_ledger_is_found(folder, event):
    tip = ledger.append(folder, event, CLOSED[event])
    signed = {"index": 4, "event": "probe", "body": {}, "time": tip.time, "previous": tip.sha256}
    line = canonical.dumps({**signed, "sha256": canonical.digest(signed)})
    with (folder / ledger.NAME).open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(Tampered, match=rf"ledger\.jsonl:5: follows the line '{event}'"):
        ledger.read(folder)


@pytest.mark.parametrize(
    "wrong", [{"event": ["verdict"]}, {"event": None}, {"body": []}, {"body": "n"}, {"time": ""}, {"time": "today"}]
)
def test_a_line_of_other_types_is_found(tmp_path, wrong):
    signed = {"index": 0, "event": "register", "body": {}, "time": TIME, "previous": journal.START} | wrong
    line = canonical.dumps({**signed, "sha256": canonical.digest(signed)})
    (tmp_path / ledger.NAME).write_bytes(line + b"\n")
    with pytest.raises(Tampered, match=r"ledger\.jsonl:1"):
        ledger.read(tmp_path)


def test_a_body_that_cannot_be_written_leaves_no_file(tmp_path):
    with pytest.raises(BadInput, match=r"share is the number 0\.5"):
        ledger.append(tmp_path, "register", {"share": 0.5})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("event", "body", "named"),
    [
        ("probe", {"numbre": 1}, "line.body of 'probe': the fields ['number', 'numbre'] are missing or unknown"),
        ("attempt", {"number": 0, "records": 0}, "line.body of 'attempt'.number: is 0; it must be a whole"),
        ("claim", {"claim": "newest"}, "line.body of 'claim'.claim: is 'newest'; it must be a SHA-256"),
        ("prose", {}, "is 'prose'; it must be one of register, probe"),
    ],
)
def test_a_line_whose_event_has_another_body_is_neither_written_nor_read(tmp_path, event, body, named):
    with pytest.raises(BadInput, match=re.escape(named)):
        ledger.append(tmp_path, event, body)
    signed = {"index": 0, "event": event, "body": body, "time": TIME, "previous": journal.START}
    line = canonical.dumps({**signed, "sha256": canonical.digest(signed)})
    (tmp_path / ledger.NAME).write_bytes(line + b"\n")
    with pytest.raises(Tampered) as tampered:
        ledger.read(tmp_path)
    assert str(tampered.value).startswith("ledger.jsonl:1: ")
    assert named in str(tampered.value)


def test_a_missing_ledger_is_not_an_empty_one(tmp_path):
    with pytest.raises(Tampered, match="missing"):
        ledger.read_head(tmp_path)
