"""Which rules of judging a lock says: field `judging`.

Rules of judging that would change the word or a sentence of a study that was judged get a number of their own. What
ships keeps the rules that it was judged by, and so does a reproduction that cites it. A new study of the same protocol
is judged by today's: by number 3, or 4 where `slip` is registered, from which on its questions and that of the chosen
signal share one alpha. 4 differs in nothing else, so that what ships by 3 without `slip` needs no list.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from protocol.formats.instruments import INSTRUMENTS
from protocol.formats.vocabulary import CURRENT_JUDGING, SHARED_ALPHA_JUDGING
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
THIRD: Mapping[str, str] = MappingProxyType(
    {
        "a586bafeadc3f968613113ab01d1d7b0555b9a9bf4b57e0f872a71a2294edc97": (  # think-answer
            "936445b788692ab7b89ceef78274648195640242c0dc2ed2fc4bb96c8e125d21"
        ),
        "95c7a0de850a7a99278faff8ed30190613840b8f7021e3c04822c5cef753f8af": (  # think-answer-2
            "9802fe9fd8e7312ae77cb4af832952e30fdf19ca5e70bade95e91e7e2cc30ec1"
        ),
    }
)
"""Likewise of the locks with `slip` that are judged by the rules of number 3."""


def choose_judging(parent: Mapping[str, Any] | None, protocol: str, content: Mapping[str, Any]) -> int:
    """Return the rules of a study that is no shipped one. parent: the field of its lock; protocol: its SHA-256;
    content: what was read from it.
    """
    if version_1.is_replicated(parent, protocol):
        return 1
    if parent is not None and not parent.get("fresh"):
        for number, shipped in ((2, SECOND), (3, THIRD)):
            if shipped.get(parent["lock"]) == protocol:
                return number
    has_slip = any("slip" in content.get(instrument.name, {}) for instrument in INSTRUMENTS)
    return SHARED_ALPHA_JUDGING if has_slip else CURRENT_JUDGING


def shipped_judging(digest: str) -> dict[str, int]:
    """Return the field `judging` of a shipped study by the digest of its lock; none where today's rules hold."""
    return {"judging": 2} if digest in SECOND else {"judging": 3} if digest in THIRD else {}
