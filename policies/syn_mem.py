"""Synthetic slots: the family `syn_mem` of Sun and Harn (arXiv:2605.14292), which they rejected as a family.

All that the paper says: "Span-mean 'synthetic' slots plus a log(N) mass bias beat per-token retention at
extreme budgets" (Table 1), and its four sub-attempts, "span-mean prefill states, bounded variant, and two
static/dynamic sel_hybrid formulations". A span of N tokens becomes one slot, with the mean of their keys and
the mean of their values, and log N is added to its attention logit: exact where the keys of the span are
equal, since N equal terms of a softmax are one with log N added. How long a span is, what is bounded, and
what is static or dynamic is ours, and said where it is decided. What holds for all four, and is ours:

- A budget counts slots, of one token or of many. So a merged slot takes the place of a single one, and an
  event leaves as many slots as its policy without this state would.
- A merged slot stands at the position of one of its members, the one nearest to the mean position of its
  tokens. Keys are averaged after they were turned there: the mean of keys as they lie would fade, for eight
  neighbours to a fifth of its length in the fastest pairs.
- A merged slot competes at later events as any other, by the score of its mean key, and merges again with the
  weight of its tokens. Whatever is not kept is merged, so that no token is dropped, but for spans of the
  prompt alone (`PromptSpans`).
- Protected slots stay as they are.
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
from policies.selection import first, highest
from policies.signals import AttentionSums, group_mean, of_all_layers
from policies.triattention import triattention

__all__ = [
    "BoundedSpans",
    "DynamicHybrid",
    "PromptSpans",
    "Slots",
    "StaticHybrid",
    "cut",
    "halved",
    "merged",
    "runs",
    "synthetic",
]

Mean: TypeAlias = Literal["uniform", "attention"]
WINDOW = 32
"""Queries whose attention weighs the members of a span, counted from the last: SnapKV's window."""
WEIGHT = 4
"""Bytes of the number of tokens of a slot, float32."""


class Slots(NamedTuple):
    """What becomes of the slots. Both [layer, kv_head, n], one row for each keep set."""

    stay: Tensor
    """bool, those that stay as they are."""
    span: Tensor
    """int64, the span that a slot goes on in, counted from 0; -1 where it stays or is dropped."""


def cut(members: Tensor, counts: Tensor) -> Tensor:
    """members, bool [..., n] -> int64 [..., n], which of `counts` [...] spans each is in; -1 for no member.

    Spans follow the order of the slots, as equal in slots as possible; between two members of one there may
    be slots that stay. Without a span for them the members are dropped.
    """
    place = members.cumsum(-1) - 1
    total = members.sum(-1, keepdim=True).clamp(min=1)
    span = (place * counts[..., None]).div(total, rounding_mode="floor")
    return span.masked_fill(~members | (counts[..., None] == 0), -1)


def runs(slots: Tensor) -> Tensor:
    """slots, bool [..., n] -> int64 [...], how many runs of neighbours there are."""
    before = torch.cat([torch.zeros_like(slots[..., :1]), slots[..., :-1]], -1)
    return (slots & ~before).sum(-1)


def halved(units: Tensor, counts: Tensor, most: Tensor) -> Tensor:
    """units, int64 [..., n], numbered from the oldest on, of which there are `counts` [...] -> their numbers
    once there are at most `most` [...], which is 1 or more.

    The oldest two become one, then the next two, and so on, as far as is needed; then again from the oldest.
    """
    while (counts > most).any():
        pairs = (counts - most).clamp(min=0).minimum(counts // 2)
        joined = torch.where(units < 2 * pairs[..., None], units // 2, units - pairs[..., None])
        units, counts = torch.where(units < 0, units, joined), counts - pairs
    return units


def merged(positions: Tensor, weights: Tensor, slots: Slots, attention: Tensor | None = None) -> Merging:
    """positions int64, weights (tokens of each slot) and `slots` [layer, kv_head, n].

    A span stands at the member that is nearest to the mean position of its tokens; of two, at the first. The
    shares of its members are their tokens or, with attention [layer, kv_head, n], what they receive of it,
    for the tokens where that is nothing.
    """
    n = positions.shape[-1]
    member, index = slots.span >= 0, slots.span.clamp(min=0)
    tokens = weights.double().masked_fill(~member, 0)

    def summed(values: Tensor) -> Tensor:
        into = index.expand(values.shape)
        return torch.zeros_like(values).scatter_add(-1, into, values).gather(-1, into)

    def least(values: Tensor, none: float) -> Tensor:
        """Of each span, at each of its members."""
        lowest = torch.full_like(values, none).scatter_reduce(-1, index, values, "amin")
        return lowest.gather(-1, index)

    whole = summed(tokens)
    centre = summed(tokens * positions) / whole.clamp(min=1)
    away = (positions - centre).abs().masked_fill(~member, torch.inf)
    place = torch.arange(n, device=positions.device).expand(index.shape)
    nearest = member & (away == least(away, torch.inf))
    stand = least(place.masked_fill(~nearest, n), n)
    into = torch.where(member, stand, torch.where(slots.stay, place, -1))
    shares = tokens / whole.clamp(min=1)
    if attention is not None:
        received = attention.double().masked_fill(~member, 0)
        total = summed(received)
        shares = torch.where(total > 0, received / total.clamp(min=torch.finfo(total.dtype).tiny), shares)
    return Merging(into == place, into, shares.masked_fill(slots.stay, 1))


@dataclass(frozen=True)
class Synthetic:
    """What the four have in common. Slots carry the number of their tokens, 4 bytes each.

    mean: how the members of a span weigh in its key and value. "uniform": every token alike. "attention": as
        the last 32 queries attended to the slots, mean of the query heads of a group. No n x n is formed, and
        32 queries of each head are carried. The paper has "span-mean" only; which attention is ours.
    mass: whether log N is added to the logit of a slot of N tokens.
    """

    mean: Mean = "uniform"
    mass: bool = True
    merges: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.mean not in ("uniform", "attention"):
            raise ValueError(f"mean must be uniform or attention, not {self.mean!r}")

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({AttentionSums(WINDOW)} if self.mean == "attention" else ())

    def merge(self, view: View, scores: Scores, protected: Tensor, kept: Tensor) -> Merging | None:
        layers, kv_heads, _ = kept.shape
        # Heads that share a set hold the same slots, and of each the same tokens.
        positions = view.positions[:layers, :kv_heads].expand(kept.shape)
        weights = torch.ones_like(positions)
        if view.weights is not None:
            weights = view.weights[:layers, :kv_heads].expand(kept.shape)
        slots = self.slots(view, scores, protected.expand(kept.shape), kept, weights)
        if slots is None:
            return None
        received = None
        if self.mean == "attention":
            sums = of_all_layers(view, AttentionSums(WINDOW))
            received = torch.stack([group_mean(each, view.kv_heads) for each in sums])
        return merged(positions, weights, slots, received)

    def slots(
        self, view: View, scores: Scores, protected: Tensor, kept: Tensor, weights: Tensor
    ) -> Slots | None:
        """What becomes of the slots; None where what is not kept is dropped. All [layer, kv_head, n]."""
        raise NotImplementedError

    def codec(self, statistics: Mapping[str, Any]) -> Codec | None:
        return None

    def slot_bytes(self, width: int, itemsize: int) -> int:
        return 2 * width * itemsize + WEIGHT


@dataclass(frozen=True)
class PromptSpans(Synthetic):
    """`syn_mem-1`, "span-mean prefill": spans of the prompt take its place, once.

    At the end of the prefill the whole prompt, but for protected slots, is cut into as many spans as the
    budget has slots, as equal as possible; scores do not count there. Later events keep what the selection
    keeps, and what it drops is dropped: an interval makes spans compete with tokens, and lets whole ones go.
    """

    def slots(
        self, view: View, scores: Scores, protected: Tensor, kept: Tensor, weights: Tensor
    ) -> Slots | None:
        if view.stored is not None:
            return None
        members = there(scores) & ~protected
        return Slots(protected, cut(members, kept.sum(-1) - protected.sum(-1)))


@dataclass(frozen=True)
class BoundedSpans(Synthetic):
    """`syn_mem-2`, "bounded": spans at every event, in a bounded number of slots, of which the oldest merge.

    `share` of the slots, rounded down, hold spans and are no candidates of the selection; the others hold the
    best single tokens. What an event drops is cut into spans of at most `length` slots, shorter ones where
    places are free, and joins the spans of before, in the order of their mean positions. Where there are too
    many, the oldest two become one, then the next two (`halved`): the longer ago, the longer a span.
    Departs from `syn_mem-1` already at the end of the prefill, where most slots hold single tokens. The paper
    says "bounded" alone.
    """

    share: float = 0.25
    length: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_share(self.share)
        if self.length < 1:
            raise ValueError(f"length of a span must be 1 or more, not {self.length}")

    def slots(
        self, view: View, scores: Scores, protected: Tensor, kept: Tensor, weights: Tensor
    ) -> Slots | None:
        filled, held = there(scores), kept.sum(-1)
        old = filled & (weights > 1) & ~protected
        places = part(self.share, held).minimum(held - protected.sum(-1))
        # Single tokens that the selection kept, the other ones, and only then spans.
        rank = old.int() + (old | ~kept).int() + (~filled).int()
        rank = rank.masked_fill(protected, -1)
        order = scores.slots.argsort(stable=True, descending=True)
        order = order.gather(-1, rank.gather(-1, order).argsort(stable=True))
        stay = first(order, held - places)
        return Slots(stay, self.spans(view, filled & ~stay, old & ~stay, weights, places))

    def spans(self, view: View, members: Tensor, old: Tensor, weights: Tensor, places: Tensor) -> Tensor:
        """The span of each of the members, of which some are `old` spans; at most `places` of them."""
        layers, kv_heads, _ = members.shape
        new, before = members & ~old, old.sum(-1)
        singles = new.sum(-1)
        least = (singles + self.length - 1) // self.length
        counts = least.maximum(places - before).minimum(singles)
        unit = cut(new, counts)
        unit = torch.where(old, counts[..., None] + old.cumsum(-1) - 1, unit)
        # Their numbers in the order of their mean positions; those beyond the last unit have none.
        index, tokens = unit.clamp(min=0), weights.double().masked_fill(unit < 0, 0)
        positions = view.positions[:layers, :kv_heads].expand(members.shape)
        zeros = torch.zeros_like(tokens)
        whole = zeros.scatter_add(-1, index, tokens)
        centre = zeros.scatter_add(-1, index, tokens * positions) / whole
        age = centre.nan_to_num(torch.inf).argsort(stable=True).argsort()
        ordered = torch.where(unit < 0, -1, age.gather(-1, index))
        bounded = halved(ordered, counts + before, places.clamp(min=1))
        return bounded.masked_fill(places[..., None] == 0, -1)


@dataclass(frozen=True)
class StaticHybrid(Synthetic):
    """`syn_mem-3`, "sel_hybrid static": a fixed share of the slots hold spans of what is dropped.

    At every event the lowest `share` of the slots that were kept, rounded down, give their places. They and
    all that the selection drops, spans of before among them, are cut into as many spans, as equal as
    possible. `share` is ours: of a budget below 4 slots nothing is merged.
    """

    share: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_share(self.share)

    def slots(
        self, view: View, scores: Scores, protected: Tensor, kept: Tensor, weights: Tensor
    ) -> Slots | None:
        places = part(self.share, kept.sum(-1))
        return hybrid(scores, protected, kept, places)


@dataclass(frozen=True)
class DynamicHybrid(Synthetic):
    """`syn_mem-4`, "sel_hybrid dynamic": as many slots hold spans as there are gaps in what is kept.

    As `syn_mem-3`, with the number of spans taken from the event: that of runs of neighbouring slots that the
    selection drops, at most `share` of the slots. Both are ours. Slots that give their places change the
    runs, so spans are cut as equal as possible here too, and one of them may lie on both sides of a kept
    slot.
    """

    share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_share(self.share)

    def slots(
        self, view: View, scores: Scores, protected: Tensor, kept: Tensor, weights: Tensor
    ) -> Slots | None:
        gaps = runs(there(scores) & ~kept)
        return hybrid(scores, protected, kept, part(self.share, kept.sum(-1)).minimum(gaps))


def hybrid(scores: Scores, protected: Tensor, kept: Tensor, places: Tensor) -> Slots:
    """The lowest `places` [layer, kv_head] of the kept slots, at most the unprotected ones, and all that is
    dropped as so many spans.
    """
    held = kept.sum(-1)
    places = places.minimum(held - protected.sum(-1))
    stay = highest(scores.slots.masked_fill(~kept, -torch.inf), protected, held - places)
    return Slots(stay, cut(there(scores) & ~stay, places))


def there(scores: Scores) -> Tensor:
    """bool [layer, kv_head, n], where a slot is."""
    return scores.slots > -torch.inf


def part(share: float, held: Tensor) -> Tensor:
    """Of so many slots, rounded down."""
    return (share * held.double()).long()


def refuse_share(share: float) -> None:
    if not 0 < share <= 1:
        raise ValueError(f"share of the slots that hold spans must be above 0 and at most 1, not {share}")


def synthetic() -> Mapping[str, Policy]:
    """By name: each differs from `1d` in its state alone.

    `syn_mem-1` to `-4` are the paper's four sub-attempts in its order; `syn_mem` is the family's name for the
    third, `sel_hybrid` static, and the last three are that with another mean, without log N, or both.
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
