"""The fields of selection, claim, seal and verdict, from which their JSON Schemas in docs/ are generated."""

from protocol.formats import citations
from protocol.formats.documents import declare_document
from protocol.formats.fields import DIGEST, Field, Integer, ListOf, MapOf, Table, Text
from protocol.formats.journal import HEAD
from protocol.formats.record_fields import STATES

_LOCK = Field(DIGEST, "The lock.")
_SELECTION = Field(DIGEST, "The selection.", if_absent="no sweep")
_DRAWN = Table(
    {
        "source": Field(Text(), "The source of the value."),
        "value": Field(Text(), "The value, in hex."),
        "key": Field(DIGEST, "HMAC-SHA256 of the value, keyed with the lock's digest."),
        "signature": Field(Text(), "The auditor's signature of a nonce.", if_absent="no nonce"),
        "height": Field(Integer(), "Height of the block whose hash is the value.", if_absent="no block"),
    }
)
_SHARD = Table(
    {
        "sha256": Field(DIGEST, "Digest of the file."),
        "bytes": Field(Integer(), "Its size."),
        "records": Field(Integer(), "Its lines."),
    }
)
_TRAJECTORIES = Table(
    {
        "count": Field(Integer(), "Files."),
        "digest": Field(DIGEST, "SHA-256 of the canonical object that maps file names to their SHA-256."),
    }
)

SELECTION = declare_document(
    "selection",
    {
        "lock": _LOCK,
        "probe": Field(DIGEST, "Digest of the probe's records."),
        "selected": Field(
            Table({"winner": Field(Text(), "The candidate.")}, allow_extra=True),
            "The output of the committed rule of selection.",
        ),
        "ledger": Field(HEAD, "The ledger's head before the selection."),
    },
)
CLAIM = declare_document(
    "claim",
    {
        "lock": _LOCK,
        "ledger": Field(HEAD, "The ledger's head before the claim."),
        "selection": _SELECTION,
        "randomness": Field(_DRAWN, "The late value.", if_absent="seeds and problems as registered"),
        citations.CITES: Field(
            MapOf(DIGEST, min_length=1, expected="an object of seals by lock"),
            "Seals of cited studies, by lock.",
            if_absent="none",
        ),
        citations.CITED_BY: Field(
            ListOf(DIGEST, 1),
            "Locks of studies in the same parent folder that cite this lock, which shows that this lock is older.",
            if_absent="none",
        ),
        "witness": Field(
            MapOf(DIGEST, min_length=1, expected="the proofs of the lock"),
            "SHA-256 of the proofs of the lock, by file name.",
            if_absent="there was no proof",
        ),
    },
)
SEAL = declare_document(
    "seal",
    {
        "lock": _LOCK,
        "claim": Field(DIGEST, "The claim."),
        "ledger": Field(HEAD, "The ledger's head before the seal."),
        "expected": Field(Integer(), "Registered lanes."),
        "found": Field(
            Table({state: Field(Integer(), "The number of records in this state.") for state in STATES}),
            "The number of records in each state; the numbers sum to the number of registered lanes.",
        ),
        "shards": Field(MapOf(_SHARD), "The shards, by file name."),
        "trajectories": Field(_TRAJECTORIES, "The side files that records cite, by file name."),
        "outcome": Field(DIGEST, "Digest of the bodies of all records, sorted by key."),
        "selection": _SELECTION,
    },
)
VERDICT = Table(
    {
        "judged": Field(
            Table({"verdict": Field(Text(), "The word.")}, allow_extra=True), "The output of the committed rule."
        ),
        "lock": _LOCK,
        "seal": Field(DIGEST, "The seal."),
        "ledger": Field(HEAD, "The ledger's head before the verdict."),
    }
)
