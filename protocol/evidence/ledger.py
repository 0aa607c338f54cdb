"""The ledger: one chained line for every operation on a registration, in chronological order.

A line is the canonical {index, event, body, time, previous, sha256}: `previous` is the `sha256` of the
preceding line (64 zeros for the first) and `sha256` digests the other five. `time` is the machine's clock and
proves nothing. The chain reveals an edit, a swap and a removed line. Lines cut off the end are detected only
with a head that is stored elsewhere, so claim, seal and verdict each have count and head.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypedDict

from protocol.formats import canonical, fields, files, journal, line_endings
from protocol.formats.fields import ANYTHING, DIGEST, TIME, Choice, Field, Integer, MapOf, Table, Text
from protocol.formats.instruments import event_loaders
from protocol.formats.looks import GO_ON, STOP
from protocol.formats.refusals import AlreadyClaimed, BadInput, Tampered
from protocol.formats.registry import Registry

NAME = "ledger.jsonl"
CLOSING = ("verdict", "withdraw", "amended")

_NUMBER = Field(Integer(1), "The attempt, from 1.")
_RECORDS = Field(Integer(), "The number of records that it found.")
_REASON = Field(Text(), "Why.")
_CORE_EVENTS: Mapping[str, Field] = MappingProxyType(
    {
        "register": Field(Table({"lock": Field(DIGEST, "The lock.")}), "The study was locked."),
        "probe": Field(
            Table({"number": _NUMBER, "records": _RECORDS._replace(if_absent="some ledgers of version 1")}),
            "An attempt on the development problems began.",
        ),
        "probed": Field(
            Table(
                {
                    "records": Field(Integer(), "The number of the probe's records."),
                    "outcome": Field(DIGEST, "Their outcome."),
                    "trajectories": Field(DIGEST, "Digest of the side files that they cite."),
                }
            ),
            "The attempt came to its end.",
        ),
        "selection": Field(Table({"selection": Field(DIGEST, "It.")}), "The selection was written."),
        "claim": Field(Table({"claim": Field(DIGEST, "It.")}), "The claim was written."),
        "attempt": Field(Table({"number": _NUMBER, "records": _RECORDS}), "An attempt to confirm began."),
        "held-out": Field(
            Table({"task": Field(Text(), "The task."), "purpose": Field(Text(), "What for.")}),
            "Held-out problems were opened.",
        ),
        "look": Field(
            Table(
                {
                    "number": Field(Integer(1), "The number of the registered look."),
                    "problems": Field(Integer(1), "The number of held-out problems of each task that the look saw."),
                    "outcome": Field(DIGEST, "Digest of their records."),
                    "word": Field(Choice(GO_ON, STOP), "What the judging process said."),
                }
            ),
            "An interim look was made (`decision.looks`).",
        ),
        "outputs": Field(
            Table({"outputs": Field(DIGEST, "Their list.")}), "The output files of another harness were read."
        ),
        "seal": Field(Table({"seal": Field(DIGEST, "It.")}), "The seal was written."),
        "verdict": Field(Table({"sha256": Field(DIGEST, "Digest of its file.")}), "The verdict was written."),
        "withdraw": Field(
            Table({"reason": _REASON, "seen": Field(MapOf(ANYTHING), "What had been seen of the study before.")}),
            "The study was withdrawn.",
        ),
        "amended": Field(
            Table({"lock": Field(DIGEST, "Digest of the amendment's lock."), "reason": _REASON}),
            "Another study amends this one.",
        ),
    }
)
# The body and the meaning of each event, also of those of instruments.
EVENTS = Registry[Field](
    {**{event: partial(_CORE_EVENTS.__getitem__, event) for event in _CORE_EVENTS}, **event_loaders()}
)
FIELDS = Table(
    {
        "index": Field(Integer(), "The number of the line, from 0."),
        "event": Field(Choice(*EVENTS), "The event."),
        "body": Field(MapOf(ANYTHING), "The fields of the event."),
        "time": Field(TIME, "UTC time by the machine's clock; it proves nothing."),
        "previous": Field(DIGEST, "The sha256 of the previous line; 64 zeros in the first."),
        "sha256": Field(DIGEST, "SHA-256 of the canonical form of the other five fields."),
    }
)


@dataclass(frozen=True, slots=True)
class Entry:
    index: int
    event: str
    body: dict[str, Any]
    time: str
    previous: str
    sha256: str


class Head(TypedDict):
    """The state of the ledger in a document: the number of lines, and the sha256 of the last one."""

    count: int
    head: str


def append(folder: Path, event: str, body: Mapping[str, Any]) -> Entry:
    """Add one line; on return it is on disk.

    Raises Tampered when the existing lines do not verify, AlreadyClaimed when the ledger is closed.
    """
    _refuse_invalid(event, body)
    with journal.open_journal(folder / NAME, wait=True) as ledger_file:
        return _append(folder, ledger_file, event, body)


def ensure(folder: Path, event: str, body: Mapping[str, Any]) -> Entry:
    """Add the line unless it exists: a crash may have come between a document and its line."""
    _refuse_invalid(event, body)
    with journal.open_journal(folder / NAME, wait=True) as ledger_file:
        for entry in _parse_chain(ledger_file.lines.complete):
            if (entry.event, entry.body) == (event, body):
                return entry
        return _append(folder, ledger_file, event, body)


def read(folder: Path) -> list[Entry]:
    """Read every complete line and verify the chain. A torn last line is ignored: nobody acknowledged it."""
    try:
        data = files.read(folder / NAME, files.MAX_DOCUMENT_BYTES)
    except FileNotFoundError:
        raise Tampered(f"{NAME}: missing") from None
    line_endings.refuse_rewritten(NAME, data)
    return _parse_chain(journal.split_lines(data).complete)


def read_head(folder: Path) -> Head:
    return head_of(read(folder))


def count_events(folder: Path, event: str) -> int:
    """Return how many lines of `event` the ledger of `folder` has; 0 before there is a ledger."""
    return sum(entry.event == event for entry in read(folder)) if files.exists(folder / NAME) else 0


def last_attempt_records(folder: Path, event: str) -> int:
    """Return the number of records in the last ledger line of `event`, an event that begins attempts."""
    return int([entry.body["records"] for entry in read(folder) if entry.event == event][-1])


def closing_entry(entries: list[Entry]) -> Entry | None:
    """Return the entry that closed the ledger; None while it is open."""
    return entries[-1] if entries and entries[-1].event in CLOSING else None


def refuse_closed(folder: Path) -> None:
    """Raise AlreadyClaimed when the ledger of `folder` is closed; the message has the cause and the fix.

    Callers that write a document before its ledger line check this first, so that a refusal writes nothing.
    """
    _refuse_closed(folder, read(folder))


def head_of(entries: list[Entry]) -> Head:
    """Return count and head of a chain that ends with the last entry."""
    return {"count": len(entries), "head": entries[-1].sha256 if entries else journal.START}


def _refuse_closed(folder: Path, entries: list[Entry]) -> None:
    match closing_entry(entries):
        case Entry(event="verdict"):
            raise AlreadyClaimed(f"{folder}: the verdict closed it; to run it again: kv-prereg replicate {folder}")
        case Entry(event="withdraw", body=body):
            raise AlreadyClaimed(
                f"{folder}: was withdrawn ({body.get('reason')}); register another study in another folder"
            )
        case Entry(body=body):
            raise AlreadyClaimed(
                f"{folder}: was amended ({body.get('reason')}); continue with the study that has the lock "
                f"{body.get('lock')}"
            )


def _refuse_invalid(event: str, body: Mapping[str, Any]) -> None:
    """Raise BadInput for a body that is invalid for the event."""
    canonical.dumps(body)
    if wrong := _find_fault(event, body):
        raise BadInput(f"{NAME}: {wrong}")


def _find_fault(event: str, body: Mapping[str, Any]) -> str | None:
    """Return the fault of a `body` for `event`; None if it is valid."""
    if wrong := fields.find_fault(FIELDS.fields["event"].kind, event, "line.event"):
        return wrong
    return fields.find_fault(EVENTS[event].kind, body, f"line.body of {event!r}")


def _append(folder: Path, ledger_file: journal.Journal, event: str, body: Mapping[str, Any]) -> Entry:
    entries = _parse_chain(ledger_file.lines.complete)
    _refuse_closed(folder, entries)
    head = head_of(entries)
    time = datetime.now(UTC).isoformat(timespec="seconds")
    content: dict[str, Any] = {
        "index": head["count"],
        "event": event,
        "body": dict(body),
        "time": time,
        "previous": head["head"],
    }
    entry = Entry(**content, sha256=canonical.digest(content))
    ledger_file.append([canonical.dumps(asdict(entry))])
    return entry


def _parse_chain(lines: list[bytes]) -> list[Entry]:
    entries: list[Entry] = []
    for number, line in enumerate(lines, start=1):
        source = f"{NAME}:{number}"
        parsed = canonical.loads(line, source)
        if wrong := fields.find_fault(FIELDS, parsed, "line"):
            raise Tampered(f"{source}: {wrong}")
        entry = Entry(**parsed)
        del parsed["sha256"]
        if canonical.digest(parsed) != entry.sha256:
            raise Tampered(f"{source}: its digest does not match its fields; the line was edited")
        if {"count": entry.index, "head": entry.previous} != head_of(entries):
            raise Tampered(f"{source}: does not continue the line before; lines were removed, added or swapped")
        if closing := closing_entry(entries):
            raise Tampered(f"{source}: follows the line {closing.event!r}, which must be the last")
        if wrong := _find_fault(entry.event, entry.body):
            raise Tampered(f"{source}: {wrong}")
        entries.append(entry)
    return entries
