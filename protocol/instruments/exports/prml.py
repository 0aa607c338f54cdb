"""A lock as a Pre-Registered ML Manifest, PRML 0.1 (https://spec.falsify.dev/v0.1), in JSON, which `falsify` locks.

A manifest has one metric and one threshold. Ours is the verdict: 1 if the locked rule says CONFIRMED, else 0, with the
digest of the lock, which has the rule, in the notes. So a manifest shows that a lock was there, and holds no more.
"""

import uuid
from datetime import datetime
from typing import Any

from protocol.evidence.registration import Registration
from protocol.formats import canonical


def build_manifest(study: Registration) -> dict[str, Any]:
    """Return the manifest of a locked study; equal for equal files."""
    locked, registered = study.lock, study.entries[0]
    content = locked.content
    seeds = content["protocol"]["content"]["seeds"]
    return {
        "version": "prml/0.1",
        "claim_id": _make_id(registered.time, locked.digest),
        "created_at": registered.time,
        "metric": "kv-prereg verdict: 1 if the locked rule says CONFIRMED, else 0",
        "comparator": "==",
        "threshold": 1.0,
        "dataset": {"id": ", ".join(content["items"]), "hash": canonical.digest(content["items"])},
        "seed": seeds[0] if len(seeds) == 1 and "randomness" not in content["protocol"]["content"] else None,
        "producer": {"id": f"kv-prereg {content['name']}"},
        "notes": f"lock.json sha256 {locked.digest}; rule {content['rule']['name']}",
    }


def _make_id(time: str, digest: str) -> str:
    """Return a UUID of version 7: the milliseconds of a time in ISO 8601, and bits of a digest."""
    milliseconds = round(datetime.fromisoformat(time).timestamp() * 1000)
    bits = (milliseconds << 80) | (7 << 76) | (int(digest[:3], 16) << 64) | (2 << 62) | (int(digest[3:19], 16) >> 2)
    return str(uuid.UUID(int=bits))
