"""The ledger: one chained line for every operation on a registration, in chronological order.

A line is the canonical {index, event, body, time, previous, sha256}: `previous` is the `sha256` of the
preceding line (64 zeros for the first) and `sha256` digests the other five. `time` is the machine's clock and
proves nothing. The chain reveals an edit, a swap and a removed line. Lines cut off the end are detected only
with a head that is stored elsewhere, so claim, seal and verdict each have count and head.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypedDict

from protocol.evidence.bytes import canonical, fields, files, journal, line_endings
from protocol.evidence.bytes.fields import ANYTHING, DIGEST, Choice, Field, MapOf, Table, Text, Whole
from protocol.evidence.refusals import AlreadyClaimed, BadInput, Tampered

NAME = "ledger.jsonl"
CLOSING = ("verdict", "withdraw", "amended")

TIME = Text(r"[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}\+00:00", "a time like 2026-11-22T09:30:00+00:00")
_NUMBER = Field(Whole(1), "The attempt, from 1.")
_RECORDS = Field(Whole(), "Records that it found.")
_REASON = Field(Text(), "Why.")
# The body and the meaning of each event.
EVENTS: Mapping[str, Field] = MappingProxyType(
    {
        "register": Field(Table({"lock": Field(DIGEST, "The lock.")}), "The study was locked."),
        "probe": Field(
            Table({"number": _NUMBER, "records": _RECORDS._replace(without="before 2026-11-22")}),
            "An attempt on the development problems began.",
        ),
        "probed": Field(
            Table(
                {
                    "records": Field(Whole(), "The probe's records."),
                    "outcome": Field(DIGEST, "Their outcome."),
                    "trajectories": Field(DIGEST, "Of the side files that they cite."),
                }
            ),
            "The attempt came to its end.",
        ),
        "cost": Field(
            Table(
                {
                    "number": _NUMBER,
                    "machine": Field(Text(), "The file of its machine."),
                    "records": Field(Whole(), "Repetitions that it found there."),
                }
            ),
            "An attempt to measure time and memory began.",
        ),
        "costed": Field(
            Table(
                {
                    "machine": Field(Text(), "The file of its machine."),
                    "records": Field(Whole(), "Repetitions in it."),
                    "head": Field(DIGEST, "The chain of its last line."),
                }
            ),
            "The attempt came to its end.",
        ),
        "anatomy": Field(
            Table({"number": _NUMBER, "records": Field(Whole(), "Traces that it found.")}),
            "An attempt to label traces began.",
        ),
        "occluded": Field(
            Table(
                {
                    "records": Field(Whole(), "Traces."),
                    "head": Field(DIGEST, "The chain of the last line."),
                }
            ),
            "The attempt came to its end.",
        ),
        "anatomy-chosen": Field(
            Table({"chosen": Field(DIGEST, "It.")}), "A signal and layer were chosen on one half."
        ),
        "anatomy-judged": Field(
            Table({"verdict": Field(DIGEST, "It.")}), "What the other half says of them was written."
        ),
        "selection": Field(Table({"selection": Field(DIGEST, "It.")}), "The selection was written."),
        "claim": Field(Table({"claim": Field(DIGEST, "It.")}), "The claim was written."),
        "attempt": Field(Table({"number": _NUMBER, "records": _RECORDS}), "An attempt to confirm began."),
        "held-out": Field(
            Table({"task": Field(Text(), "Of which task."), "purpose": Field(Text(), "What for.")}),
            "Held-out problems were opened.",
        ),
        "seal": Field(Table({"seal": Field(DIGEST, "It.")}), "The seal was written."),
        "verdict": Field(Table({"sha256": Field(DIGEST, "Of its file.")}), "The verdict was written."),
        "withdraw": Field(
            Table({"reason": _REASON, "seen": Field(MapOf(ANYTHING), "What had been seen.")}),
            "The study was withdrawn.",
        ),
        "amended": Field(
            Table({"lock": Field(DIGEST, "Of the amendment."), "reason": _REASON}),
            "Another study amends this one.",
        ),
    }
)
FIELDS = Table(
    {
        "index": Field(Whole(), "Its place, from 0."),
        "event": Field(Choice(*EVENTS), "What was done."),
        "body": Field(MapOf(ANYTHING), "What the event says."),
        "time": Field(TIME, "UTC by the clock of the machine; it proves nothing."),
        "previous": Field(DIGEST, "The sha256 of the line before; 64 zeros for the first."),
        "sha256": Field(DIGEST, "Of the canonical other five."),
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
    _refuse_other(event, body)
    with journal.opened(folder / NAME, wait=True) as lines:
        return _append(folder, lines, event, body)


def ensure(folder: Path, event: str, body: Mapping[str, Any]) -> Entry:
    """Add the line unless it exists: a crash may have come between a document and its line."""
    _refuse_other(event, body)
    with journal.opened(folder / NAME, wait=True) as lines:
        for entry in _chain(lines.lines.whole):
            if (entry.event, entry.body) == (event, body):
                return entry
        return _append(folder, lines, event, body)


def read(folder: Path) -> list[Entry]:
    """Read every complete line and verify the chain. A torn last line is ignored: nobody acknowledged it."""
    try:
        data = files.read(folder / NAME, files.MOST_OF_A_DOCUMENT)
    except FileNotFoundError:
        raise Tampered(f"{NAME}: missing") from None
    line_endings.refuse_rewritten(NAME, data)
    return _chain(journal.split(data).whole)


def head(folder: Path) -> Head:
    return at(read(folder))


def count(folder: Path, event: str) -> int:
    """Return how many lines of `event` the ledger of `folder` has; 0 before there is a ledger."""
    return sum(entry.event == event for entry in read(folder)) if files.there(folder / NAME) else 0


def found(folder: Path, event: str) -> int:
    """Return the number of records in the last ledger line of `event`, an event that begins attempts."""
    return int([entry.body["records"] for entry in read(folder) if entry.event == event][-1])


def closing(entries: list[Entry]) -> Entry | None:
    """Return the entry that closed the ledger; None while it is open."""
    return entries[-1] if entries and entries[-1].event in CLOSING else None


def refuse_closed(folder: Path) -> None:
    """Raise AlreadyClaimed when the ledger of `folder` is closed; the message has the cause and the fix.

    Callers that write a document before its ledger line check this first, so that a refusal writes nothing.
    """
    _refuse_closed(folder, read(folder))


def at(entries: list[Entry]) -> Head:
    """Return count and head of a chain that ends with the last entry."""
    return {"count": len(entries), "head": entries[-1].sha256 if entries else journal.START}


def _refuse_closed(folder: Path, entries: list[Entry]) -> None:
    match closing(entries):
        case Entry(event="verdict"):
            raise AlreadyClaimed(
                f"{folder}: the verdict closed it; to run it again: kv-prereg replicate {folder}"
            )
        case Entry(event="withdraw", body=body):
            raise AlreadyClaimed(
                f"{folder}: was withdrawn ({body.get('reason')}); register another study in another folder"
            )
        case Entry(body=body):
            raise AlreadyClaimed(
                f"{folder}: was amended ({body.get('reason')}); go on with the lock {body.get('lock')}"
            )


def _refuse_other(event: str, body: Mapping[str, Any]) -> None:
    """Raise BadInput for a body that is invalid for the event."""
    canonical.dumps(body)
    if wrong := _other(event, body):
        raise BadInput(f"{NAME}: {wrong}")


def _other(event: str, body: Mapping[str, Any]) -> str | None:
    """Return the fault of a `body` for `event`; None if it is valid."""
    if wrong := fields.fault(FIELDS.fields["event"].kind, event, "line.event"):
        return wrong
    return fields.fault(EVENTS[event].kind, body, f"line.body of {event!r}")


def _append(folder: Path, lines: journal.Journal, event: str, body: Mapping[str, Any]) -> Entry:
    entries = _chain(lines.lines.whole)
    _refuse_closed(folder, entries)
    tip = at(entries)
    time = datetime.now(UTC).isoformat(timespec="seconds")
    signed: dict[str, Any] = {
        "index": tip["count"],
        "event": event,
        "body": dict(body),
        "time": time,
        "previous": tip["head"],
    }
    entry = Entry(**signed, sha256=canonical.digest(signed))
    lines.append([canonical.dumps(asdict(entry))])
    return entry


def _chain(lines: list[bytes]) -> list[Entry]:
    entries: list[Entry] = []
    for number, line in enumerate(lines, start=1):
        where = f"{NAME}:{number}"
        parsed = canonical.loads(line, where)
        if wrong := fields.fault(FIELDS, parsed, "line"):
            raise Tampered(f"{where}: {wrong}")
        entry = Entry(**parsed)
        del parsed["sha256"]
        if canonical.digest(parsed) != entry.sha256:
            raise Tampered(f"{where}: its digest is not that of its fields; the line was edited")
        if {"count": entry.index, "head": entry.previous} != at(entries):
            raise Tampered(f"{where}: does not follow the line before; lines were removed, added or swapped")
        if closed := closing(entries):
            raise Tampered(f"{where}: follows the line {closed.event!r}, after which nothing is added")
        if wrong := _other(entry.event, entry.body):
            raise Tampered(f"{where}: {wrong}")
        entries.append(entry)
    return entries
