"""selection.json: which candidate of a sweep is confirmed, by the committed rule, before the claim."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protocol.evidence.bytes import documents, files, journal
from protocol.evidence.bytes.documents import Document as Selection
from protocol.evidence.bytes.fields import DIGEST, Field, Table, Text
from protocol.evidence.lock import lock
from protocol.evidence.lock.lock import Lock
from protocol.evidence.refusals import BadInput, Tampered
from protocol.evidence.run import ledger, records

__all__ = [
    "FIELDS",
    "NAME",
    "Selection",
    "adopt",
    "digest",
    "inherited",
    "made",
    "outcome",
    "parent",
    "read",
    "swept",
    "verify",
    "write",
]

NAME = "selection.json"
_SELECTED = Table({"winner": Field(Text(), "The candidate.")}, others=True)
FIELDS = documents.headed(
    "selection",
    {
        "lock": Field(DIGEST, "The lock."),
        "probe": Field(DIGEST, "The outcome of the probe's records."),
        "selected": Field(_SELECTED, "What the committed rule of selection prints."),
        "ledger": Field(journal.HEAD, "The ledger before the selection."),
    },
)


def swept(locked: Lock) -> bool:
    """Whether the registration has a sweep, so that confirming it needs a selection."""
    return "sweep" in locked.content["protocol"]["content"]


def inherited(locked: Lock) -> str | None:
    """The digest of the selection that a replication takes from its parent; otherwise None."""
    digest: str | None = (locked.content.get("parent") or {}).get("selection")
    return digest


def parent(folder: Path, locked: Lock) -> Path | None:
    """The parent of the replication in `folder`: the folder in registrations/ or replications/ beside that
    has the name and the lock that this lock names; None where there is none.
    """
    named = locked.content["parent"]
    for shelf in ("registrations", "replications"):
        place: Path = folder.resolve().parent.parent / shelf / named["name"]
        if (place / lock.NAME).is_file() and lock.read(place).digest == named["lock"]:
            return place
    return None


def made(folder: Path, locked: Lock) -> bool:
    """Whether the selection was written, after which no lane is probed again. Raises Tampered when it does
    not verify, or when only the ledger still has it.
    """
    if (folder / NAME).exists():
        verify(folder, locked)
        return True
    if ledger.count(folder, "selection"):
        raise Tampered(f"{NAME}: missing, and the ledger has its line; restore the file")
    return False


def write(folder: Path, locked: Lock, selected: Mapping[str, Any]) -> None:
    """Write the selection that rests on the probe's records, once, and enter it in the ledger.

    Again with the same selection it completes what a crash cut off, or does nothing; with another one it
    raises Tampered, since the same records have one winner under the same rule.
    """
    if (folder / NAME).exists():
        if verify(folder, locked).content["selected"] != selected:
            raise Tampered(f"{NAME}: holds another selection from the same records")
    else:
        ledger.refuse_closed(folder)
        content = {
            "kind": "kv-prereg selection",
            "version": 1,
            "lock": locked.digest,
            "probe": outcome(folder),
            "selected": selected,
            "ledger": ledger.head(folder),
        }
        documents.write(folder / NAME, content, FIELDS)
    _enter(folder)


def adopt(folder: Path, parent: Path, locked: Lock) -> None:
    """Take over the selection of the `parent` that this replication's lock names, byte for byte."""
    if not (folder / NAME).exists():
        ledger.refuse_closed(folder)
        files.create(folder / NAME, (parent / NAME).read_bytes())
    verify(folder, locked)
    _enter(folder)


def read(folder: Path, locked: Lock) -> Selection:
    """The selection that may be confirmed. Raises BadInput without one, Tampered when it is not this lock's,
    the ledger cites another, or the probe's records are others than those it rests on.
    """
    if not (folder / NAME).exists():
        raise BadInput(f"{folder} has no selection; run: python -m protocol.probe {folder}")
    found = verify(folder, locked)
    lines = [entry.body for entry in ledger.read(folder) if entry.event == "selection"]
    if not lines:
        raise BadInput(f"{folder}: selecting was cut off; run again: python -m protocol.probe {folder}")
    if lines != [{"selection": found.digest}]:
        raise Tampered(f"{ledger.NAME}: its selection line cites another {NAME}")
    return found


def verify(folder: Path, locked: Lock) -> Selection:
    """selection.json as it is, if it belongs to this lock (or to the parent of this replication) and to the
    probe's records; raises Tampered otherwise.
    """
    found = documents.read(folder / NAME, FIELDS)
    if parents := inherited(locked):
        if found.digest != parents:
            raise Tampered(f"{NAME}: is not the parent's, {parents}")
        return found
    if found.content.get("lock") != locked.digest:
        raise Tampered(f"{NAME}: names another lock than {locked.digest}")
    if found.content.get("probe") != outcome(folder):
        raise Tampered(f"{NAME}: rests on other probe records than those that are here")
    return found


def digest(folder: Path, locked: Lock) -> dict[str, str]:
    """What a claim keeps of it: its digest, or nothing without a sweep."""
    return {"selection": read(folder, locked).digest} if swept(locked) else {}


def outcome(folder: Path) -> str:
    """The outcome digest of the probe's records."""
    return records.outcome_digest(records.read(folder / records.FOLDERS["probe"]))


def _enter(folder: Path) -> None:
    ledger.ensure(folder, "selection", {"selection": documents.read(folder / NAME).digest})
