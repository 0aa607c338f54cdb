"""S2: trunks, the contiguous units of eviction (CrystalCache, section 3.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from math import fsum
from statistics import median

from torch import Tensor

from policies.crystal.coattention import Edges

INTERFACE = 5  # Eq. 16


@dataclass(frozen=True)
class Adaptive:
    """A merge threshold computed from the text itself (F4 of the paper, which does not specify the form).

    The median strength of the interfaces between neighbouring sentences with at least one recorded edge, so
    that about half of them merge, for strong or weak co-attention.
    """

    def threshold(self, strengths: Sequence[float]) -> float:
        recorded = [strength for strength in strengths if strength > 0]
        return median(recorded) if recorded else 0.0


def build_trunks(
    parts: list[range], edges: Edges, merge_threshold: float | Adaptive, max_trunk: int
) -> tuple[range, ...]:
    """Return the spans of the trunks built from sentences, in order; none is longer than max_trunk."""
    merged = merge_sentences(parts, edges, merge_threshold, max_trunk)
    return tuple(piece for trunk in merged for piece in split_trunk(trunk, max_trunk))


def split_sentences(token_ids: Tensor, sentence_ends: Set[int], first: int = 0) -> list[range]:
    """Step 1: split into sentences. A sentence ends with its ending token; the rest forms a sentence too.

    token_ids [n], n >= 1; the positions of the spans are counted from `first`.
    """
    ids = token_ids.tolist()
    stops = [position + 1 for position, token in enumerate(ids) if token in sentence_ends]
    if not stops or stops[-1] < len(ids):
        stops.append(len(ids))
    return [range(first + start, first + stop) for start, stop in pairwise([0, *stops])]


def interface_strength(edges: Edges) -> Callable[[range, range], float]:
    """Eq. 16-18: return the function CAS of two neighbouring pieces of text, 0 without recorded edges.

    The mean runs over recorded entries (a, b) with a in the last five tokens of the left piece and b in the
    first five of the right one. Entries (b, a) are outside the window P as written, and not counted.
    """
    near = (edges.j > edges.i) & (edges.j - edges.i < 2 * INTERFACE)
    recorded = {(a, b): weight for a, b, weight in zip(*(column[near].tolist() for column in edges), strict=True)}

    def strength(left: range, right: range) -> float:
        weights = [recorded[a, b] for a in left[-INTERFACE:] for b in right[:INTERFACE] if (a, b) in recorded]
        return fsum(weights) / len(weights) if weights else 0.0

    return strength


def merge_sentences(parts: list[range], edges: Edges, threshold: float | Adaptive, max_trunk: int) -> list[range]:
    """Step 2, Eq. 19: one pass from left to right; a sentence joins the current trunk or starts a new one."""
    strength = interface_strength(edges)
    if isinstance(threshold, Adaptive):
        threshold = threshold.threshold([strength(*pair) for pair in pairwise(parts)])
    trunks = [parts[0]]
    for sentence in parts[1:]:
        trunk = trunks[-1]
        if strength(trunk, sentence) > threshold and len(trunk) + len(sentence) <= max_trunk:
            trunks[-1] = range(trunk.start, sentence.stop)
        else:
            trunks.append(sentence)
    return trunks


def split_trunk(trunk: range, max_trunk: int) -> list[range]:
    """Step 3: split into ceil(size / max_trunk) pieces of sizes that differ by at most one, longer ones first."""
    pieces = -(-len(trunk) // max_trunk)
    size, longer = divmod(len(trunk), pieces)
    stops = [trunk.start + k * size + min(k, longer) for k in range(pieces + 1)]
    return [range(start, stop) for start, stop in pairwise(stops)]
