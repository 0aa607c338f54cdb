"""DefensiveKV: keep what some query may need, not what queries need on average (arXiv:2510.13334)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeAlias, get_args

import torch
from torch import Tensor
from torch.nn.functional import avg_pool1d, pad

from policies.contract import Allocation, Rows, Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect, from_last
from policies.routing import Adaptive, PerHead, uniform
from policies.selection import highest
from policies.signals import EveryLayer, of_all_layers, running_sums, wide
from policies.snapkv import refuse_window

__all__ = [
    "AcrossLayers",
    "Defensive",
    "Observed",
    "OutputNorms",
    "WindowPeaks",
    "certain",
    "defensivekv",
    "layer_defensivekv",
    "observed",
    "output_norms",
    "worst_case",
]

Divisor: TypeAlias = Literal["heads", "tokens", "plain"]

MASS = 0.9
"""Of the attention to the past: what the slots of the first stage together have, less a bias."""
TOKENS = 512
"""Whose outputs are formed at once: [TOKENS, width] of one query head is the largest tensor of a norm."""


class Observed(NamedTuple):
    """What the last queries attend to, of the slots before them: each [kv_head, n], 0 elsewhere."""

    peak: Tensor
    """The largest of all rows and query heads of a group, each row pooled."""
    mean: Tensor
    """Sum over the rows of the mean over the group, not pooled."""


def observed(attention: Tensor, past: Tensor, kernel: int) -> Observed:
    """attention [kv_head, group, row, n], past [kv_head, n]: the slots that compete.

    A row is averaged over `kernel` neighbours, what is no past counting as 0 among them, and scaled back to
    what it gave to the past before.
    """
    own = attention * past[:, None, None].to(attention.dtype)
    pooled = avg_pool1d(own.flatten(0, 1), kernel, stride=1, padding=kernel // 2).view(own.shape)
    pooled = pooled * past[:, None, None].to(own.dtype)
    least = torch.finfo(own.dtype).tiny
    pooled = pooled * (own.sum(-1, keepdim=True) / pooled.sum(-1, keepdim=True).clamp(min=least))
    return Observed(pooled.amax((1, 2)), own.mean(1).sum(1))


def worst_case(peak: Tensor, past: Tensor) -> Tensor:
    """R: no slot is worth less than the mean of its head. peak, past [..., n] -> [..., n]; 0 beyond past."""
    mean = peak.sum(-1, keepdim=True) / past.sum(-1, keepdim=True).clamp(min=1)
    return peak.maximum(mean).masked_fill(~past, 0)


def certain(mean: Tensor, threshold: Tensor, past: Tensor, most: Tensor) -> Tensor:
    """The slots of the first stage (CriticalKV's), bool as `mean` [..., n], which is 0 where no past is.

    In the order of their mean attention, those with which the share of it is still below the threshold, and
    no more than `most` of a head. threshold and most [..., 1].
    """
    ranked = mean.masked_fill(~past, -1).sort(stable=True, dim=-1, descending=True)
    shares = ranked.values.clamp(min=0)
    shares = shares / shares.sum(-1, keepdim=True).clamp(min=torch.finfo(mean.dtype).tiny)
    first = (running_sums(shares) < threshold) & (torch.arange(mean.shape[-1], device=mean.device) < most)
    return torch.zeros_like(past).scatter(-1, ranked.indices, first) & past


def output_norms(values: Tensor, output: Tensor) -> Tensor:
    """nu: values [kv_head, n, d], output [q_head, d, width] -> [kv_head, n].

    ||v W||_1, W being the slice of the output projection of a query head; mean over the heads of a group.
    """
    values, output = wide(values), wide(output)
    group = len(output) // len(values)
    norms = [
        (values[head // group, first : first + TOKENS] @ own).abs().sum(-1)
        for head, own in enumerate(output)
        for first in range(0, values.shape[1], TOKENS)
    ]
    return torch.cat(norms).view(len(values), group, -1).mean(1)


@dataclass(frozen=True)
class WindowPeaks(EveryLayer):
    """`observed` of the last `window` queries, of every layer. Past are the slots before those."""

    window: int
    kernel: int
    raw: ClassVar[bool] = True

    def attend(self, rows: Rows, before: Observed | None) -> Observed:
        assert rows.logits is not None
        first = max(0, rows.total - self.window - rows.start)
        attention = rows.attention[..., first:, :]
        count, n = attention.shape[-2:]
        # Where a head holds fewer slots than another, only logits tell a slot that is not there.
        there = (rows.logits[:, -1] != -torch.inf).view(rows.kv_heads, -1, n)[:, 0]
        held = there.sum(-1, keepdim=True) + rows.total - rows.start - rows.attention.shape[-2]
        past = torch.arange(n, device=attention.device) < held - self.window
        new = observed(attention.view(rows.kv_heads, -1, count, n), past, self.kernel)
        if before is None:
            return new
        peak, mean = (pad(part, (0, n - part.shape[-1])) for part in before)
        return Observed(peak.maximum(new.peak), mean + new.mean)


@dataclass(frozen=True)
class OutputNorms:
    """`output_norms` of the stored values."""

    def project(self, layer: int, keys: Tensor, values: Tensor, filled: Tensor, output: Tensor) -> Tensor:
        return output_norms(values, output)


@dataclass(frozen=True)
class Defensive:
    """R of the last `window` queries times the norms of what values become, and the first stage above all.

    norms: what ||v W|| is divided by. "heads": its sum over the KV heads of a layer, as in the authors' code
        of both methods; where some of them do not hold the token, as many times its mean over those that do
        (ours). "tokens": its sum over the slots of the head that are not of the window, the paper's
        Layer-DefensiveKV. "plain": nothing, the paper's DefensiveKV.

    The slots of the first stage score as the highest of their layer. As in the authors' code, their threshold
    is 0.9 less what the window gives to the last `window` slots before it, where its own share was surely
    meant; and they are at most the window less than the part of the budget that falls to the past by its
    length, (n - window) / n, where the whole of it was. The window itself scores 0: it is for the policy to
    protect.
    """

    window: int = 32
    kernel: int = 5
    norms: Divisor = "heads"

    def __post_init__(self) -> None:
        refuse_window(self.window, self.kernel)
        if self.norms not in get_args(Divisor):
            raise ValueError(f"norms must be one of {', '.join(get_args(Divisor))}, not {self.norms!r}")

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({WindowPeaks(self.window, self.kernel), OutputNorms()})

    def score(self, view: View) -> Scores:
        if view.budget is None:
            raise ValueError("view.budget must say how many slots the event may leave: DefensiveKV asks it")
        peaks = of_all_layers(view, WindowPeaks(self.window, self.kernel))
        peak, mean = (torch.stack(parts) for parts in zip(*peaks, strict=True))
        norms = torch.stack(of_all_layers(view, OutputNorms())).to(peak.dtype)
        filled = view.filled.expand(peak.shape)
        past = filled & (from_last(filled) >= self.window)
        worth = worst_case(peak, past) * self.share(view, norms.masked_fill(~filled, 0), past)
        worth = worth.masked_fill(~past, 0)
        last = past & (from_last(filled) < 2 * self.window)
        rows = min(self.window, len(view.token_ids))
        bias = (mean * last).sum(-1).mean(-1) / rows  # [layer]
        held = filled.sum(-1, keepdim=True)
        share = (held - self.window).clamp(min=0) * view.budget // held.clamp(min=1)
        most = (share - self.window).clamp(min=0)
        sure = certain(mean, MASS - bias[:, None, None], past, most)
        return Scores(torch.where(sure, worth.amax((1, 2), keepdim=True), worth))

    def share(self, view: View, norms: Tensor, past: Tensor) -> Tensor:
        """norms [layer, kv_head, n], 0 where no slot is."""
        least = torch.finfo(norms.dtype).tiny
        if self.norms == "plain":
            return norms
        if self.norms == "tokens":
            return norms / (norms * past).sum(-1, keepdim=True).clamp(min=least)
        return norms / of_token(view, norms).clamp(min=least)


def of_token(view: View, norms: Tensor) -> Tensor:
    """The number of KV heads times the mean over those that hold the token of a slot: as `norms`."""
    if view.positions.shape[:2] == (1, 1):
        return norms.sum(1, keepdim=True).expand(norms.shape)
    positions = view.positions.expand(norms.shape)
    seen = len(view.token_ids)
    place = torch.where(positions >= 0, positions, seen)  # what is no slot: a column of its own
    empty = norms.new_zeros(*norms.shape[:2], seen + 1)
    total = empty.scatter(-1, place, norms).sum(1, keepdim=True)
    holders = empty.scatter(-1, place, torch.ones_like(norms)).sum(1, keepdim=True).clamp(min=1)
    mean: Tensor = (view.kv_heads * total / holders).expand(empty.shape).gather(-1, place)
    return mean


@dataclass(frozen=True)
class AcrossLayers(PerHead):
    """A set for each layer and KV head, of the highest scores of all layers and heads together.

    Protected slots are counted first, of every head: none can lose them to another.
    """

    def allocate(self, view: View, scores: Scores, protected: Tensor, budget: int) -> Allocation:
        slots = scores.slots
        row, kept = slots.reshape(1, 1, -1), protected.expand(slots.shape).reshape(1, 1, -1)
        every = uniform(row, budget * slots[..., 0].numel())
        return Allocation(highest(row, kept, every).view(slots.shape).sum(-1))


def defensivekv(window: int = 32, kernel: int = 5, norms: Divisor = "heads") -> Policy:
    """Keep the last `window` slots and, over the heads of a layer together, what was ever needed most.

    The aggregation is the largest attention of any of the last queries, with the mean of the head as the
    least that a slot is worth; Eq. 8 of the CrystalCache paper, which takes a multiple of a risk off, is
    another formula. Follows EfficientDefensiveKVPress of FFY0/DefensiveKV @ 9251b95. Departs from it: the
    window is protected, and not by a score that others may tie with; of equal scores the lower head and slot
    stays; a budget below the window is refused, where that code marks nearly every slot; float32 where it
    rounds attention to the dtype of the model.

    Heads of a layer hold different numbers of slots, whose mean is the budget. One event; the authors evict
    nothing while decoding. With an interval every event scores what is left by the last `window` queries,
    which are carried; of a token that some heads have evicted, the norm is shared out as if they had what the
    others have on average.
    """
    return Policy(
        scoring=Defensive(window, kernel, norms),
        routing=Adaptive(floor=0.0),
        protect=Protect(sinks=0, recent=window),
    )


def layer_defensivekv(window: int = 32, kernel: int = 5, norms: Divisor = "heads") -> Policy:
    """As `defensivekv`, over the heads of all layers together.

    Follows EfficientLayerDefensiveKVPress of FFY0/DefensiveKV @ 9251b95. Departs from it as `defensivekv`
    does; there a layer of low scores may be left with fewer slots than its window and its first stage have,
    of which some are then cut. Layers hold different numbers of slots, whose mean is the budget: nothing can
    be evicted before the last layer has been read, so that at its peak the cache is whole.
    """
    return Policy(
        scoring=Defensive(window, kernel, norms),
        routing=AcrossLayers(),
        protect=Protect(sinks=0, recent=window),
    )
