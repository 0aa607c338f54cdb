"""selection.json: the candidate of a sweep to confirm, chosen by the committed rule before the claim."""

from collections.abc import Mapping
from typing import Any

from protocol.evidence import ledger, records, registration
from protocol.evidence.registration import Registration
from protocol.formats import document_fields, documents, files
from protocol.formats.documents import Document
from protocol.formats.refusals import BadInput, Tampered

NAME = registration.SELECTION


def inherited_digest(study: Registration) -> str | None:
    """Return the digest of the selection that a replication takes from its parent; otherwise None."""
    digest: str | None = (study.parent or {}).get("selection")
    return digest


def is_written(study: Registration) -> bool:
    """Return whether the selection was written, after which no lane is probed again.

    Raises Tampered when it does not verify, or when only the ledger has it.
    """
    current = study.reopen()
    if current.has(NAME):
        verify(current)
        return True
    if current.has(ledger.NAME) and current.count_events("selection"):
        raise Tampered(f"{NAME}: missing, although the ledger has a line for it; restore the file")
    return False


def write(study: Registration, selected: Mapping[str, Any]) -> None:
    """Write the selection from the probe's records, once, and enter it in the ledger.

    A repeated call with the same selection completes what a crash interrupted, or does nothing. Another
    selection raises Tampered, since the same records have one winner under the same rule.
    """
    current = study.reopen()
    if current.has(NAME):
        if verify(current).content["selected"] != selected:
            raise Tampered(f"{NAME}: contains a different selection from the same records")
    else:
        ledger.refuse_closed(current.folder)
        content = {
            "kind": "kv-prereg selection",
            "version": 1,
            "lock": current.lock.digest,
            "probe": records.outcome_digest(current.probe_records),
            "selected": selected,
            "ledger": ledger.read_head(current.folder),
        }
        documents.write(current.folder / NAME, content, document_fields.SELECTION)
    _enter(current)


def adopt(study: Registration, parent: Registration) -> None:
    """Copy the selection of the `parent` that this replication's lock names, byte for byte."""
    current = study.reopen()
    if not current.has(NAME):
        ledger.refuse_closed(current.folder)
        files.create(current.folder / NAME, files.read(parent.folder / NAME))
    verify(current)
    _enter(current)


def read(study: Registration) -> Document:
    """Return the selection that may be confirmed.

    Raises BadInput without one, Tampered when it belongs to another lock, the ledger cites another selection,
    or the probe's records are not those that it was made from.
    """
    if not study.has(NAME):
        raise BadInput(f"{study.folder} has no selection; run: kv-prereg probe {study.folder}")
    verified = verify(study)
    bodies = [entry.body for entry in study.entries if entry.event == "selection"]
    if not bodies:
        raise BadInput(f"{study.folder}: selecting was interrupted; run again: kv-prereg probe {study.folder}")
    if bodies != [{"selection": verified.digest}]:
        raise Tampered(f"{ledger.NAME}: its selection line cites a different {NAME}")
    return verified


def verify(study: Registration) -> Document:
    """Return selection.json if it belongs to this lock (or the replication's parent) and the probe's records.

    Raises Tampered otherwise.
    """
    selection = study.selection
    if parent_digest := inherited_digest(study):
        if selection.digest != parent_digest:
            raise Tampered(f"{NAME}: differs from the parent's, {parent_digest}")
        return selection
    if selection.content.get("lock") != study.lock.digest:
        raise Tampered(f"{NAME}: names a lock other than {study.lock.digest}")
    if selection.content.get("probe") != records.outcome_digest(study.probe_records):
        raise Tampered(f"{NAME}: was computed from probe records other than those in this folder")
    return selection


def claim_fields(study: Registration) -> dict[str, str]:
    """Return the fields of a claim about the selection: its digest, or none without a sweep."""
    return {"selection": read(study).digest} if study.has_sweep else {}


def cite_parent(parent: Registration, *, is_fresh: bool) -> dict[str, Any]:
    """Return the field `parent` of the lock of a reproduction or, if it is fresh, of a replication."""
    reference = {"name": parent.name, "lock": parent.lock.digest, **claim_fields(parent)}
    return reference | ({"fresh": True} if is_fresh else {})


def _enter(study: Registration) -> None:
    ledger.ensure(study.folder, "selection", {"selection": study.selection.digest})
