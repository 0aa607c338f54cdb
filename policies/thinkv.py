"""ThinKV's eviction: the type of thought of a segment determines how many slots the segment keeps.

Ramachandran et al., "ThinKV: Thought-Adaptive KV Cache Compression for Efficient Reasoning Models"
(arXiv:2510.01290), which published no code, in the form in which EpiKV (arXiv:2606.26472, section 2 and
Appendix D) compares with it: budgets of 64, 32 and 8 slots, and only the eviction of ThinKV.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import torch
from torch import Tensor

from policies.cadence import Cadence
from policies.calibrated import Calibrated, Thresholds
from policies.contract import (
    Allocation,
    InBands,
    Routing,
    Rows,
    Scores,
    Scoring,
    Segments,
    Signal,
    View,
)
from policies.epikv import Epiphany
from policies.h2o import AccumulatedAttention
from policies.policy import Policy
from policies.protect import Preserve
from policies.routing import PerHead, Shared
from policies.signals import EveryLayer, calibrated, of_all_layers

__all__ = [
    "SEGMENT",
    "SegmentsPerHead",
    "SegmentsShared",
    "Sparsity",
    "Thoughts",
    "Whenever",
    "WithinSegments",
    "segment_hs",
    "segment_means",
    "shares",
    "sparsity",
    "thinkv",
    "thought_variants",
    "thoughts",
]

SEGMENT = 128
"""Tokens of a segment: the interval between classifications by sparsity, tau of ThinKV."""
EXECUTION, REASONING, TRANSITION = range(3)
"""Types of thought, from the least to the most sparse."""


@dataclass(frozen=True)
class Sparsity(EveryLayer):
    """The attention sparsity of each token fed: [1, t] of every layer, the mean of its query heads.

    Only the calibrated thresholds specify which layers count, so all layers are read: 4 bytes per layer and
    token. The heads of a layer must hold the same number of slots.
    """

    window: ClassVar[None] = None
    of_tokens: ClassVar[bool] = True

    def attend(self, rows: Rows, before: Tensor | None) -> Tensor:
        own = sparsity(rows.attention).mean(-2, keepdim=True)
        return own if before is None else torch.cat([before, own], -1)


def sparsity(attention: Tensor, share: float = 0.01) -> Tensor:
    """attention [..., row, slot], causal, 0 where masked -> [..., row]: the fraction of a row's visible slots
    with less than `share` of its largest weight (ThinKV, section 4.1).
    """
    rows, slots = attention.shape[-2:]
    seen = torch.arange(slots - rows + 1, slots + 1, device=attention.device)
    below = (attention < share * attention.amax(-1, keepdim=True)).sum(-1) - (slots - seen)
    share_of_row: Tensor = below.to(attention.dtype) / seen
    return share_of_row


def segment_means(values: Tensor, size: int) -> Tensor:
    """values [..., t] of the tokens of an answer -> [..., t // size], the mean of each complete segment."""
    whole = values.shape[-1] // size
    return values[..., : whole * size].reshape(*values.shape[:-1], whole, size).mean(-1)


def thoughts(sparse: Tensor, low: float, high: float) -> Tensor:
    """Mean sparsity [segment] -> int64 [segment]: EXECUTION below `low`, TRANSITION from `high` on."""
    return (sparse >= low).long() + (sparse >= high).long()


@dataclass(frozen=True)
class Thoughts:
    """The scores of `base`, and the segments within which slots compete.

    A segment is `size` tokens of the answer, counted from its first token. It is classified once it is
    complete, by the mean sparsity of its tokens over the calibrated layers, for all layers and heads alike.
    Sparsity is measured over the slots stored when a token is fed; thresholds come from the full cache.

    reasoning, execution, transition: slots that a segment of this type keeps in each head, in addition to the
        protected ones.
    least: if the budget requires fewer, a segment is reduced to this number before the open one loses any.
    statistics: the name under which the thresholds were calibrated.
    """

    base: Scoring
    size: int = SEGMENT
    reasoning: int = 64
    execution: int = 32
    transition: int = 8
    least: int = 4
    statistics: str = "thoughts"

    def __post_init__(self) -> None:
        kept = (self.reasoning, self.execution, self.transition, self.least)
        if self.size < 1 or min(kept) < 0:
            raise ValueError(f"size must be 1 or more and slots 0 or more, not {self.size} and {kept}")

    @property
    def needs(self) -> frozenset[Signal]:
        return self.base.needs | {Sparsity(), Calibrated(self.statistics, Thresholds)}

    def refuse_depth(self, layers: int) -> None:
        if isinstance(self.base, InBands):
            self.base.refuse_depth(layers)

    def kinds(self, view: View) -> Tensor:
        """Return the type of thought of each closed segment, int64, oldest first."""
        known = calibrated(view, self.statistics, Thresholds)
        layers = of_all_layers(view, Sparsity())
        sparse = torch.cat([layers[layer] for layer in known.layers])[:, view.prompt :].mean(0)
        return thoughts(segment_means(sparse, self.size), known.low, known.high)

    def segments(self, view: View, kinds: Tensor) -> Segments:
        kept = torch.tensor((self.execution, self.reasoning, self.transition), device=kinds.device)
        answer = (view.positions - view.prompt).div(self.size, rounding_mode="floor")
        of = torch.where(view.positions < view.prompt, 0, 1 + answer)
        return Segments(of, kept[kinds], self.least)

    def score(self, view: View) -> Scores:
        segments = self.segments(view, self.kinds(view))
        return self.base.score(view)._replace(segments=segments)


def shares(held: Tensor, protected: Tensor, segments: Segments, total: Tensor | int) -> Tensor:
    """Return how many slots a head keeps of the prompt, of each closed segment and of the open one, int64.

    segment_slots, protected [..., segment]: how many it holds of each, and how many of these are protected.
    total [...] or a number: the maximum that it keeps, at least the protected ones.

    Protected slots stay. In addition, a closed segment keeps its budget, and the prompt and the open segment
    keep all their slots. If that exceeds `total`, competing slots are halved: those of the prompt, then of
    the closed segments from the oldest on, in repeated rounds, none to fewer than `least`, and the last only
    as far as needed. Then the open segment is reduced, and finally the others to 0, oldest first. ThinKV
    specifies the ladder 64, 32, 16, 8, 4 and that the oldest are reduced first; the rounds, the order of the
    prompt and the last step are ours.
    """
    asked = held - protected
    asked[..., 1:-1] = asked[..., 1:-1].minimum(segments.budgets)
    over = (protected.sum(-1) + asked.sum(-1) - total).clamp(min=0)
    closed = torch.arange(held.shape[-1], device=held.device) < held.shape[-1] - 1
    while (given := taken((asked - (asked // 2).clamp(min=segments.least)) * closed, over)).any():
        asked, over = asked - given, over - given.sum(-1)
    given = taken(asked * ~closed, over)
    asked, over = asked - given, over - given.sum(-1)
    return protected + asked - taken(asked, over)


def taken(most: Tensor, over: Tensor) -> Tensor:
    """Take `excess` [...] slots from the first segments, at most `available` [..., segment] from each."""
    most = most.clamp(min=0)
    before = most.cumsum(-1) - most
    return most.minimum((over[..., None] - before).clamp(min=0))


def counted(slots: Tensor, segments: Segments) -> Tensor:
    """slots, bool [layer, kv_head, n] -> int64 [layer, kv_head, segment], the number in each segment."""
    counts = torch.zeros(*slots.shape[:2], len(segments.budgets) + 2, dtype=torch.int64, device=slots.device)
    place = of_sets(slots, segments).clamp(0, counts.shape[-1] - 1)
    return counts.scatter_add(-1, place, slots.long())


def of_sets(slots: Tensor, segments: Segments) -> Tensor:
    """Return the segment of each slot [layer, kv_head, n]. Heads that share a set hold the same slots."""
    layers, kv_heads, _ = slots.shape
    return segments.of[:layers, :kv_heads].expand(slots.shape)


def shares_of(scores: Scores, protected: Tensor, total: Tensor | int) -> tuple[Tensor, Tensor]:
    """Return the slots of each [layer, kv_head, segment], and how many of them to keep (`segment_shares`)."""
    if scores.segments is None:
        raise ValueError("scores have no segments: choose a scoring that has, such as Thoughts")
    there = scores.slots > -torch.inf
    held = counted(there, scores.segments)
    return held, shares(held, counted(there & protected, scores.segments), scores.segments, total)


class Segmented:
    """Allocate to each keep set the sum of the shares of its segments."""

    bounds: ClassVar[bool] = True

    def allocate(self, view: View, scores: Scores, protected: Tensor, budget: int) -> Allocation:
        return Allocation(shares_of(scores, protected, budget)[1].sum(-1))


@dataclass(frozen=True)
class SegmentsPerHead(Segmented, PerHead):
    """A separate keep set for each layer and KV head."""


@dataclass(frozen=True)
class SegmentsShared(Segmented, Shared):
    """One keep set, chosen by the mean score, for all layers and heads."""


@dataclass(frozen=True)
class WithinSegments:
    """The protected slots and, of each segment, the highest scores up to its share."""

    needs: ClassVar[frozenset[Signal]] = frozenset()
    unused: ClassVar[int] = 0

    def select(self, view: View, scores: Scores, protected: Tensor, allocation: Tensor) -> Tensor:
        held, kept = shares_of(scores, protected, allocation)
        slots, there = scores.slots, scores.slots > -torch.inf
        assert scores.segments is not None
        last = held.shape[-1]
        of = of_sets(slots, scores.segments).masked_fill(~there, last)
        ranked = slots.masked_fill(protected, torch.inf).argsort(stable=True, descending=True)
        ranked = ranked.gather(-1, of.gather(-1, ranked).argsort(stable=True))
        segment = of.gather(-1, ranked)
        none = torch.zeros_like(held[..., :1])
        starts = torch.cat([held.cumsum(-1) - held, none], -1).gather(-1, segment)
        place = torch.arange(slots.shape[-1], device=slots.device) - starts
        within = place < torch.cat([kept, none], -1).gather(-1, segment)
        return torch.zeros_like(there).scatter(-1, ranked, within & (segment < last))


@dataclass(frozen=True)
class Whenever(Cadence):
    """Evict every `interval` steps, even if the cache does not exceed the budget."""

    interval: int | None = SEGMENT

    def due(self, step: int, held: float, budget: int) -> bool:
        return self.interval is not None and step > 0 and step % self.interval == 0


def by_thoughts(base: Scoring, routing: Routing, *, prompt: bool) -> Policy:
    """Build a policy with thought segments. prompt: whether the prompt is preserved."""
    return Policy(
        scoring=Thoughts(base),
        selection=WithinSegments(),
        routing=routing,
        cadence=Whenever(),
        protect=Preserve(prompt=prompt),
    )


def thinkv() -> Policy:
    """Keep 64, 32 or 8 slots of each segment of 128 tokens, for reasoning, execution or transition: those
    with the largest accumulated attention. The last min(128, K/4) slots also stay.

    That may be far less than the budget K, and is never more. As in EpiKV's comparison, the prompt is not
    protected. Since ThinKV evicts only generated tokens, and its memory formula counts the full prompt, the
    complete prompt stays if K allows it; otherwise it is reduced first (`segment_shares`): ours. Also ours:
    sparsity is the mean over query heads, and each KV head ranks its slots by the attention received since
    their token was fed, where ThinKV clusters keys. Departs from ThinKV: the budgets are those of EpiKV
    instead of one ladder for all types, a transition does not shrink earlier segments, and nothing is
    quantised. Eviction happens every 128 steps for any registered interval; between two steps a lane grows by
    as many slots.
    """
    return by_thoughts(AccumulatedAttention(), SegmentsPerHead(), prompt=False)


def segment_hs() -> Policy:
    """Segment-HS (EpiKV, Table 1: "ThinKV seg. + HS rank"): the segments and budgets of `thinkv`, with slots
    ranked by the score of `epikv`, the change of the residual stream.

    The paper specifies neither the score of "HS rank" nor the protection. Ours: z_10 - z_21, and a protected
    prompt as in the methods of that paper.
    """
    return by_thoughts(Epiphany(), SegmentsShared(), prompt=True)


def thought_variants() -> Mapping[str, Policy]:
    """Return the policies by name."""
    return MappingProxyType({"thinkv": thinkv(), "segment-hs": segment_hs()})
