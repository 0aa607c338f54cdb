"""ThinKV's annealing: what a transition of thought makes of the segments before it (arXiv:2510.01290).

When a segment of transition closes, ThinKV takes every earlier segment one step down the ladder of 64, 32,
16, 8 and 4 slots, and keeps of it the slots nearest to the centres of so many clusters of its keys, as they
lie in the cache. It published no code. `thinkv` leaves this out, as EpiKV does; `thinkv-annealed` is `thinkv`
with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from policies.contract import Scores, Segments, Signal, View
from policies.policy import Policy
from policies.signals import Keys, of_all_layers
from policies.thinkv import TRANSITION, Thoughts, thinkv

__all__ = ["AnnealedThoughts", "annealed", "ladder", "medoids", "thinkv_annealed"]

ROUNDS = 10
"""Of Lloyd's algorithm, at most; ours."""
ROUNDING = 1e-9
"""Squared distances that differ by no more than this part of the longest key are equal."""


def annealed(budgets: Tensor, kinds: Tensor, least: int) -> Tensor:
    """budgets, kinds [closed segment], oldest first -> int64 [closed segment], the slots that each may keep.

    Halved for every segment of transition that closed after it, down to `least`.
    """
    later = (kinds == TRANSITION).long().flip(0).cumsum(0).flip(0) - (kinds == TRANSITION).long()
    halved = budgets.div(2**later, rounding_mode="floor")
    return halved.clamp(min=least).minimum(budgets)


def ladder(most: int, least: int) -> tuple[int, ...]:
    """Half of `most`, half of that, and so on, down to `least`, after `most` itself."""
    sizes = [most]
    while sizes[-1] > max(1, least):
        sizes.append(max(1, least, sizes[-1] // 2))
    return tuple(sizes)


def medoids(keys: Tensor, members: Tensor, count: int) -> Tensor:
    """keys [row, m, d], members bool [row, m] -> bool [row, m]: of each of `count` clusters of the members
    the one that is nearest to its centre; all of them where they are no more.

    K-means by Lloyd's algorithm, by the Euclidean distance. What ThinKV leaves open is ours: it begins with
    members at equal distances in the text, so that nothing is drawn; a cluster that loses its last member
    keeps its centre and may win others; of equally near ones the first counts. Fewer than `count` where keys
    repeat.
    """
    held = members.sum(-1, keepdim=True)
    if (held <= count).all():
        return members
    keys = keys.double()
    # The first member of each of `count` equal parts.
    start = torch.arange(count, device=keys.device) * held // count
    order = (~members).byte().argsort(stable=True)  # False sorts before True: members first, in their order
    first = order.gather(-1, start.clamp(max=keys.shape[1] - 1))
    centres = keys.gather(1, first[..., None].expand(-1, -1, keys.shape[-1]))
    nearest = torch.full_like(order, -1)
    for _ in range(ROUNDS):
        before, nearest = nearest, distances(keys, centres).argmin(-1)
        if torch.equal(before, nearest):
            break
        own = members[..., None] & (nearest[..., None] == torch.arange(count, device=keys.device))
        weights = own.double().mT
        sizes = weights.sum(-1, keepdim=True)
        centres = torch.where(sizes > 0, weights @ keys / sizes.clamp(min=1), centres)
    away = distances(keys, centres)
    nearest = away.argmin(-1)
    own = members[..., None] & (nearest[..., None] == torch.arange(count, device=keys.device))
    away = away.masked_fill(~own, torch.inf)
    # Of two members both are equally near to their mean, whatever rounding makes of it.
    near = own & (
        away <= away.amin(1, keepdim=True) + ROUNDING * keys.square().sum(-1).amax(1)[:, None, None]
    )
    first = near & (near.cumsum(1) == 1)
    return torch.where(held <= count, members, first.any(-1))


def distances(keys: Tensor, centres: Tensor) -> Tensor:
    """[row, m, count], squared; without a tensor of all differences."""
    lengths = keys.square().sum(-1)[..., None] + centres.square().sum(-1)[:, None]
    return lengths - 2 * keys @ centres.mT


@dataclass(frozen=True)
class AnnealedThoughts(Thoughts):
    """As `Thoughts`, with budgets that fall at every transition, and slots that stay by clusters of their
    keys.

    A segment's budget is that of its kind when it closes (ThinKV begins with 64 for all kinds; the budgets of
    EpiKV are the parent's) and is halved by every later transition, down to `least`. Slots of a closed
    segment rank by how far down the ladder they are still medoids: those of 64 clusters, of these the ones of
    32, and so on to `least`; where that leaves room, and in the prompt and the open segment, by the scores of
    `base`. So a slot that stays at a low step has stayed at every one before, whatever budget asks for it.
    """

    @property
    def needs(self) -> frozenset[Signal]:
        return super().needs | {Keys()}

    def score(self, view: View) -> Scores:
        kinds = self.kinds(view)
        segments = self.segments(view, kinds)
        segments = segments._replace(budgets=annealed(segments.budgets, kinds, self.least))
        base = self.base.score(view).slots.expand(view.layers, view.kv_heads, -1)
        place = base.argsort(stable=True, descending=True).argsort().double() / base.shape[-1]
        scores = torch.where(base.isfinite(), self.steps(view, segments) - place, base.double())
        return Scores(scores, segments=segments)

    def steps(self, view: View, segments: Segments) -> Tensor:
        """[layer, kv_head, n], on how many steps of the ladder each slot of a closed segment is a medoid."""
        keys = torch.stack(of_all_layers(view, Keys()))
        of = segments.of.masked_fill(~view.filled, -1).expand(keys.shape[:-1])
        steps = torch.zeros(keys.shape[:-1], dtype=torch.float64, device=keys.device)
        for segment in range(1, len(segments.budgets) + 1):
            own = of == segment
            columns = own.any(0).any(0).nonzero().flatten()
            if not len(columns):
                continue
            inside = keys[:, :, columns].flatten(0, 1)
            left = own[:, :, columns].flatten(0, 1)
            for size in ladder(max(self.reasoning, self.execution, self.transition), self.least):
                left = medoids(inside, left, size) if size else torch.zeros_like(left)
                steps[:, :, columns] += left.view(*keys.shape[:2], -1)
        return steps


def thinkv_annealed() -> Policy:
    """`thinkv`, whose closed segments shrink at every transition, to the medoids of their keys."""
    parent = thinkv()
    scoring = parent.scoring
    assert isinstance(scoring, Thoughts)
    return replace(parent, scoring=AnnealedThoughts(scoring.base))
