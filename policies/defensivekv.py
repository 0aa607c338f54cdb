"""DefensiveKV: score slots by their maximum attention, not by the average (arXiv:2510.13334)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeAlias, get_args

import torch
from torch import Tensor
from torch.nn.functional import avg_pool1d, pad

from policies.contract import Allocation, AttentionRows, Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect, slots_after
from policies.routing import Adaptive, PerHead, uniform_counts
from policies.selection import select_highest
from policies.signals import EveryLayer, read_signal, running_sums, upcast
from policies.snapkv import refuse_window
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "defensivekv": PolicyFacts(
        "attention",
        "what any recent query attends to, weighted by what its value adds to the output",
        "arXiv:2510.13334",
        "The worst-case damage of dropping a slot matters, not the average damage.",
    ),
    "layer-defensivekv": PolicyFacts(
        "attention",
        "as defensivekv, but heads of all layers compete for the slots",
        "arXiv:2510.13334",
        "Layers with more risk need more slots, when compared across all layers.",
        parent="defensivekv",
        component="routing",
    ),
}

Divisor: TypeAlias = Literal["heads", "tokens", "plain"]

FIRST_STAGE_MASS = 0.9
"""Share of the attention to the past that the slots of the first stage cover, before a bias is subtracted."""
TOKEN_BLOCK = 512
"""Tokens whose outputs are computed at once: the largest tensor is [TOKEN_BLOCK, width] of one query head."""


class WindowSummary(NamedTuple):
    """Attention of the last queries to the slots before them: each [kv_head, n], 0 elsewhere."""

    peak: Tensor
    """The maximum over rows and query heads of a group, after each row is pooled."""
    mean: Tensor
    """The sum over rows of the mean over the group, not pooled."""


def summarise_window(attention: Tensor, past: Tensor, kernel: int) -> WindowSummary:
    """Summarise attention [kv_head, group, row, n] to the competing slots, past [kv_head, n].

    A row is averaged over `kernel` neighbours, where other slots count as 0, and rescaled to its total
    attention to the past before pooling.
    """
    past_attention = attention * past[:, None, None].to(attention.dtype)
    pooled = avg_pool1d(past_attention.flatten(0, 1), kernel, stride=1, padding=kernel // 2).view(past_attention.shape)
    pooled = pooled * past[:, None, None].to(past_attention.dtype)
    least = torch.finfo(past_attention.dtype).tiny
    pooled = pooled * (past_attention.sum(-1, keepdim=True) / pooled.sum(-1, keepdim=True).clamp(min=least))
    return WindowSummary(pooled.amax((1, 2)), past_attention.mean(1).sum(1))


def worst_case(peak: Tensor, past: Tensor) -> Tensor:
    """Return R: the peak, at least the mean of the head. peak, past [..., n] -> [..., n]; 0 beyond past."""
    mean = peak.sum(-1, keepdim=True) / past.sum(-1, keepdim=True).clamp(min=1)
    return peak.maximum(mean).masked_fill(~past, 0)


def first_stage_slots(mean: Tensor, threshold: Tensor, past: Tensor, most: Tensor) -> Tensor:
    """Return the slots of the first stage (of CriticalKV), bool, shaped like `mean` [..., n].

    In descending order of their mean attention, the slots up to which the cumulative share stays below the
    threshold, and at most `most` of a head. threshold and most [..., 1].
    """
    ranked = mean.masked_fill(~past, -1).sort(stable=True, dim=-1, descending=True)
    shares = ranked.values.clamp(min=0)
    shares = shares / shares.sum(-1, keepdim=True).clamp(min=torch.finfo(mean.dtype).tiny)
    first = (running_sums(shares) < threshold) & (torch.arange(mean.shape[-1], device=mean.device) < most)
    return torch.zeros_like(past).scatter(-1, ranked.indices, first) & past


def output_norms(values: Tensor, output: Tensor) -> Tensor:
    """Return nu: values [kv_head, n, d], output [q_head, d, width] -> [kv_head, n].

    ||v W||_1, where W is the slice of the output projection of a query head; mean over the heads of a group.
    """
    values, output = upcast(values), upcast(output)
    group = len(output) // len(values)
    norms = [
        (values[head // group, first : first + TOKEN_BLOCK] @ projection).abs().sum(-1)
        for head, projection in enumerate(output)
        for first in range(0, values.shape[1], TOKEN_BLOCK)
    ]
    return torch.cat(norms).view(len(values), group, -1).mean(1)


@dataclass(frozen=True)
class WindowPeaks(EveryLayer):
    """`summarise_window` of the last `window` queries, of every layer. Slots before these are the past."""

    window: int
    kernel: int
    raw: ClassVar[bool] = True

    def attend(self, rows: AttentionRows, before: WindowSummary | None) -> WindowSummary:
        assert rows.logits is not None
        first = max(0, rows.total - self.window - rows.start)
        attention = rows.attention[..., first:, :]
        count, n = attention.shape[-2:]
        # Only logits distinguish padding in a head that holds fewer slots than another.
        is_filled = (rows.logits[:, -1] != -torch.inf).view(rows.kv_heads, -1, n)[:, 0]
        slot_counts = is_filled.sum(-1, keepdim=True) + rows.total - rows.start - rows.attention.shape[-2]
        past = torch.arange(n, device=attention.device) < slot_counts - self.window
        new = summarise_window(attention.view(rows.kv_heads, -1, count, n), past, self.kernel)
        if before is None:
            return new
        peak, mean = (pad(part, (0, n - part.shape[-1])) for part in before)
        return WindowSummary(peak.maximum(new.peak), mean + new.mean)


@dataclass(frozen=True)
class OutputNorms:
    """`output_norms` of the stored values."""

    def project(self, layer: int, keys: Tensor, values: Tensor, filled: Tensor, output: Tensor) -> Tensor:
        return output_norms(values, output)


@dataclass(frozen=True)
class Defensive:
    """R of the last `window` queries times the norms of projected values; the first stage ranks above all.

    norms: the divisor of ||v W||. "heads": its sum over the KV heads of a layer, as in the authors' code of
        both methods; for a token that some heads do not hold, the number of heads times its mean over those
        that do (ours). "tokens": its sum over the slots of the head outside the window, the paper's
        Layer-DefensiveKV. "plain": none, the paper's DefensiveKV.

    The slots of the first stage get the highest score of their layer. Two oddities are those of the authors'
    code: their threshold is 0.9 minus the attention to the last `window` slots before the window, where the
    window's own share was probably intended; and their number is at most budget * (n - window) / n - window,
    where the complete budget was probably intended. The window itself scores 0: the policy has to protect it.
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
            raise ValueError(
                "view.budget must be set to the slots that the eviction step may leave, because DefensiveKV uses it"
            )
        peaks = read_signal(view, WindowPeaks(self.window, self.kernel))
        peak, mean = (torch.stack(parts) for parts in zip(*peaks, strict=True))
        norms = torch.stack(read_signal(view, OutputNorms())).to(peak.dtype)
        filled = view.filled.expand(peak.shape)
        past = filled & (slots_after(filled) >= self.window)
        worth = worst_case(peak, past) * self.normalise_norms(view, norms.masked_fill(~filled, 0), past)
        worth = worth.masked_fill(~past, 0)
        last = past & (slots_after(filled) < 2 * self.window)
        rows = min(self.window, len(view.token_ids))
        bias = (mean * last).sum(-1).mean(-1) / rows  # [layer]
        slot_counts = filled.sum(-1, keepdim=True)
        share = (slot_counts - self.window).clamp(min=0) * view.budget // slot_counts.clamp(min=1)
        most = (share - self.window).clamp(min=0)
        is_first_stage = first_stage_slots(mean, FIRST_STAGE_MASS - bias[:, None, None], past, most)
        return Scores(torch.where(is_first_stage, worth.amax((1, 2), keepdim=True), worth))

    def normalise_norms(self, view: View, norms: Tensor, past: Tensor) -> Tensor:
        """Divide norms [layer, kv_head, n], 0 for padding, by the divisor."""
        least = torch.finfo(norms.dtype).tiny
        if self.norms == "plain":
            return norms
        if self.norms == "tokens":
            return norms / (norms * past).sum(-1, keepdim=True).clamp(min=least)
        return norms / token_norms(view, norms).clamp(min=least)


def token_norms(view: View, norms: Tensor) -> Tensor:
    """Return the number of KV heads times the mean norm over those that hold the token; as `norms`."""
    if view.positions.shape[:2] == (1, 1):
        return norms.sum(1, keepdim=True).expand(norms.shape)
    positions = view.positions.expand(norms.shape)
    token_count = len(view.token_ids)
    column = torch.where(positions >= 0, positions, token_count)  # padding has a separate column
    empty = norms.new_zeros(*norms.shape[:2], token_count + 1)
    total = empty.scatter(-1, column, norms).sum(1, keepdim=True)
    holders = empty.scatter(-1, column, torch.ones_like(norms)).sum(1, keepdim=True).clamp(min=1)
    mean: Tensor = (view.kv_heads * total / holders).expand(empty.shape).gather(-1, column)
    return mean


@dataclass(frozen=True)
class AcrossLayers(PerHead):
    """A set for each layer and KV head, allocated by the highest scores of all layers and heads together.

    Protected slots of every head are counted first, so no head loses them to another.
    """

    def allocate(self, view: View, scores: Scores, protected: Tensor, budget: int) -> Allocation:
        slots = scores.slots
        row, protected_row = slots.reshape(1, 1, -1), protected.expand(slots.shape).reshape(1, 1, -1)
        total = uniform_counts(row, budget * slots[..., 0].numel())
        return Allocation(select_highest(row, protected_row, total).view(slots.shape).sum(-1))


def defensivekv(window: int = 32, kernel: int = 5, norms: Divisor = "heads") -> Policy:
    """Keep the last `window` slots and, over the heads of a layer together, those with the highest peak.

    The aggregation is the largest attention of any of the last queries, with the mean of the head as a lower
    bound; Eq. 8 of the CrystalCache paper, which subtracts a multiple of a risk, is another formula. Follows
    EfficientDefensiveKVPress of FFY0/DefensiveKV @ 9251b95. Departs from it: the window is protected, instead
    of getting a score that others may tie with; of equal scores the lower head and slot stays; a budget below
    the window is refused, where that code marks nearly every slot; attention is float32, where that code
    rounds it to the dtype of the model.

    Heads of a layer hold different numbers of slots, whose mean is the budget. One eviction step; the authors
    evict nothing while decoding. With an interval, every eviction step scores the remaining slots by the last
    `window` queries, which are carried; if some heads have evicted a token, its norm is divided as if they
    had the average norm of the others.
    """
    return Policy(
        scoring=Defensive(window, kernel, norms), routing=Adaptive(floor=0.0), protect=Protect(sinks=0, recent=window)
    )


def layer_defensivekv(window: int = 32, kernel: int = 5, norms: Divisor = "heads") -> Policy:
    """As `defensivekv`, over the heads of all layers together.

    Follows EfficientLayerDefensiveKVPress of FFY0/DefensiveKV @ 9251b95. Departs from it as `defensivekv`
    does; in that code a layer with low scores may get fewer slots than its window and first stage have, and
    loses some of them. Layers hold different numbers of slots, whose mean is the budget. Nothing can be
    evicted before the last layer has been processed, so the peak memory is that of the full cache.
    """
    return Policy(
        scoring=Defensive(window, kernel, norms), routing=AcrossLayers(), protect=Protect(sinks=0, recent=window)
    )
