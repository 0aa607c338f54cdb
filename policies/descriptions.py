"""The families of policies, in the order of the listing. What a policy keeps stands in its file: see
`protocol.formats.policy_facts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "controls": "references for the comparison with other policies",
        "positions": "position of a token",
        "attention": "attention of queries",
        "stored": "content of keys and values",
        "crystalcache": "CrystalCache: trunks of text, its ablations and extensions",
        "triattention": "TriAttention's modes, and gates that start from them",
        "crystal-kv": "Crystal-KV: slots to which attention returns",
        "thoughts": "segments of an answer, by the kind of thought",
        "epikv": "EpiKV: how much a token changed the model's state, and the methods that its paper compares",
    }
)
"""Families of policies by name, in the order of the listing."""
