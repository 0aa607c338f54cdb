"""The seal: every registered lane has its one record, and nothing changes from here on."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from protocol.evidence.bytes import canonical, documents, files, journal
from protocol.evidence.bytes.documents import Document as Seal
from protocol.evidence.bytes.fields import DIGEST, Field, MapOf, Table, Whole
from protocol.evidence.lock.lock import Lock
from protocol.evidence.refusals import AlreadyClaimed, BadInput, Tampered
from protocol.evidence.run import claim, ledger, records
from protocol.evidence.run.records import Key, Record

__all__ = ["FIELDS", "NAME", "Seal", "contents", "missing", "read", "write"]

NAME = claim.SEAL
_SHARD = Table(
    {
        "sha256": Field(DIGEST, "Of the file."),
        "bytes": Field(Whole(), "Its size."),
        "records": Field(Whole(), "Its lines."),
    }
)
_TRAJECTORIES = Table(
    {
        "count": Field(Whole(), "Files."),
        "digest": Field(DIGEST, "Of the canonical object of SHA-256 by file name."),
    }
)
FIELDS = documents.headed(
    "seal",
    {
        "lock": Field(DIGEST, "The lock."),
        "claim": Field(DIGEST, "The claim."),
        "ledger": Field(journal.HEAD, "The ledger before the seal."),
        "expected": Field(Whole(), "Registered lanes."),
        "found": Field(
            Table({state: Field(Whole(), "Records in this state.") for state in records.STATES}),
            "Records in each state; they sum to what was expected.",
        ),
        "shards": Field(MapOf(_SHARD), "Each shard, by file name."),
        "trajectories": Field(_TRAJECTORIES, "The side files that records cite."),
        "outcome": Field(DIGEST, "Digest of all bodies, sorted by key."),
        "selection": Field(DIGEST, "The selection.", without="no sweep"),
    },
)


def write(folder: Path, locked: Lock) -> str:
    """Seal the records of `folder`, enter it in the ledger and return the digest of the outcome.

    Call it inside `claim.running`. Raises BadInput when a registered lane lacks its record, Tampered for a
    record too many or one that does not verify, AlreadyClaimed when the seal is there or the ledger is
    closed.
    """
    if (folder / NAME).exists():
        raise AlreadyClaimed(f"{folder} is sealed already")
    ledger.refuse_closed(folder)
    place = folder / records.FOLDERS["confirm"]
    found = records.read(place)
    if absent := missing(locked, found):
        raise BadInput(f"{len(absent)} registered records are missing, first {absent[0]}; confirm again")
    content = contents(folder, locked, ledger.head(folder))
    for path in records.side_files(place) - records.cited(place, found):
        path.unlink()  # of a lane that was killed before its record was written
    digest = documents.write(folder / NAME, content, FIELDS)
    ledger.append(folder, "seal", {"seal": digest})
    return str(content["outcome"])


def read(folder: Path) -> Seal:
    return documents.read(folder / NAME, FIELDS)


def missing(locked: Lock, found: Iterable[Record]) -> list[Key]:
    """The registered lanes without a record. Every cell of the grid asks for every held-out id of its task.

    Raises Tampered for a record of another lane, phase or registration.
    """
    grid, items = locked.content["grid"], locked.content["items"]
    asked = {
        Key(model, task, budget, arm, seed, item)
        for model, task, budget, arm, seed in grid
        for item in items[task]["confirm"]
    }
    held = set()
    for record in found:
        body = record["body"]
        if (lane := records.key(body)) not in asked:
            raise Tampered(f"{lane}: has a record and is not registered")
        if (body["registration"], body["phase"]) != (locked.digest, "confirm"):
            raise Tampered(f"{lane}: its record is of another registration or phase")
        held.add(lane)
    return sorted(asked - held)


def contents(folder: Path, locked: Lock, head: ledger.Head) -> dict[str, Any]:
    """What a seal says when the ledger stands at `head`, computed from the other files.

    Raises Tampered for a torn shard and for a cited trajectory that is missing or damaged.
    """
    place = folder / records.FOLDERS["confirm"]
    found = records.read(place)
    states = Counter(record["body"]["state"] for record in found)
    sides = records.trajectories(place, found)
    taken = claim.read(folder, locked)
    return {
        "kind": "kv-prereg seal",
        "version": 1,
        "lock": locked.digest,
        "claim": taken.digest,
        "ledger": head,
        "expected": len(found) + len(missing(locked, found)),
        "found": {state: states[state] for state in records.STATES},
        "shards": {path.name: _shard(path) for path in records.shards(place)},
        "trajectories": {"count": len(sides), "digest": canonical.digest(sides)},
        "outcome": records.outcome_digest(found),
        **({"selection": taken.content["selection"]} if "selection" in taken.content else {}),
    }


def _shard(path: Path) -> dict[str, Any]:
    whole, torn = records.read_shard(path)
    if torn:
        raise Tampered(f"{path.name}: ends in a torn line; confirm again")
    return {"sha256": files.sha256(path), "bytes": path.stat().st_size, "records": len(whole)}
