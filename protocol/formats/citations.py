"""The names of what a study cites: arms whose records an earlier study decoded, see protocol.evidence.citations."""

from collections.abc import Mapping
from typing import Any

FIELD = "cite"  # the table of protocol.toml: by arm the name of a study beside this one
CITES = "cites"  # the field of a lock: by arm the name, lock and seal of a study; of a claim: seals by lock
CITED_BY = "cited_by"  # the field of a claim: locks of studies that cited this one before it was claimed
CITED_SHARD = "shard-cited.jsonl"


def list_cited_locks(content: Mapping[str, Any]) -> set[str]:
    """Return the locks that a lock with this content cites."""
    return {entry["lock"] for entry in content.get(CITES, {}).values()}


def record_lock(content: Mapping[str, Any], digest: str, arm: str) -> str:
    """Return the lock that the records of an arm name: that of the study itself, or the one that is cited for it.

    digest: of the lock with this content.
    """
    return str(content.get(CITES, {}).get(arm, {}).get("lock", digest))
