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

from policies.cadence import Cadence, Fires
from policies.calibration import Calibrated, Thresholds
from policies.contract import Allocation, AttentionRows, LayerBands, Routing, Scores, Scoring, Segments, Signal, View
from policies.epikv import Epiphany
from policies.h2o import AccumulatedAttention
from policies.policy import Policy
from policies.protect import Preserve
from policies.routing import PerHead, Shared
from policies.signals import EveryLayer, read_calibration, read_signal
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "segment-hs": PolicyFacts(
        "epikv",
        "as thinkv, but slots of a segment are ranked by the score of epikv",
        "Kolawole and Smith, arXiv:2606.26472",
        "Segments of thought need budgets, and within them epiphanies should be kept.",
    ),
    "thinkv": PolicyFacts(
        "thoughts",
        "from each segment, as many slots as its kind of thought deserves",
        "arXiv:2510.01290",
        "Kinds of thought deserve different numbers of slots.",
    ),
}

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

    def attend(self, rows: AttentionRows, before: Tensor | None) -> Tensor:
        new = sparsity(rows.attention).mean(-2, keepdim=True)
        return new if before is None else torch.cat([before, new], -1)


def sparsity(attention: Tensor, share: float = 0.01) -> Tensor:
    """attention [..., row, slot], causal, 0 where masked -> [..., row]: the fraction of a row's visible slots
    with less than `share` of its largest weight (ThinKV, section 4.1).
    """
    rows, slots = attention.shape[-2:]
    visible = torch.arange(slots - rows + 1, slots + 1, device=attention.device)
    below = (attention < share * attention.amax(-1, keepdim=True)).sum(-1) - (slots - visible)
    share_of_row: Tensor = below.to(attention.dtype) / visible
    return share_of_row


def segment_means(values: Tensor, size: int) -> Tensor:
    """values [..., t] of the tokens of an answer -> [..., t // size], the mean of each complete segment."""
    count = values.shape[-1] // size
    return values[..., : count * size].reshape(*values.shape[:-1], count, size).mean(-1)


def classify_thoughts(sparse: Tensor, low: float, high: float) -> Tensor:
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
        slots = (self.reasoning, self.execution, self.transition, self.least)
        if self.size < 1 or min(slots) < 0:
            raise ValueError(f"size must be 1 or more and slots 0 or more, not {self.size} and {slots}")

    @property
    def needs(self) -> frozenset[Signal]:
        return self.base.needs | {Sparsity(), Calibrated(self.statistics, Thresholds)}

    def refuse_depth(self, layers: int) -> None:
        if isinstance(self.base, LayerBands):
            self.base.refuse_depth(layers)

    def kinds(self, view: View) -> Tensor:
        """Return the type of thought of each closed segment, int64, oldest first."""
        thresholds = read_calibration(view, self.statistics, Thresholds)
        layers = read_signal(view, Sparsity())
        sparse = torch.cat([layers[layer] for layer in thresholds.layers])[:, view.prompt :].mean(0)
        return classify_thoughts(segment_means(sparse, self.size), thresholds.low, thresholds.high)

    def segments(self, view: View, kinds: Tensor) -> Segments:
        budgets = torch.tensor((self.execution, self.reasoning, self.transition), device=kinds.device)
        answer = (view.positions - view.prompt).div(self.size, rounding_mode="floor")
        segment_ids = torch.where(view.positions < view.prompt, 0, 1 + answer)
        return Segments(segment_ids, budgets[kinds], self.least)

    def score(self, view: View) -> Scores:
        segments = self.segments(view, self.kinds(view))
        return self.base.score(view)._replace(segments=segments)


def segment_shares(segment_slots: Tensor, protected: Tensor, segments: Segments, total: Tensor | int) -> Tensor:
    """Return how many slots a head keeps of the prompt, of each closed segment and of the open one, int64.

    segment_slots, protected [..., segment]: how many it holds of each, and how many of these are protected.
    total [...] or a number: the maximum that it keeps, at least the protected ones.

    Protected slots stay. In addition, a closed segment keeps its budget, and the prompt and the open segment keep all
    their slots. If that exceeds `total`, competing slots are halved: those of the prompt, then of the closed segments
    from the oldest on, in repeated rounds, none to fewer than `least`, and the last only as far as needed. Then the
    open segment is reduced, and finally the others to 0, oldest first. ThinKV specifies the ladder 64, 32, 16, 8, 4 and
    that the oldest are reduced first; the rounds, the order of the prompt and the last step are ours.
    """
    competing = segment_slots - protected
    competing[..., 1:-1] = competing[..., 1:-1].minimum(segments.budgets)
    excess = (protected.sum(-1) + competing.sum(-1) - total).clamp(min=0)
    is_closed = torch.arange(segment_slots.shape[-1], device=segment_slots.device) < segment_slots.shape[-1] - 1
    while (
        reduction := take_oldest_first((competing - (competing // 2).clamp(min=segments.least)) * is_closed, excess)
    ).any():
        competing, excess = competing - reduction, excess - reduction.sum(-1)
    reduction = take_oldest_first(competing * ~is_closed, excess)
    competing, excess = competing - reduction, excess - reduction.sum(-1)
    return protected + competing - take_oldest_first(competing, excess)


def take_oldest_first(available: Tensor, excess: Tensor) -> Tensor:
    """Take `excess` [...] slots from the first segments, at most `available` [..., segment] from each."""
    available = available.clamp(min=0)
    before = available.cumsum(-1) - available
    return available.minimum((excess[..., None] - before).clamp(min=0))


def count_by_segment(slots: Tensor, segments: Segments) -> Tensor:
    """slots, bool [layer, kv_head, n] -> int64 [layer, kv_head, segment], the number in each segment."""
    counts = torch.zeros(*slots.shape[:2], len(segments.budgets) + 2, dtype=torch.int64, device=slots.device)
    index = slot_segments(slots, segments).clamp(0, counts.shape[-1] - 1)
    return counts.scatter_add(-1, index, slots.long())


def slot_segments(slots: Tensor, segments: Segments) -> Tensor:
    """Return the segment of each slot [layer, kv_head, n]. Heads that share a set hold the same slots."""
    layers, kv_heads, _ = slots.shape
    return segments.segment_ids[:layers, :kv_heads].expand(slots.shape)


def retained_by_segment(scores: Scores, protected: Tensor, total: Tensor | int) -> tuple[Tensor, Tensor]:
    """Return the slots of each [layer, kv_head, segment], and how many of them to keep (`segment_shares`)."""
    if scores.segments is None:
        raise ValueError("scores have no segments; choose a scoring that has them, such as Thoughts")
    is_filled = scores.slots > -torch.inf
    segment_slots = count_by_segment(is_filled, scores.segments)
    return segment_slots, segment_shares(
        segment_slots, count_by_segment(is_filled & protected, scores.segments), scores.segments, total
    )


class Segmented:
    """Allocate to each keep set the sum of the shares of its segments."""

    bounds: ClassVar[bool] = True

    def allocate(self, view: View, scores: Scores, protected: Tensor, budget: int) -> Allocation:
        return Allocation(retained_by_segment(scores, protected, budget)[1].sum(-1))


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
        segment_slots, segment_budgets = retained_by_segment(scores, protected, allocation)
        slots, is_filled = scores.slots, scores.slots > -torch.inf
        assert scores.segments is not None
        last = segment_slots.shape[-1]
        segment_ids = slot_segments(slots, scores.segments).masked_fill(~is_filled, last)
        ranked = slots.masked_fill(protected, torch.inf).argsort(stable=True, descending=True)
        ranked = ranked.gather(-1, segment_ids.gather(-1, ranked).argsort(stable=True))
        segment = segment_ids.gather(-1, ranked)
        zero = torch.zeros_like(segment_slots[..., :1])
        starts = torch.cat([segment_slots.cumsum(-1) - segment_slots, zero], -1).gather(-1, segment)
        rank = torch.arange(slots.shape[-1], device=slots.device) - starts
        within = rank < torch.cat([segment_budgets, zero], -1).gather(-1, segment)
        return torch.zeros_like(is_filled).scatter(-1, ranked, within & (segment < last))


@dataclass(frozen=True)
class Whenever(Cadence):
    """Evict every `interval` steps, even if the cache does not exceed the budget."""

    interval: int | None = SEGMENT

    @property
    def fires(self) -> Fires:
        return "every" if super().fires == "own" else super().fires

    def due(self, step: int, slots_per_head: float, budget: int) -> bool:
        return self.interval is not None and step > 0 and step % self.interval == 0


def thought_policy(base: Scoring, routing: Routing, *, prompt: bool) -> Policy:
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

    That may be far less than the budget K, and is never more. As in EpiKV's comparison, the prompt is not protected.
    Since ThinKV evicts only generated tokens, and its memory formula counts the full prompt, the complete prompt stays
    if K allows it; otherwise it is reduced first (`segment_shares`): ours. Also ours: sparsity is the mean over query
    heads, and each KV head ranks its slots by the attention received since their token was fed, where ThinKV clusters
    keys. Departs from ThinKV: the budgets are those of EpiKV instead of one ladder for all types, a transition does not
    shrink earlier segments, and nothing is quantised. Eviction happens every 128 steps for any registered interval;
    between two steps a lane grows by as many slots.
    """
    return thought_policy(AccumulatedAttention(), SegmentsPerHead(), prompt=False)


def segment_hs() -> Policy:
    """Segment-HS (EpiKV, Table 1: "ThinKV seg. + HS rank"): the segments and budgets of `thinkv`, with slots
    ranked by the score of `epikv`, the change of the residual stream.

    The paper specifies neither the score of "HS rank" nor the protection. Ours: z_10 - z_21, and a protected
    prompt as in the methods of that paper.
    """
    return thought_policy(Epiphany(), SegmentsShared(), prompt=True)


def thought_variants() -> Mapping[str, Policy]:
    """Return the policies by name."""
    return MappingProxyType({"thinkv": thinkv(), "segment-hs": segment_hs()})
