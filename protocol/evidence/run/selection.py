"""selection.json: the candidate of a sweep to confirm, chosen by the committed rule before the claim."""

from collections.abc import Mapping
from typing import Any

from protocol.evidence.bytes import documents, files
from protocol.evidence.bytes.documents import Document
from protocol.evidence.refusals import BadInput, Tampered
from protocol.evidence.run import document_fields, ledger, records, registration
from protocol.evidence.run.registration import SHELVES, Registration

__all__ = ["NAME", "adopt", "digest", "inherited", "made", "parent", "read", "verify", "write"]

NAME = registration.SELECTION


def inherited(study: Registration) -> str | None:
    """Return the digest of the selection that a replication takes from its parent; otherwise None."""
    digest: str | None = (study.parent or {}).get("selection")
    return digest


def parent(study: Registration) -> Registration | None:
    """Return the parent of a replication; None where it is missing.

    It is the folder in registrations/ or replications/ with the name and the lock that this lock names.
    """
    named = study.lock.content["parent"]
    for shelf in SHELVES:
        beside = Registration(study.folder.resolve().parent.parent / shelf / named["name"])
        if beside.locked_as(named["lock"]):
            return beside
    return None


def made(study: Registration) -> bool:
    """Return whether the selection was written, after which no lane is probed again.

    Raises Tampered when it does not verify, or when only the ledger has it.
    """
    now = study.anew()
    if now.has(NAME):
        verify(now)
        return True
    if now.has(ledger.NAME) and now.count("selection"):
        raise Tampered(f"{NAME}: missing, and the ledger has its line; restore the file")
    return False


def write(study: Registration, selected: Mapping[str, Any]) -> None:
    """Write the selection from the probe's records, once, and enter it in the ledger.

    A repeated call with the same selection completes what a crash interrupted, or does nothing. Another
    selection raises Tampered, since the same records have one winner under the same rule.
    """
    now = study.anew()
    if now.has(NAME):
        if verify(now).content["selected"] != selected:
            raise Tampered(f"{NAME}: holds another selection from the same records")
    else:
        ledger.refuse_closed(now.folder)
        content = {
            "kind": "kv-prereg selection",
            "version": 1,
            "lock": now.lock.digest,
            "probe": records.outcome_digest(now.probed),
            "selected": selected,
            "ledger": ledger.head(now.folder),
        }
        documents.write(now.folder / NAME, content, document_fields.SELECTION)
    _enter(now)


def adopt(study: Registration, parent: Registration) -> None:
    """Copy the selection of the `parent` that this replication's lock names, byte for byte."""
    now = study.anew()
    if not now.has(NAME):
        ledger.refuse_closed(now.folder)
        files.create(now.folder / NAME, files.read(parent.folder / NAME))
    verify(now)
    _enter(now)


def read(study: Registration) -> Document:
    """Return the selection that may be confirmed.

    Raises BadInput without one, Tampered when it belongs to another lock, the ledger cites another selection,
    or the probe's records are not those that it was made from.
    """
    if not study.has(NAME):
        raise BadInput(f"{study.folder} has no selection; run: kv-prereg probe {study.folder}")
    verified = verify(study)
    lines = [entry.body for entry in study.entries if entry.event == "selection"]
    if not lines:
        raise BadInput(f"{study.folder}: selecting was cut off; run again: kv-prereg probe {study.folder}")
    if lines != [{"selection": verified.digest}]:
        raise Tampered(f"{ledger.NAME}: its selection line cites another {NAME}")
    return verified


def verify(study: Registration) -> Document:
    """Return selection.json if it belongs to this lock (or the replication's parent) and the probe's records.

    Raises Tampered otherwise.
    """
    selection = study.selection
    if of_parent := inherited(study):
        if selection.digest != of_parent:
            raise Tampered(f"{NAME}: is not the parent's, {of_parent}")
        return selection
    if selection.content.get("lock") != study.lock.digest:
        raise Tampered(f"{NAME}: names another lock than {study.lock.digest}")
    if selection.content.get("probe") != records.outcome_digest(study.probed):
        raise Tampered(f"{NAME}: rests on other probe records than those that are here")
    return selection


def digest(study: Registration) -> dict[str, str]:
    """Return the fields of a claim about the selection: its digest, or none without a sweep."""
    return {"selection": read(study).digest} if study.swept else {}


def _enter(study: Registration) -> None:
    ledger.ensure(study.folder, "selection", {"selection": study.selection.digest})
