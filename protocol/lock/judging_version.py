"""Which rules of judging a lock says: field `judging`.

Rules of judging that would change the word or a sentence of a study that was judged get a number of their own. What
ships keeps the rules that it was judged by, and so does a run of the same protocol.
"""

from collections.abc import Mapping
from typing import Any

from protocol.formats.vocabulary import CURRENT_JUDGING
from protocol.lock import version_1

__all__ = ["choose_judging"]

SECOND = frozenset(
    {
        "c2222c08e075bfc45edd89c710db090aaea003c125a00650890e6022101639f6",  # crystal-retrieval-3
        "c44430b1f44d8cb78801640adcd48ffdafd4a8281aa63f7d180707f1fe768832",  # alpha-chain on fresh problems
    }
)
"""The SHA-256 of the protocol.toml of what was judged by the rules of number 2."""


def choose_judging(parent: Mapping[str, Any] | None, protocol: str) -> int:
    """Return the rules of judging of a study. parent: the field of its lock; protocol: the SHA-256 of its file."""
    if version_1.is_replicated(parent, protocol):
        return 1
    return 2 if protocol in SECOND else CURRENT_JUDGING
