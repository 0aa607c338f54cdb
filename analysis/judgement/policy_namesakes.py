"""Policies whose name another paper uses for a different method, and sentences about the difference."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

# Policy -> the method of this name in the CrystalCache paper (its Eq. 6, section 4.3 and section 2.2).
_CHUNKS = "CrystalCache's ChunkKV sums a chunk's attention over all queries (its Eq. 6), not over the last 32"
NAMESAKES: Mapping[str, str] = MappingProxyType(
    {
        "chunkkv": _CHUNKS,
        "chunkkv-20": _CHUNKS,
        "pyramidkv": (
            "CrystalCache's PyramidKV scores by the attention of all queries (its section 4.3), not of the last 32"
        ),
        "scissorhands": (
            "CrystalCache's Scissorhands is H2O over a sliding window (its section 2.2), not a count of low scores"
        ),
    }
)


def describe_namesakes(lock: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each such policy of a study, without duplicates."""
    used = {arm.get("policy") for arm in lock["protocol"]["content"].get("arms", {}).values()}
    return list(dict.fromkeys(sentence for policy, sentence in NAMESAKES.items() if policy in used))
