"""Crystal-KV: keep what attention comes back to (arXiv:2601.16986). Not CrystalCache, which is `crystal`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from policies.contract import Allocation, AttentionRows, Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect
from policies.routing import PerHead, round_counts, slots_per_head, uniform_counts
from policies.signals import EveryLayer, read_signal, running_sums, upcast
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "crystal-kv-lite": PolicyFacts(
        "crystal-kv",
        "slots that received attention often and recently. Crystal-KV, not CrystalCache",
        "arXiv:2601.16986",
        "Slots to which attention returned often and recently form the skeleton of the answer.",
    ),
    "crystal-kv": PolicyFacts(
        "crystal-kv",
        "as crystal-kv-lite, but budgets move between heads. Crystal-KV, not CrystalCache",
        "arXiv:2601.16986",
        "Heads with more hits need more slots at each eviction step.",
        parent="crystal-kv-lite",
        component="routing",
    ),
}

ERROR = 1e-6
"""Relative tolerance for sums of attention compared with p: the rounding error of float32."""


class ReferenceUpdate(NamedTuple):
    """The references of some slots after a row of attention, [..., n] each."""

    crf: Tensor
    """Combined recency and frequency at the time of the last reference."""
    last: Tensor
    """Time of the last reference."""
    effective: Tensor
    """Combined recency and frequency at the time of the row; slots are ranked by it."""


def hits(scores: Tensor, p: float) -> Tensor:
    """Return bool [..., n]: the fewest highest scores whose sum is at least p; ties go to the lower slot.

    scores [..., n] sum to 1. Section 5.2 says "exceed" p, which differs only at equality. In a row that is
    not finite every slot is hit.
    """
    return ~misses(scores, p)


def misses(scores: Tensor, p: float) -> Tensor:
    """Return the complement of `hits`: the higher scores reach p without the slot."""
    ordered, order = upcast(scores).sort(dim=-1, stable=True, descending=True)
    sums = running_sums(ordered)
    enough = sums[..., -1:].clamp(max=p * (1 - ERROR))  # where rounding leaves all of them below p
    missed = sums - ordered >= enough
    return torch.empty_like(missed).scatter_(-1, order, missed)


def lrfu(scores: Tensor, crf: Tensor, last: Tensor, t: int, p: float, decay: float) -> ReferenceUpdate:
    """One row of attention under "Least Recently Frequently Used": Algorithm 1, lines 3 to 12.

    scores [..., n]: attention of one head at time t. crf, last [..., n]: combined recency and frequency of
    each slot at its last reference, and the time of that reference. A hit decays crf up to t, adds 1 and is
    stored; a miss decays crf for the ranking only. So crf is the sum of decay^(last - t_j) over the
    references t_j. decay 1 counts references (LFU). At decay 0 a hit counts 1 and every miss 0: the paper
    calls this LRU, but misses tie. A row that is not finite makes crf of its hits not finite.
    """
    missed = misses(scores, p)
    faded = crf * decay ** (t - last).to(crf.dtype)
    reward = scores / scores  # 1 for hits, whose scores are positive; nan if the score is not finite
    crf = torch.where(missed, crf, faded + reward.to(crf.dtype))
    return ReferenceUpdate(crf, torch.where(missed, last, t), torch.where(missed, faded, crf))


def adaptive_budget(crf: Tensor, budget: Tensor, total: int) -> Tensor:
    """Algorithm 2: return the budget of every head, float64 [layer, head], with sum `total`.

    crf, budget [layer, head]: the summed combined recency and frequency of a head's slots, and its current
    budget. The total is split over layers, and a layer's part over its heads, in proportion to utilisation:
    crf / budget, or the ratio of the sums for a layer. If all crf are 0, the budgets do not change. A head
    without a budget has no crf either, and gets none.

    The map is a feedback without damping. If crf does not depend on the budget, two applications return the
    first budgets, up to a factor for each layer: it alternates and does not converge to its fixed point,
    budgets in proportion to the square root of crf.
    """
    crf, budget = crf.double(), budget.double()
    if ((budget <= 0) & (crf > 0)).any():
        raise ValueError("budget must be above 0 for every head whose crf is above 0; give every head a slot")
    if not crf.any():
        return budget
    layer_shares = utilisation_shares(crf.sum(-1), budget.sum(-1))
    head_shares = utilisation_shares(crf, budget)
    return total * layer_shares[:, None] * head_shares


def utilisation_shares(crf: Tensor, budget: Tensor) -> Tensor:
    """Return [..., entry]: fractions of 1 in proportion to crf / budget; 0 where crf is 0."""
    utilisation = crf / budget.masked_fill(crf == 0, 1)
    return utilisation / utilisation.sum(-1, keepdim=True).clamp(min=torch.finfo(crf.dtype).tiny)


def round_budgets(budget: Tensor, total: int, least: Tensor) -> Tensor:
    """Return integers in proportion to `budget` [layer, head], at least `least` [layer, head]; sum `total`.

    Raising an entry to its minimum reduces the others in proportion; rounding is by largest remainder, and
    ties go to the lower layer and head. least: integers, whose sum is at most the total.
    """
    if not budget.any():
        raise ValueError("budget must be above 0 for some head, because nothing can be split in proportion to zeros")
    is_fixed = torch.zeros_like(least, dtype=torch.bool)
    while True:
        left = total - int(least[is_fixed].sum())
        free = budget.double().masked_fill(is_fixed, 0)
        parts = torch.where(is_fixed, least, free * left / free.sum())
        below = parts < least - ERROR
        if not below.any():
            break
        is_fixed = is_fixed | below
    parts = parts.maximum(least).flatten()
    return round_counts(parts, torch.full_like(parts, torch.inf)).view(budget.shape)


class Reference(NamedTuple):
    """State of References, [..., kv_head, n] each."""

    crf: Tensor
    """float32, combined recency and frequency at the last reference: 1 or more; 0 for padding."""
    last: Tensor
    """int32, time of the last reference."""

    def begin(self, slots: Tensor, t: int) -> Reference:
        """Start `slots` [..., kv_head, new] with one reference at time t."""
        return Reference(self.crf.scatter(-1, slots, 1), self.last.scatter(-1, slots, t))


@dataclass(frozen=True)
class References(EveryLayer):
    """When and how often attention referred to each slot of a KV head, measured at every step regardless of
    the eviction interval: a Reference of [kv_head, n] of each layer.

    A row of a head is the mean of the softmax rows of its query heads, which sums to 1. Time is the number of
    tokens fed, so a token at position i arrives at time i + 1.
    p: fraction of a row's attention that hits cover. decay: factor on a reference per unit of time.
    """

    p: float
    decay: float
    window: ClassVar[None] = None
    of_whole: ClassVar[bool] = True

    def attend(self, rows: AttentionRows, before: Reference | None) -> Reference | None:
        count, n = rows.attention.shape[-2:]
        end = rows.start + count
        if rows.decoded:
            for row in range(count):
                before = self.add_row(rows, row, before, 1, rows.start + row + 1)
            return before
        if end < rows.total:  # only the last row of a prompt counts as a reference
            return before
        return self.add_row(rows, count - 1, before, n if before is None else count, end)

    def add_row(self, rows: AttentionRows, row: int, before: Reference | None, new: int, t: int) -> Reference:
        """Return the state after one row at time t, whose token is the last of the `new` slots.

        The new slot of the row starts with one reference at t, which replaces the row's attention to itself;
        the other new slots start at t - 1.
        """
        query_rows = rows.attention[..., row, :]
        *leading, _, n = query_rows.shape
        scores = query_rows.reshape(*leading, rows.kv_heads, -1, n).mean(-2)
        if before is None:
            crf = torch.zeros_like(scores, dtype=torch.float32)
            state = Reference(crf, crf.int())
        else:
            state = Reference(*(pad(part, (0, n - part.shape[-1])) for part in before))
        index = (state.crf > 0).sum(-1, keepdim=True)  # the first free slot of each head
        if new > 1:
            others = index + torch.arange(new - 1, device=index.device)
            state, index = state.begin(others, t - 1), index + (new - 1)
        crf, last, _ = lrfu(scores, *state, t, self.p, self.decay)
        return Reference(crf, last).begin(index, t)


def log_crf(crf: Tensor, last: Tensor, t: int, decay: float) -> Tensor:
    """Return the logarithm of crf at time t, float64: log(crf) - (t - last) log(1 / decay).

    decay^150 underflows float32 for a decay of 0.5 or less, so slots with old references would tie; their logarithms do
    not. The result is finite: the lowest number if crf is 0, which at decay 0 is every slot without a reference at t.
    """
    value = crf.double().log() + torch.xlogy((t - last).double(), decay)  # 0 log 0 is 0
    return value.clamp(min=torch.finfo(torch.float64).min)


@dataclass(frozen=True)
class Recency:
    """The logarithm of the combined recency and frequency of a slot at the eviction step."""

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
        layers = read_signal(view, References(self.p, self.decay))
        crf, last = (torch.stack(parts) for parts in zip(*layers, strict=True))
        return Scores(log_crf(crf, last, len(view.token_ids), self.decay))


class Budgets(NamedTuple):
    """The state of Utilised between eviction steps."""

    slots: Tensor
    """int64 [layer, kv_head]"""
    since: Tensor
    """int64, time of the allocation: the number of tokens fed."""


@dataclass(frozen=True)
class Utilised(PerHead):
    """A set for each layer and KV head, with budgets that follow utilisation: `adaptive_budget`.

    Budgets are equal at the first eviction step and change at the first step after `period` tokens. Their
    mean is always the budget. A head with a smaller budget evicts at once; a head with a larger one has room
    for later tokens, so the mean number of retained slots is at most the budget. Scores must be logarithms of
    crf, as `Recency` computes them; the crf of a head is the sum over its slots at the eviction step.

    period: in tokens; the paper says "periodically", 128 is ours. least: the minimum slots of a head, which
    is never below its protected slots, if the budget allows it; 16 is ours. The paper has no minimum, and
    without one a head with budget 0 would never get slots again.
    """

    bounds: ClassVar[bool] = True

    period: int = 128
    least: int = 16

    def __post_init__(self) -> None:
        if self.period < 1 or self.least < 1:
            raise ValueError(f"period and least must be 1 or more, not {self.period} and {self.least}")

    def allocate(self, view: View, scores: Scores, protected: Tensor, budget: int) -> Allocation:
        now, total = len(view.token_ids), budget * scores.slots[..., 0].numel()
        budgets, since = (
            (uniform_counts(scores.slots, budget), now) if view.routing_state is None else view.routing_state
        )
        if now - int(since) >= self.period:
            budgets, since = adaptive_budget(scores.slots.exp().sum(-1), budgets, total), now
        least = protected.expand(scores.slots.shape).sum(-1).clamp(min=min(self.least, budget))
        budgets = round_budgets(budgets, total, least)
        carried = Budgets(budgets, torch.as_tensor(since, device=budgets.device))
        return Allocation(budgets.minimum(slots_per_head(scores.slots)), carried)


def crystal_kv_lite(p: float = 0.9, decay: float = 0.6) -> Policy:
    """Keep, in each layer and KV head, the slots with the most frequent and most recent attention.

    Follows Algorithm 1 of the paper: each row of attention hits the fewest slots that cover p of it; slots
    are ranked by their combined recency and frequency, the sum of decay^(age) over their hits. Nothing is
    protected; the prompt competes. p 0.9 is the paper's; it recommends decays from 0.5 to 0.7. No code is
    public. All decays above 0 and up to 0.5 give the same order of evictions, up to rounding: the time of the
    last hit decides, then that of the previous one, and so on.

    Where the paper is silent: attention is scaled as the model scales it; the query heads of a group share the mean of
    their rows; a sum of exactly p is enough; time is counted in tokens; a token's arrival counts as one hit, since a
    token at 0 would be evicted at once; tokens of the prompt arrive just before its last row, which hits like the row
    of a decoded token. Departs from Algorithm 1: hits are counted from the end of the prompt on, not only once a head
    is full (its line 1), which would leave the first slots without a history.

    The paper evicts at every step while the model thinks. Here hits are counted at every step too, but slots
    are evicted at the end of the prefill and, with an interval, every `interval` tokens; with `[generation]
    think_only`, not after the end of thinking. The paper samples at temperature 0.6 with top-p 0.95
    (`[generation] top_p`), which is unrelated to the p of the hits.
    """
    return Policy(scoring=Recency(p, decay), routing=PerHead(), protect=Protect(sinks=0, recent=0))


def crystal_kv(p: float = 0.9, decay: float = 0.6, period: int = 128) -> Policy:
    """`crystal-kv-lite` with budgets that move to the layers and heads with the highest utilisation.

    Follows Algorithm 2 of the paper literally: it has no damping and may alternate (`adaptive_budget`).
    `Utilised` documents the choices where the paper is silent. Budgets change only at eviction steps: with an
    interval, at the first one after `period` tokens; without, never. An eviction step fires when the mean
    over heads is above the budget, so until then a head may grow beyond its own budget. The memory of a lane
    is the sum over its heads, without padding for heads with fewer slots.
    """
    return Policy(scoring=Recency(p, decay), routing=Utilised(period), protect=Protect(sinks=0, recent=0))
