"""The fields of selection, claim, seal and verdict, from which their JSON Schemas in docs/ are generated."""

from protocol.evidence.bytes.documents import headed
from protocol.evidence.bytes.fields import DIGEST, Field, MapOf, Table, Text, Whole
from protocol.evidence.bytes.journal import HEAD
from protocol.evidence.run.record_fields import STATES

__all__ = ["CLAIM", "SEAL", "SELECTION", "VERDICT"]

_LOCK = Field(DIGEST, "The lock.")
_SELECTION = Field(DIGEST, "The selection.", without="no sweep")
_DRAWN = Table(
    {
        "source": Field(Text(), "What brought the value."),
        "value": Field(Text(), "The value, in hex."),
        "key": Field(DIGEST, "HMAC-SHA256 of it, keyed with the lock's digest."),
        "signature": Field(Text(), "The auditor's, of a nonce.", without="no nonce"),
        "height": Field(Whole(), "Of the block whose hash it is.", without="no block"),
    }
)
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

SELECTION = headed(
    "selection",
    {
        "lock": _LOCK,
        "probe": Field(DIGEST, "The outcome of the probe's records."),
        "selected": Field(
            Table({"winner": Field(Text(), "The candidate.")}, others=True),
            "What the committed rule of selection prints.",
        ),
        "ledger": Field(HEAD, "The ledger before the selection."),
    },
)
CLAIM = headed(
    "claim",
    {
        "lock": _LOCK,
        "ledger": Field(HEAD, "The ledger before the claim."),
        "selection": _SELECTION,
        "randomness": Field(_DRAWN, "The late value.", without="seeds and problems as registered"),
    },
)
SEAL = headed(
    "seal",
    {
        "lock": _LOCK,
        "claim": Field(DIGEST, "The claim."),
        "ledger": Field(HEAD, "The ledger before the seal."),
        "expected": Field(Whole(), "Registered lanes."),
        "found": Field(
            Table({state: Field(Whole(), "Records in this state.") for state in STATES}),
            "Records in each state; they sum to what was expected.",
        ),
        "shards": Field(MapOf(_SHARD), "Each shard, by file name."),
        "trajectories": Field(_TRAJECTORIES, "The side files that records cite."),
        "outcome": Field(DIGEST, "Digest of all bodies, sorted by key."),
        "selection": _SELECTION,
    },
)
VERDICT = Table(
    {
        "judged": Field(
            Table({"verdict": Field(Text(), "The word.")}, others=True), "What the committed rule prints."
        ),
        "lock": _LOCK,
        "seal": Field(DIGEST, "The seal."),
        "ledger": Field(HEAD, "The ledger before the verdict."),
    }
)
