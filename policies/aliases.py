"""Aliases: names that papers and other libraries use for policies of the catalogue, with hints."""

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["ALIASES"]

READ_SELECTION = (
    "it chooses what a step reads and evicts nothing, so it is no policy here; kv-prereg policies lists all"
)
ORACLE = "it keeps what the labels of kv-prereg anatomy say was needed, which no policy can know"
ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "h20": "h2o",
        "heavy-hitter": "h2o",
        "heavy-hitter-oracle": "h2o",
        "streamingllm": "streaming",
        "attention-sinks": "streaming",
        "sinks": "streaming",
        "sink": "streaming",
        "sliding-window": 'write "streaming": the first slots and the latest',
        "window": 'write "streaming": the first slots and the latest',
        **dict.fromkeys(("none", "baseline", "no-eviction", "full-cache", "fullkv", "dense"), "full"),
        "adakv": "ada-snapkv",
        "ada-kv": "ada-snapkv",
        "crystalcache": "crystal",
        "expected": "expected-attention",
        **dict.fromkeys(("oracle-occlusion", "oracle"), ORACLE),
        **dict.fromkeys(("quest", "infinigen", "minference", "nsa", "shadowkv"), READ_SELECTION),
    }
)
