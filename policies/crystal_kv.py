"""Crystal-KV: keep what attention comes back to (arXiv:2601.16986). Not CrystalCache, which is `crystal`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from policies.routing import rounded

__all__ = ["Recalled", "adaptive_budget", "hits", "lrfu", "whole_budgets"]

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
    ordered, order = scores.sort(dim=-1, stable=True, descending=True)
    enough = ordered.cumsum(-1) - ordered >= p * (1 - ERROR)  # the higher scores alone
    return torch.empty_like(enough).scatter_(-1, order, ~enough)


def lrfu(scores: Tensor, crf: Tensor, last: Tensor, t: int, p: float, decay: float) -> Recalled:
    """One row of attention under "Least Recently Frequently Used": Algorithm 1, lines 3 to 12.

    scores [..., n]: attention of one head at time t. crf, last [..., n]: combined recency and frequency of
    each slot at its last reference, and the time of that. A hit decays up to t, gains 1 and is recorded; a
    miss decays for the ranking alone. So crf is the sum of decay^(last - t_j) over the references t_j.
    decay 1 counts references (LFU). At decay 0 a hit is worth 1 and every miss 0: not LRU, which the paper
    calls it, since misses tie. What is hit by a row that is not finite is not finite either.
    """
    hit = hits(scores, p)
    faded = crf * decay ** (t - last).to(crf.dtype)
    crf = torch.where(hit, faded + (1 + 0 * scores), crf)
    return Recalled(crf, torch.where(hit, t, last), torch.where(hit, crf, faded))


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
