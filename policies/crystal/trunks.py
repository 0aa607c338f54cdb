"""S2: trunks, the contiguous units of eviction (CrystalCache, section 3.3)."""

from __future__ import annotations

from collections.abc import Set
from itertools import pairwise
from math import fsum

from torch import Tensor

from policies.crystal.coattention import Edges

__all__ = ["build", "merge", "sentences", "split"]

INTERFACE = 5  # Eq. 16


def build(
    token_ids: Tensor, sentence_ends: Set[int], edges: Edges, merge_threshold: float, max_trunk: int
) -> tuple[range, ...]:
    """Spans of the trunks, in order, together 0..n-1; none is longer than max_trunk."""
    merged = merge(sentences(token_ids, sentence_ends), edges, merge_threshold, max_trunk)
    return tuple(piece for trunk in merged for piece in split(trunk, max_trunk))


def sentences(token_ids: Tensor, sentence_ends: Set[int]) -> list[range]:
    """Step 1. A sentence ends with its ending token; what follows the last one is a sentence too."""
    ids = token_ids.tolist()
    stops = [position + 1 for position, token in enumerate(ids) if token in sentence_ends]
    if not stops or stops[-1] < len(ids):
        stops.append(len(ids))
    return [range(start, stop) for start, stop in pairwise([0, *stops])]


def merge(parts: list[range], edges: Edges, threshold: float, max_trunk: int) -> list[range]:
    """Step 2, Eq. 16-19: one pass from left to right; a sentence joins the running trunk or starts the next.

    The mean runs over recorded entries (a, b) with a in the trunk's last five tokens and b in the sentence's
    first five. Entries (b, a) are not in the window P as written, and not counted.
    """
    near = (edges.j > edges.i) & (edges.j - edges.i < 2 * INTERFACE)
    recorded = {
        (a, b): weight for a, b, weight in zip(*(column[near].tolist() for column in edges), strict=True)
    }
    trunks = [parts[0]]
    for sentence in parts[1:]:
        trunk = trunks[-1]
        weights = [
            recorded[a, b] for a in trunk[-INTERFACE:] for b in sentence[:INTERFACE] if (a, b) in recorded
        ]
        strength = fsum(weights) / len(weights) if weights else 0.0
        if strength > threshold and len(trunk) + len(sentence) <= max_trunk:
            trunks[-1] = range(trunk.start, sentence.stop)
        else:
            trunks.append(sentence)
    return trunks


def split(trunk: range, max_trunk: int) -> list[range]:
    """Step 3: ceil(size / max_trunk) pieces whose sizes differ by at most one, the longer ones first."""
    pieces = -(-len(trunk) // max_trunk)
    size, longer = divmod(len(trunk), pieces)
    stops = [trunk.start + k * size + min(k, longer) for k in range(pieces + 1)]
    return [range(start, stop) for start, stop in pairwise(stops)]
