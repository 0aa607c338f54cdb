"""ChunkKV: keep or drop neighbouring slots together (arXiv:2502.00299)."""

from __future__ import annotations

from policies.policy import Policy
from policies.protect import Protect
from policies.routing import PerLayer
from policies.selection import Chunks
from policies.snapkv import WindowAttention
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "chunkkv": PolicyFacts(
        "attention",
        "the last window, and whole chunks of 10 that it attends to",
        "arXiv:2502.00299",
        "Whole chunks carry meaning that single tokens lose.",
    ),
    "chunkkv-20": PolicyFacts(
        "attention",
        "as chunkkv, but chunks of 20",
        "arXiv:2502.00299",
        "Chunks of 20 carry more meaning than chunks of 10.",
        parent="chunkkv",
        component="selection",
    ),
}


def chunkkv(size: int = 10, window: int = 32) -> Policy:
    """Keep the last `window` slots and the chunks that they attend to most, one set for the heads of a layer.

    The paper's chunk size is 10, that of ChunkKVPress (NVIDIA/kvpress 0.5.5) is 20; the window is that of
    `snapkv`. Departs from the paper: chunks rank by the mean of their slots instead of the sum, which differs
    only for a chunk that the window cuts short; the last selected chunk is cut so that the budget is met
    exactly; no layer reuses the set of another. Departs from ChunkKVPress: scores are not pooled, and the
    window is outside the chunks instead of raising the chunks that it overlaps.

    The CrystalCache paper calls another policy ChunkKV: its Eq. 6 sums the attention from all queries, not
    only from the question at the end of the prompt.
    """
    return Policy(
        scoring=WindowAttention(window, kernel=1),
        selection=Chunks(size),
        routing=PerLayer(),
        protect=Protect(sinks=0, recent=window),
    )
