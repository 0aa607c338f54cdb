"""The seal: it states that every registered lane has exactly one record, and fixes their digests."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from protocol.evidence import ledger, records, registration
from protocol.evidence.records import Key, Record
from protocol.evidence.registration import Registration
from protocol.formats import canonical, document_fields, documents
from protocol.formats.citations import record_lock
from protocol.formats.refusals import AlreadyClaimed, BadInput, Tampered
from protocol.lock import lock
from protocol.lock.lock import Lock

NAME = registration.SEAL
MAX_LANES = 100_000_000  # a year of a large machine; each takes a byte here


def write(study: Registration) -> str:
    """Seal the records of a study, enter the seal in the ledger and return the digest of the outcome.

    Call it in `claim.exclusive_run`. Raises BadInput when a registered lane lacks its record, Tampered for an
    extra record or one that does not verify, AlreadyClaimed when there is a seal or the ledger is closed.
    """
    current = study.reopen()
    if current.has(NAME):
        raise AlreadyClaimed(f"{current.folder} is sealed already")
    ledger.refuse_closed(current.folder)
    if missing := missing_lanes(current.lock, current.due_items, current.confirm_records):
        raise BadInput(f"{len(missing)} registered records are missing, the first is {missing[0]}; run confirm again")
    content = make_content(current.reopen(), ledger.read_head(current.folder))
    folder = current.phase_folder("confirm")
    for path in records.list_side_files(folder) - records.cited_files(folder, current.confirm_records):
        path.unlink()  # its lane was killed before the record was written
    digest = documents.write(current.folder / NAME, content, document_fields.SEAL)
    ledger.append(current.folder, "seal", {"seal": digest})
    return str(content["outcome"])


def missing_lanes(locked: Lock, items: Mapping[str, Mapping[str, Any]], recorded: Iterable[Record]) -> list[Key]:
    """Return the registered lanes without a record. Every cell of the grid has all held-out ids of its task in `items`,
    those of the lock or of its looks so far.

    Raises Tampered for a record of another lane, phase or registration.
    """
    grid = locked.content["grid"]
    if (lanes := sum(len(items[task]["confirm"]) for _, task, *_ in grid)) > MAX_LANES:
        raise Tampered(f"{lock.NAME}: grid: {lanes:,} lanes, over the limit of {MAX_LANES:,}; no study has so many")
    positions = {
        task: {item: position for position, item in enumerate(sorted({*split["confirm"]}))}
        for task, split in items.items()
    }
    bitmaps = {
        (model, task, budget, arm, seed): bytearray(len(positions[task])) for model, task, budget, arm, seed in grid
    }
    for head in records.record_heads(recorded):
        lane = head.key
        bitmap, position = bitmaps.get(lane[:-1]), positions.get(lane.task, {}).get(lane.problem)
        if bitmap is None or position is None:
            raise Tampered(f"{lane}: has a record, but is not registered")
        if (head.registration, head.phase) != (record_lock(locked.content, locked.digest, lane.arm), "confirm"):
            raise Tampered(f"{lane}: its record belongs to another registration or phase")
        bitmap[position] = True
    return sorted(
        Key(*cell, item)
        for cell, bitmap in bitmaps.items()
        if not all(bitmap)
        for item, position in positions[cell[1]].items()
        if not bitmap[position]
    )


def make_content(study: Registration, head: ledger.Head) -> dict[str, Any]:
    """Return the content of a seal, computed from the other files. head: of the ledger before the seal.

    Raises Tampered for a torn shard and for a cited trajectory that is missing or damaged.
    """
    recorded, side_digests, claim = study.confirm_records, study.side_digests, study.claim
    states = Counter(head.state for head in records.record_heads(recorded))
    return {
        "kind": "kv-prereg seal",
        "version": 1,
        "lock": study.lock.digest,
        "claim": claim.digest,
        "ledger": head,
        "expected": len(recorded) + len(missing_lanes(study.lock, study.due_items, recorded)),
        "found": {state: states[state] for state in records.STATES},
        "shards": {name: _describe_shard(name, shard) for name, shard in study.shards.items()},
        "trajectories": {"count": len(side_digests), "digest": canonical.digest(side_digests)},
        "outcome": records.outcome_digest(recorded),
        **({"selection": claim.content["selection"]} if "selection" in claim.content else {}),
    }


def _describe_shard(name: str, content: records.ShardContent) -> dict[str, Any]:
    if content.torn:
        raise Tampered(f"{name}: ends in a torn line; run confirm again")
    return {"sha256": content.sha256, "bytes": content.size, "records": len(content.records)}
