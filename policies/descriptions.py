"""The families of policies, in the order of the listing. What a policy keeps stands in its file: see
`protocol.formats.policy_facts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "controls": "what the others are measured against",
        "positions": "where a token stands",
        "attention": "what queries attend to",
        "stored": "what keys and values look like",
        "crystalcache": "CrystalCache: trunks of text, its ablations and extensions",
        "triattention": "TriAttention's modes, and gates that start from them",
        "crystal-kv": "Crystal-KV: what attention comes back to",
        "thoughts": "segments of an answer, by the kind of thought",
        "epikv": "EpiKV: how much a token changed the model's state, and what it compares with",
    }
)
"""Families of policies by name, in the order of the listing."""
