"""Which rules of judging a lock says: field `judging`.

Rules of judging that would change the word or a sentence of a study that was judged get a number of their own. What
ships keeps the rules that it was judged by, and so does a reproduction that cites it. A new study of the same protocol
is judged by today's.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from protocol.formats.vocabulary import CURRENT_JUDGING
from protocol.lock import version_1

FRESH_PROTOCOL = "c44430b1f44d8cb78801640adcd48ffdafd4a8281aa63f7d180707f1fe768832"
SECOND: Mapping[str, str] = MappingProxyType(
    {
        "1d3c7580cdfdbda0c019c16040f1f46ec621a3fe0e5328ffa7381404103be2fc": (  # crystal-retrieval-3
            "c2222c08e075bfc45edd89c710db090aaea003c125a00650890e6022101639f6"
        ),
        "4353160c24278cd29ed73ae6289c7e3752ef77f35c6458440ba1eb5f311b8c91": FRESH_PROTOCOL,  # alpha-chain-fresh-001
        "2af3c5e6cfa91c7d3c3885865db0413c556299eb9052a94210dd3fda8abdb3ff": FRESH_PROTOCOL,  # alpha-chain-fresh-002
    }
)
"""The digests of the locks that were judged by the rules of number 2, each with the SHA-256 of its protocol.toml."""


def choose_judging(parent: Mapping[str, Any] | None, protocol: str) -> int:
    """Return the rules of a study that is no shipped one. parent: the field of its lock; protocol: its SHA-256."""
    if version_1.is_replicated(parent, protocol):
        return 1
    is_reproduction = parent is not None and not parent.get("fresh") and SECOND.get(parent["lock"]) == protocol
    return 2 if is_reproduction else CURRENT_JUDGING
