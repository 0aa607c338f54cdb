"""Crystal-KV: keep what attention comes back to (arXiv:2601.16986). Not CrystalCache, which is `crystal`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from policies.contract import Allocation, Rows, Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect
from policies.routing import PerHead, held, rounded, uniform
from policies.signals import EveryLayer, of_all_layers, running_sums, wide

__all__ = [
    "Budgets",
    "Recalled",
    "Recency",
    "Reference",
    "References",
    "Utilised",
    "adaptive_budget",
    "crystal_kv",
    "crystal_kv_lite",
    "hits",
    "log_crf",
    "lrfu",
    "whole_budgets",
]

ERROR = 1e-6
"""Share of p by which a sum of attention may fall short of it: what float32 leaves of an exact sum."""


class Recalled(NamedTuple):
    """What a row of attention leaves of the references to some slots, [..., n] each."""

    crf: Tensor
    """Combined recency and frequency at the time of the last reference."""
    last: Tensor
    """Time of the last reference."""
    effective: Tensor
    """Combined recency and frequency at the time of the row: what slots are ranked by."""


def hits(scores: Tensor, p: float) -> Tensor:
    """Bool [..., n]: the fewest of the highest scores whose sum is p or more, the lower slot of equal ones.

    scores [..., n], which sum to 1. "Exceed" p, as the text of section 5.2 has it, would differ at equality
    alone. Of a row that is not finite everything is hit.
    """
    return ~misses(scores, p)


def misses(scores: Tensor, p: float) -> Tensor:
    """What `hits` leaves: the higher scores reach p without it."""
    ordered, order = wide(scores).sort(dim=-1, stable=True, descending=True)
    sums = running_sums(ordered)
    enough = sums[..., -1:].clamp(max=p * (1 - ERROR))  # where rounding leaves all of them below p
    missed = sums - ordered >= enough
    return torch.empty_like(missed).scatter_(-1, order, missed)


def lrfu(scores: Tensor, crf: Tensor, last: Tensor, t: int, p: float, decay: float) -> Recalled:
    """One row of attention under "Least Recently Frequently Used": Algorithm 1, lines 3 to 12.

    scores [..., n]: attention of one head at time t. crf, last [..., n]: combined recency and frequency of
    each slot at its last reference, and the time of that. A hit decays up to t, gains 1 and is recorded; a
    miss decays for the ranking alone. So crf is the sum of decay^(last - t_j) over the references t_j.
    decay 1 counts references (LFU). At decay 0 a hit is worth 1 and every miss 0: not LRU, which the paper
    calls it, since misses tie. What is hit by a row that is not finite is not finite either.
    """
    missed = misses(scores, p)
    faded = crf * decay ** (t - last).to(crf.dtype)
    reward = scores / scores  # 1, as what is hit has a score; nan where that is not finite
    crf = torch.where(missed, crf, faded + reward.to(crf.dtype))
    return Recalled(crf, torch.where(missed, last, t), torch.where(missed, faded, crf))


def adaptive_budget(crf: Tensor, budget: Tensor, total: int) -> Tensor:
    """Algorithm 2: the budget of every head, float64 [layer, head], whose sum is `total` slots.

    crf, budget [layer, head]: the combined recency and frequency of all slots of a head, and its slots until
    now. A layer gets its part of the total, and a head its part of that of its layer, in proportion to their
    utilisation: crf over budget, of a layer sum over sum. Without any crf nothing tells heads apart, and the
    budgets stay as they are. A head without a budget has no crf either, and gets none.

    The literal map is a feedback without damping. Where crf does not follow the budget, two applications
    give back the first budgets, up to a factor for each layer: it alternates and does not converge to its
    fixed point, budgets in proportion to the square root of crf.
    """
    crf, budget = crf.double(), budget.double()
    if ((budget <= 0) & (crf > 0)).any():
        raise ValueError("budget must be above 0 for a head whose crf is: give every head a slot")
    if not crf.any():
        return budget
    of_layers = shares(crf.sum(-1), budget.sum(-1))
    of_heads = shares(crf, budget)
    return total * of_layers[:, None] * of_heads


def shares(crf: Tensor, budget: Tensor) -> Tensor:
    """[..., entry]: parts of one in proportion to crf / budget; nothing where there is no crf."""
    utilisation = crf / budget.masked_fill(crf == 0, 1)
    return utilisation / utilisation.sum(-1, keepdim=True).clamp(min=torch.finfo(crf.dtype).tiny)


def whole_budgets(budget: Tensor, total: int, least: Tensor) -> Tensor:
    """Whole numbers in proportion to `budget` [layer, head], none below `least` [layer, head]; sum `total`.

    What lifts an entry to its least is taken from the others in proportion; then by largest remainder, equal
    ones to the lower layer and head. least: whole numbers, whose sum is at most the total.
    """
    if not budget.any():
        raise ValueError("budget must be above 0 for some head: in proportion to nothing there is no split")
    low = torch.zeros_like(least, dtype=torch.bool)
    while True:
        left = total - int(least[low].sum())
        free = budget.double().masked_fill(low, 0)
        parts = torch.where(low, least, free * left / free.sum())
        below = parts < least - ERROR
        if not below.any():
            break
        low = low | below
    parts = parts.maximum(least).flatten()
    return rounded(parts, torch.full_like(parts, torch.inf)).view(budget.shape)


class Reference(NamedTuple):
    """State of References: of each slot, [..., kv_head, n]."""

    crf: Tensor
    """float32, combined recency and frequency at the last reference: 1 or more; 0 where no slot is."""
    last: Tensor
    """int32, time of the last reference."""

    def begin(self, at: Tensor, t: int) -> Reference:
        """Slots `at` [..., kv_head, new] begin with one reference at time t."""
        return Reference(self.crf.scatter(-1, at, 1), self.last.scatter(-1, at, t))


@dataclass(frozen=True)
class References(EveryLayer):
    """When and how often attention came to each slot of a KV head, measured at every step whatever the
    interval of events: a Reference of [kv_head, n] of each layer.

    A row of a head is the mean of the softmax rows of its query heads, which sums to 1. Time is the number of
    tokens seen, so that a token that is fed at position i arrives at time i + 1.
    p: share of the attention of a row that hits take. decay: of what a reference is worth, each time.
    """

    p: float
    decay: float
    window: ClassVar[None] = None
    of_whole: ClassVar[bool] = True

    def attend(self, rows: Rows, before: Reference | None) -> Reference | None:
        count, n = rows.attention.shape[-2:]
        end = rows.start + count
        if rows.decoded:
            for row in range(count):
                before = self.refer(rows, row, before, 1, rows.start + row + 1)
            return before
        if end < rows.total:  # of the rows of a prompt only the last one refers to slots
            return before
        return self.refer(rows, count - 1, before, n if before is None else count, end)

    def refer(self, rows: Rows, row: int, before: Reference | None, new: int, t: int) -> Reference:
        """After one row, whose own slot is the last of the `new` ones and begins at its time t.

        The others of them began just before; a row's reference to its own slot is not counted beside that.
        """
        of_queries = rows.attention[..., row, :]
        *leading, _, n = of_queries.shape
        scores = of_queries.reshape(*leading, rows.kv_heads, -1, n).mean(-2)
        if before is None:
            crf = torch.zeros_like(scores, dtype=torch.float32)
            state = Reference(crf, crf.int())
        else:
            state = Reference(*(pad(part, (0, n - part.shape[-1])) for part in before))
        own = (state.crf > 0).sum(-1, keepdim=True)  # in each head, after the slots that it holds
        if new > 1:
            others = own + torch.arange(new - 1, device=own.device)
            state, own = state.begin(others, t - 1), own + (new - 1)
        crf, last, _ = lrfu(scores, *state, t, self.p, self.decay)
        return Reference(crf, last).begin(own, t)


def log_crf(crf: Tensor, last: Tensor, t: int, decay: float) -> Tensor:
    """Logarithm of combined recency and frequency at time t, float64: log(crf) - (t - last) log(1 / decay).

    A float32 of decay^150 is 0 from a decay of 0.5 down, so that slots which attention left long ago would
    tie; their logarithms do not. Finite: the lowest number where the value is 0, which at decay 0 is every
    slot that was not referred to at t.
    """
    value = crf.double().log() + torch.xlogy((t - last).double(), decay)  # 0 log 0 is 0
    return value.clamp(min=torch.finfo(torch.float64).min)


@dataclass(frozen=True)
class Recency:
    """The logarithm of the combined recency and frequency of a slot, at the time of the event."""

    p: float = 0.9
    decay: float = 0.6

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise ValueError(f"p must be above 0 and at most 1 (a share of attention), not {self.p}")
        if not 0 <= self.decay <= 1:
            raise ValueError(f"decay must be between 0 and 1, not {self.decay}")

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({References(self.p, self.decay)})

    def score(self, view: View) -> Scores:
        layers = of_all_layers(view, References(self.p, self.decay))
        crf, last = (torch.stack(parts) for parts in zip(*layers, strict=True))
        return Scores(log_crf(crf, last, len(view.token_ids), self.decay))


class Budgets(NamedTuple):
    """What Utilised carries from event to event."""

    slots: Tensor
    """int64 [layer, kv_head]"""
    since: Tensor
    """int64, time at which they were given: the number of tokens seen."""


@dataclass(frozen=True)
class Utilised(PerHead):
    """A set for each layer and KV head, with budgets that follow utilisation: `adaptive_budget`.

    Equal budgets at the first event; new ones at the first event after `period` tokens. Their mean is the
    budget at every event. A head that is given less evicts at once; one that is given more has that room for
    tokens to come, so that the mean of what is kept is at most the budget. Reads scores as logarithms of crf,
    as `Recency` forms them; the crf of a head is the sum over the slots that it holds when the event fires.

    period: tokens; the paper says "periodically", 128 is ours. least: no head gets fewer slots, nor fewer
    than it protects, as long as the budget allows that; 16 is ours, the paper has no floor, and without
    one a head that nothing was given would never be given anything again.
    """

    bounds: ClassVar[bool] = True

    period: int = 128
    least: int = 16

    def __post_init__(self) -> None:
        if self.period < 1 or self.least < 1:
            raise ValueError(f"period and least must be 1 or more, not {self.period} and {self.least}")

    def allocate(self, view: View, scores: Scores, protected: Tensor, budget: int) -> Allocation:
        now, total = len(view.token_ids), budget * scores.slots[..., 0].numel()
        given, since = (uniform(scores.slots, budget), now) if view.routed is None else view.routed
        if now - int(since) >= self.period:
            given, since = adaptive_budget(scores.slots.exp().sum(-1), given, total), now
        least = protected.expand(scores.slots.shape).sum(-1).clamp(min=min(self.least, budget))
        given = whole_budgets(given, total, least)
        carried = Budgets(given, torch.as_tensor(since, device=given.device))
        return Allocation(given.minimum(held(scores.slots)), carried)


def crystal_kv_lite(p: float = 0.9, decay: float = 0.6) -> Policy:
    """Keep, in each layer and KV head, the slots that attention came back to most and last.

    Follows Algorithm 1 of the paper: each row of attention hits the fewest slots that take p of it; slots are
    ranked by their combined recency and frequency, the sum of decay^(age) over their hits. Nothing is
    protected, the prompt competes. p 0.9 is the paper's; it recommends decays from 0.5 to 0.7. No code is
    public. For decays from above 0 to 0.5 the order of evictions is one and the same, up to rounding: the
    time of the last hit decides, then that of the one before it, and so on.

    Readings of what is open: attention is scaled as the model scales it; the query heads of a group share
    the mean of their rows; a sum of exactly p is enough; time is counted in tokens; arriving counts as one
    hit, since a token at 0 would be evicted at once; so it does for the tokens of a prompt, just before its
    last row, which hits like the row of a decoded token. Departs from Algorithm 1: hits are counted from the
    end of the prompt on, and not only once a head is full (its line 1), which would leave the first slots
    without a history.

    The paper evicts at every step and while the model thinks. Hits are counted at every step here too, but
    slots are evicted at the end of the prefill and, with an interval, every so many tokens; with
    `[generation] think_only` not after the mark that ends thinking. The paper samples at temperature 0.6 with
    top-p 0.95 (`[generation] top_p`), which is not the p of the hits.
    """
    return Policy(scoring=Recency(p, decay), routing=PerHead(), protect=Protect(sinks=0, recent=0))


def crystal_kv(p: float = 0.9, decay: float = 0.6, period: int = 128) -> Policy:
    """`crystal-kv-lite` with budgets that move to the layers and heads which use theirs most.

    Follows Algorithm 2 of the paper, literally: it has no damping and may alternate (`adaptive_budget`).
    Readings of what is open are in `Utilised`. Budgets change only at events: with an interval, at the first
    one after `period` tokens; without, never. An event fires when the mean over heads is above the budget,
    so that until then a head may grow beyond its own. What a lane holds is summed over heads that hold
    different numbers of slots, in memory that has no room for what they do not hold.
    """
    return Policy(scoring=Recency(p, decay), routing=Utilised(period), protect=Protect(sinks=0, recent=0))
