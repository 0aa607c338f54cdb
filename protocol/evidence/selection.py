"""selection.json: which candidate of a sweep is confirmed, by the committed rule, before the claim."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import documents, files, ledger, records
from .documents import Document as Selection
from .lock import Lock
from .refusals import BadInput, Tampered

__all__ = ["NAME", "Selection", "adopt", "digest", "outcome", "read", "swept", "verify", "write"]

NAME = "selection.json"


def swept(locked: Lock) -> bool:
    """Whether the registration has a sweep, so that confirming it needs a selection."""
    return "sweep" in locked.content["protocol"]["content"]


def write(folder: Path, locked: Lock, selected: Mapping[str, Any]) -> None:
    """Write the selection that rests on the probe's records, once, and enter it in the ledger.

    Again with the same selection it completes what a crash cut off, or does nothing; with another one it
    raises Tampered, since the same records have one winner under the same rule.
    """
    if (folder / NAME).exists():
        if verify(folder, locked).content["selected"] != selected:
            raise Tampered(f"{NAME}: holds another selection from the same records")
    else:
        content = {
            "kind": "kv-prereg selection",
            "version": 1,
            "lock": locked.digest,
            "probe": outcome(folder),
            "selected": selected,
            "ledger": ledger.head(folder),
        }
        documents.write(folder / NAME, content)
    _enter(folder)


def adopt(folder: Path, parent: Path, locked: Lock) -> None:
    """Take over the selection of the `parent` that this replication's lock names, byte for byte."""
    if not (folder / NAME).exists():
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
    found = documents.read(folder / NAME)
    if inherited := (locked.content.get("parent") or {}).get("selection"):
        if found.digest != inherited:
            raise Tampered(f"{NAME}: is not the parent's, {inherited}")
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
