"""The seal: it states that every registered lane has exactly one record, and fixes their digests."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from protocol.evidence.bytes import canonical, documents
from protocol.evidence.lock.lock import Lock
from protocol.evidence.refusals import AlreadyClaimed, BadInput, Tampered
from protocol.evidence.run import document_fields, ledger, records, registration
from protocol.evidence.run.records import Key, Record
from protocol.evidence.run.registration import Registration

__all__ = ["NAME", "contents", "missing", "write"]

NAME = registration.SEAL


def write(study: Registration) -> str:
    """Seal the records of a study, enter the seal in the ledger and return the digest of the outcome.

    Call it in `claim.exclusive_run`. Raises BadInput when a registered lane lacks its record, Tampered for an
    extra record or one that does not verify, AlreadyClaimed when there is a seal or the ledger is closed.
    """
    now = study.anew()
    if now.has(NAME):
        raise AlreadyClaimed(f"{now.folder} is sealed already")
    ledger.refuse_closed(now.folder)
    if absent := missing(now.lock, now.confirmed):
        raise BadInput(f"{len(absent)} registered records are missing, first {absent[0]}; confirm again")
    content = contents(now.anew(), ledger.head(now.folder))
    place = now.place("confirm")
    for path in records.side_files(place) - records.cited(place, now.confirmed):
        path.unlink()  # its lane was killed before the record was written
    digest = documents.write(now.folder / NAME, content, document_fields.SEAL)
    ledger.append(now.folder, "seal", {"seal": digest})
    return str(content["outcome"])


def missing(locked: Lock, recorded: Iterable[Record]) -> list[Key]:
    """Return the registered lanes without a record. Every cell of the grid has all held-out ids of its task.

    Raises Tampered for a record of another lane, phase or registration.
    """
    grid, items = locked.content["grid"], locked.content["items"]
    places = {
        task: {item: at for at, item in enumerate(sorted({*one["confirm"]}))} for task, one in items.items()
    }
    done = {
        (model, task, budget, arm, seed): bytearray(len(places[task]))
        for model, task, budget, arm, seed in grid
    }
    for head in records.heads(recorded):
        lane = head.key
        own, at = done.get(lane[:-1]), places.get(lane.task, {}).get(lane.problem)
        if own is None or at is None:
            raise Tampered(f"{lane}: has a record and is not registered")
        if (head.registration, head.phase) != (locked.digest, "confirm"):
            raise Tampered(f"{lane}: its record is of another registration or phase")
        own[at] = True
    return sorted(
        Key(*cell, item)
        for cell, own in done.items()
        if not all(own)
        for item, at in places[cell[1]].items()
        if not own[at]
    )


def contents(study: Registration, head: ledger.Head) -> dict[str, Any]:
    """Return the content of a seal, computed from the other files. head: of the ledger before the seal.

    Raises Tampered for a torn shard and for a cited trajectory that is missing or damaged.
    """
    confirmed, sides, claim = study.confirmed, study.sides, study.claim
    states = Counter(head.state for head in records.heads(confirmed))
    return {
        "kind": "kv-prereg seal",
        "version": 1,
        "lock": study.lock.digest,
        "claim": claim.digest,
        "ledger": head,
        "expected": len(confirmed) + len(missing(study.lock, confirmed)),
        "found": {state: states[state] for state in records.STATES},
        "shards": {name: _shard(name, read) for name, read in study.shards.items()},
        "trajectories": {"count": len(sides), "digest": canonical.digest(sides)},
        "outcome": records.outcome_digest(confirmed),
        **({"selection": claim.content["selection"]} if "selection" in claim.content else {}),
    }


def _shard(name: str, read: records.Read) -> dict[str, Any]:
    if read.torn:
        raise Tampered(f"{name}: ends in a torn line; confirm again")
    return {"sha256": read.sha256, "bytes": read.size, "records": len(read.records)}
