"""Synthetic slots: the family `syn_mem` of Sun and Harn (arXiv:2605.14292), which they rejected as a family.

The paper says only: "Span-mean 'synthetic' slots plus a log(N) mass bias beat per-token retention at extreme
budgets" (Table 1), and lists four sub-attempts, "span-mean prefill states, bounded variant, and two
static/dynamic sel_hybrid formulations". A span of N tokens becomes one slot, with the mean of their keys and
the mean of their values, and log N is added to its attention logit: this is exact if the keys of the span are
equal, since N equal terms of a softmax are one with log N added. The length of spans, the bound, and the
meaning of static and dynamic are ours, and documented at each class. Common to all four, and ours:

- A budget counts slots, of one token or of many. A merged slot counts as one, and an eviction step leaves as
  many slots as its policy without this state.
- A merged slot has the position of one of its members, the one nearest to the mean position of its tokens.
  Keys are averaged after they are rotated to that position: the mean of the stored keys would shrink, for
  eight neighbours to a fifth of its length in the fastest pairs.
- A merged slot competes at later eviction steps like any other, by the score of its mean key, and merges
  again with the weight of its tokens. All evicted slots are merged, so no token is dropped, except in
  `PromptSpans`.
- Protected slots do not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from policies.contract import Codec, Merging, Scores, Signal, View
from policies.policy import Policy
from policies.selection import select_first, select_highest
from policies.signals import AttentionSums, group_mean, read_signal
from policies.triattention import triattention
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "syn_mem-1": PolicyFacts(
        "triattention",
        "as 1d, but the prompt is stored once as means of its spans",
        "Sun and Harn, arXiv:2605.14292",
        "Mean slots of prompt spans, computed once, preserve more of the prompt than kept tokens.",
        parent="1d",
        component="state",
    ),
    "syn_mem-2": PolicyFacts(
        "triattention",
        "as 1d, but dropped slots become means of spans, of which the oldest merge",
        "Sun and Harn, arXiv:2605.14292",
        "A bounded number of mean slots in addition to kept tokens beats kept tokens alone at small budgets.",
        parent="1d",
        component="state",
    ),
    "syn_mem-3": PolicyFacts(
        "triattention",
        "as 1d, but a quarter of the slots are means of spans of dropped slots",
        "Sun and Harn, arXiv:2605.14292",
        "Kept tokens and mean slots in a fixed ratio beat kept tokens alone, because a mean represents many tokens.",
        parent="1d",
        component="state",
    ),
    "syn_mem-4": PolicyFacts(
        "triattention",
        "as 1d, but one mean slot for each gap between kept tokens",
        "Sun and Harn, arXiv:2605.14292",
        "One mean slot for each gap between kept tokens beats a fixed ratio.",
        parent="1d",
        component="state",
    ),
    "syn_mem": PolicyFacts(
        "triattention",
        "as 1d, but a quarter of the slots are means of dropped slots: syn_mem-3",
        "Sun and Harn, arXiv:2605.14292",
        "The third sub-attempt represents the family under its name.",
        parent="syn_mem-3",
    ),
    "syn_mem-attention": PolicyFacts(
        "triattention",
        "as syn_mem, but means are weighted by recent attention",
        "Sun and Harn, arXiv:2605.14292",
        "Means weighted by attention preserve what a span is read for better than uniform means.",
        parent="syn_mem",
        component="state",
    ),
    "syn_mem-massless": PolicyFacts(
        "triattention",
        "as syn_mem, but without log N on a slot of N tokens",
        "Sun and Harn, arXiv:2605.14292",
        "A mean slot does not need log N added to its logit.",
        parent="syn_mem",
        component="state",
    ),
    "syn_mem-attention-massless": PolicyFacts(
        "triattention",
        "as syn_mem-attention, but without log N",
        "Sun and Harn, arXiv:2605.14292",
        "Means weighted by attention do not need log N added to their logit.",
        parent="syn_mem",
        component="state",
    ),
}

Mean: TypeAlias = Literal["uniform", "attention"]
WINDOW = 32
"""Number of last queries whose attention weights the members of a span: SnapKV's window."""
WEIGHT = 4
"""Bytes of the token count of a slot, float32."""


class SpanAssignment(NamedTuple):
    """The assignment of slots to spans. Both [layer, kv_head, n], one row for each keep set."""

    stay: Tensor
    """bool, the slots that do not change."""
    span: Tensor
    """int64, the span into which a slot is merged, counted from 0; -1 if it stays or is dropped."""


def assign_spans(members: Tensor, counts: Tensor) -> Tensor:
    """members, bool [..., n] -> int64 [..., n], which of `counts` [...] spans each is in; -1 for no member.

    Spans follow the order of the slots and have sizes as equal as possible; slots that stay may lie between
    two members of a span. If the count is 0, the members are dropped.
    """
    rank = members.cumsum(-1) - 1
    total = members.sum(-1, keepdim=True).clamp(min=1)
    span = (rank * counts[..., None]).div(total, rounding_mode="floor")
    return span.masked_fill(~members | (counts[..., None] == 0), -1)


def count_runs(slots: Tensor) -> Tensor:
    """slots, bool [..., n] -> int64 [...], the number of runs of neighbouring slots."""
    before = torch.cat([torch.zeros_like(slots[..., :1]), slots[..., :-1]], -1)
    return (slots & ~before).sum(-1)


def merge_oldest(units: Tensor, counts: Tensor, most: Tensor) -> Tensor:
    """Merge the oldest units until at most `most` [...] remain, which is 1 or more, and renumber them.

    units: int64 [..., n], numbered from the oldest on; counts [...]: their number. The oldest two become one,
    then the next two, and so on, as far as needed; then again from the oldest.
    """
    while (counts > most).any():
        pairs = (counts - most).clamp(min=0).minimum(counts // 2)
        paired = torch.where(units < 2 * pairs[..., None], units // 2, units - pairs[..., None])
        units, counts = torch.where(units < 0, units, paired), counts - pairs
    return units


def merge_spans(positions: Tensor, weights: Tensor, slots: SpanAssignment, attention: Tensor | None = None) -> Merging:
    """Merge the spans of `slots`; positions int64 and weights (tokens per slot) are [layer, kv_head, n].

    A span is stored at the member nearest to the mean position of its tokens, the first of two. Its members
    are weighted by their token counts or, with attention [layer, kv_head, n], by the attention received; by
    token counts if that is 0.
    """
    n = positions.shape[-1]
    member, index = slots.span >= 0, slots.span.clamp(min=0)
    tokens = weights.double().masked_fill(~member, 0)

    def sum_by_span(values: Tensor) -> Tensor:
        targets = index.expand(values.shape)
        return torch.zeros_like(values).scatter_add(-1, targets, values).gather(-1, targets)

    def min_by_span(values: Tensor, none: float) -> Tensor:
        """Return the minimum of each span at each of its members."""
        lowest = torch.full_like(values, none).scatter_reduce(-1, index, values, "amin")
        return lowest.gather(-1, index)

    token_sums = sum_by_span(tokens)
    centre = sum_by_span(tokens * positions) / token_sums.clamp(min=1)
    distance = (positions - centre).abs().masked_fill(~member, torch.inf)
    slot_index = torch.arange(n, device=positions.device).expand(index.shape)
    nearest = member & (distance == min_by_span(distance, torch.inf))
    anchor = min_by_span(slot_index.masked_fill(~nearest, n), n)
    targets = torch.where(member, anchor, torch.where(slots.stay, slot_index, -1))
    shares = tokens / token_sums.clamp(min=1)
    if attention is not None:
        received = attention.double().masked_fill(~member, 0)
        total = sum_by_span(received)
        shares = torch.where(total > 0, received / total.clamp(min=torch.finfo(total.dtype).tiny), shares)
    return Merging(targets == slot_index, targets, shares.masked_fill(slots.stay, 1))


@dataclass(frozen=True)
class Synthetic:
    """Common base of the four variants. Slots store the number of their tokens, 4 bytes each.

    mean: how the members of a span are weighted in its key and value. "uniform": every token equally.
        "attention": by the attention of the last 32 queries, mean of the query heads of a group. No n x n is
        formed, and 32 queries of each head are carried. The paper says "span-mean" only; the attention
        weighting is ours.
    mass: whether log N is added to the logit of a slot of N tokens.
    """

    mean: Mean = "uniform"
    mass: bool = True
    merges: ClassVar[bool] = True
    keeps_counts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.mean not in ("uniform", "attention"):
            raise ValueError(f"mean must be uniform or attention, not {self.mean!r}")

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({AttentionSums(WINDOW)} if self.mean == "attention" else ())

    def merge(self, view: View, scores: Scores, protected: Tensor, retained: Tensor) -> Merging | None:
        layers, kv_heads, _ = retained.shape
        # Heads that share a set hold the same slots with the same tokens.
        positions = view.positions[:layers, :kv_heads].expand(retained.shape)
        weights = torch.ones_like(positions)
        if view.weights is not None:
            weights = view.weights[:layers, :kv_heads].expand(retained.shape)
        slots = self.assign_slots(view, scores, protected.expand(retained.shape), retained, weights)
        if slots is None:
            return None
        received = None
        if self.mean == "attention":
            sums = read_signal(view, AttentionSums(WINDOW))
            received = torch.stack([group_mean(layer_sums, view.kv_heads) for layer_sums in sums])
        return merge_spans(positions, weights, slots, received)

    def assign_slots(
        self, view: View, scores: Scores, protected: Tensor, retained: Tensor, weights: Tensor
    ) -> SpanAssignment | None:
        """Assign slots to spans; None if all evicted slots are dropped. All [layer, kv_head, n]."""
        raise NotImplementedError

    def codec(self, statistics: Mapping[str, Any]) -> Codec | None:
        return None

    def slot_bytes(self, width: int, itemsize: int) -> int:
        return 2 * width * itemsize + WEIGHT


@dataclass(frozen=True)
class PromptSpans(Synthetic):
    """`syn_mem-1`, "span-mean prefill": spans replace the prompt, once.

    At the end of the prefill the prompt, except for protected slots, is cut into as many spans as the budget
    has slots, of sizes as equal as possible; scores are not used. Later eviction steps drop what the
    selection does not keep: with an interval, spans compete with tokens and may be dropped completely.
    """

    def assign_slots(
        self, view: View, scores: Scores, protected: Tensor, retained: Tensor, weights: Tensor
    ) -> SpanAssignment | None:
        if view.stored is not None:
            return None
        members = filled_slots(scores) & ~protected
        return SpanAssignment(protected, assign_spans(members, retained.sum(-1) - protected.sum(-1)))


@dataclass(frozen=True)
class BoundedSpans(Synthetic):
    """`syn_mem-2`, "bounded": spans at every eviction step, in a bounded number of slots; the oldest merge.

    `share` of the slots, rounded down, hold spans and do not compete in the selection; the others hold the best single
    tokens. Evicted slots are cut into spans of at most `length` slots, shorter ones if span slots are free, which join
    the existing spans in the order of their mean positions. If there are too many, the oldest two become one, then the
    next two (`merge_oldest`): older spans are longer. Differs from `syn_mem-1` already at the end of the prefill, where
    most slots hold single tokens. The paper says only "bounded".
    """

    share: float = 0.25
    length: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_share(self.share)
        if self.length < 1:
            raise ValueError(f"length of a span must be 1 or more, not {self.length}")

    def assign_slots(
        self, view: View, scores: Scores, protected: Tensor, retained: Tensor, weights: Tensor
    ) -> SpanAssignment | None:
        filled, retained_counts = filled_slots(scores), retained.sum(-1)
        old = filled & (weights > 1) & ~protected
        span_counts = share_of_slots(self.share, retained_counts).minimum(retained_counts - protected.sum(-1))
        # Order: single tokens that the selection kept, the other single tokens, then spans.
        rank = old.int() + (old | ~retained).int() + (~filled).int()
        rank = rank.masked_fill(protected, -1)
        order = scores.slots.argsort(stable=True, descending=True)
        order = order.gather(-1, rank.gather(-1, order).argsort(stable=True))
        stay = select_first(order, retained_counts - span_counts)
        return SpanAssignment(stay, self.assign_bounded_spans(view, filled & ~stay, old & ~stay, weights, span_counts))

    def assign_bounded_spans(
        self, view: View, members: Tensor, old: Tensor, weights: Tensor, span_counts: Tensor
    ) -> Tensor:
        """Return the span of each member, some of which are `old` spans; at most `span_counts` spans."""
        layers, kv_heads, _ = members.shape
        new, old_count = members & ~old, old.sum(-1)
        singles = new.sum(-1)
        least = (singles + self.length - 1) // self.length
        counts = least.maximum(span_counts - old_count).minimum(singles)
        unit = assign_spans(new, counts)
        unit = torch.where(old, counts[..., None] + old.cumsum(-1) - 1, unit)
        # Number the units in the order of their mean positions; indices beyond the last unit are unused.
        index, tokens = unit.clamp(min=0), weights.double().masked_fill(unit < 0, 0)
        positions = view.positions[:layers, :kv_heads].expand(members.shape)
        zeros = torch.zeros_like(tokens)
        token_sums = zeros.scatter_add(-1, index, tokens)
        centre = zeros.scatter_add(-1, index, tokens * positions) / token_sums
        age = centre.nan_to_num(torch.inf).argsort(stable=True).argsort()
        ordered = torch.where(unit < 0, -1, age.gather(-1, index))
        bounded = merge_oldest(ordered, counts + old_count, span_counts.clamp(min=1))
        return bounded.masked_fill(span_counts[..., None] == 0, -1)


@dataclass(frozen=True)
class StaticHybrid(Synthetic):
    """`syn_mem-3`, "sel_hybrid static": a fixed share of the slots hold spans of the evicted slots.

    At every eviction step the lowest `share` of the retained slots, rounded down, become span slots. They and
    all evicted slots, earlier spans included, are cut into that many spans, of sizes as equal as possible.
    `share` is ours: with a budget below 4 slots nothing is merged.
    """

    share: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_share(self.share)

    def assign_slots(
        self, view: View, scores: Scores, protected: Tensor, retained: Tensor, weights: Tensor
    ) -> SpanAssignment | None:
        span_counts = share_of_slots(self.share, retained.sum(-1))
        return assign_hybrid(scores, protected, retained, span_counts)


@dataclass(frozen=True)
class DynamicHybrid(Synthetic):
    """`syn_mem-4`, "sel_hybrid dynamic": the number of spans is the number of gaps between retained slots.

    As `syn_mem-3`, but the number of spans is the number of runs of neighbouring evicted slots, at most
    `share` of the slots. Both are ours. Retained slots that become span slots change the runs, so spans are
    cut into equal sizes here too, and a span may lie on both sides of a retained slot.
    """

    share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_share(self.share)

    def assign_slots(
        self, view: View, scores: Scores, protected: Tensor, retained: Tensor, weights: Tensor
    ) -> SpanAssignment | None:
        gaps = count_runs(filled_slots(scores) & ~retained)
        return assign_hybrid(scores, protected, retained, share_of_slots(self.share, retained.sum(-1)).minimum(gaps))


def assign_hybrid(scores: Scores, protected: Tensor, retained: Tensor, span_counts: Tensor) -> SpanAssignment:
    """Cut the lowest `span_counts` [layer, kv_head] unprotected slots and all evicted ones into so many spans."""
    retained_counts = retained.sum(-1)
    span_counts = span_counts.minimum(retained_counts - protected.sum(-1))
    stay = select_highest(scores.slots.masked_fill(~retained, -torch.inf), protected, retained_counts - span_counts)
    return SpanAssignment(stay, assign_spans(filled_slots(scores) & ~stay, span_counts))


def filled_slots(scores: Scores) -> Tensor:
    """Return bool [layer, kv_head, n], False for padding."""
    return scores.slots > -torch.inf


def share_of_slots(share: float, retained_counts: Tensor) -> Tensor:
    """Return the share of the slot counts, rounded down."""
    return (share * retained_counts.double()).long()


def refuse_share(share: float) -> None:
    if not 0 < share <= 1:
        raise ValueError(f"share of the slots for spans must be above 0 and at most 1, not {share}")


def synthetic() -> Mapping[str, Policy]:
    """Return the policies by name: each differs from `1d` in its state alone.

    `syn_mem-1` to `-4` are the paper's four sub-attempts in its order; `syn_mem` is the third, `sel_hybrid`
    static, and the last three are that one with another mean, without log N, or both.
    """
    states = {
        "syn_mem": StaticHybrid(),
        "syn_mem-1": PromptSpans(),
        "syn_mem-2": BoundedSpans(),
        "syn_mem-3": StaticHybrid(),
        "syn_mem-4": DynamicHybrid(),
        "syn_mem-attention": StaticHybrid(mean="attention"),
        "syn_mem-massless": StaticHybrid(mass=False),
        "syn_mem-attention-massless": StaticHybrid(mean="attention", mass=False),
    }
    parent = triattention()
    return MappingProxyType({name: replace(parent, state=state) for name, state in states.items()})
