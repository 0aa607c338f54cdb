"""ThinKV's annealing: each transition segment shrinks the budgets of earlier segments (arXiv:2510.01290).

When a transition segment closes, ThinKV moves every earlier segment one step down the ladder of 64, 32, 16, 8
and 4 slots. It clusters the cached keys of the segment into that many clusters and keeps the slots nearest to
their centres. It published no code. `thinkv` omits annealing, as EpiKV does; `thinkv-annealed` adds it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from policies.contract import Scores, Segments, Signal, View
from policies.policy import Policy
from policies.signals import Keys, read_signal
from policies.thinkv import TRANSITION, Thoughts, thinkv
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "thinkv-annealed": PolicyFacts(
        "thoughts",
        "as thinkv, but segments shrink at each transition",
        "arXiv:2510.01290",
        "Segments that later thoughts no longer use can shrink to a few medoids.",
        parent="thinkv",
        component="scoring",
    )
}

ROUNDS = 10
"Maximum number of iterations of Lloyd's algorithm; not specified by the paper."
ROUNDING = 1e-9
"""Squared distances are equal if they differ by at most this fraction of the largest squared key norm."""


def anneal_budgets(budgets: Tensor, kinds: Tensor, least: int) -> Tensor:
    """budgets, kinds [closed segment], oldest first -> int64 [closed segment], the slots that each may keep.

    A budget is halved for every transition segment that closed later, down to `least`.
    """
    later = (kinds == TRANSITION).long().flip(0).cumsum(0).flip(0) - (kinds == TRANSITION).long()
    halved = budgets.div(2**later, rounding_mode="floor")
    return halved.clamp(min=least).minimum(budgets)


def ladder(most: int, least: int) -> tuple[int, ...]:
    """Return `most`, half of it, half of that, and so on, down to `least`."""
    sizes = [most]
    while sizes[-1] > max(1, least):
        sizes.append(max(1, least, sizes[-1] // 2))
    return tuple(sizes)


def medoids(keys: Tensor, members: Tensor, count: int) -> Tensor:
    """Cluster the members and mark the one nearest to each centre; all members if there are at most `count`.

    keys [row, m, d], members bool [row, m] -> bool [row, m].

    K-means by Lloyd's algorithm with the Euclidean distance. What ThinKV leaves open is ours: the initial centres are
    members at equal distances in the text, so nothing is random; a cluster that loses its last member keeps its centre
    and may gain others; ties go to the first member. The result has fewer than `count` members if keys repeat.
    """
    member_count = members.sum(-1, keepdim=True)
    if (member_count <= count).all():
        return members
    keys = keys.double()
    # The first member of each of `count` equal parts.
    start = torch.arange(count, device=keys.device) * member_count // count
    order = (~members).byte().argsort(stable=True)  # False sorts before True: members first, in their order
    first = order.gather(-1, start.clamp(max=keys.shape[1] - 1))
    centres = keys.gather(1, first[..., None].expand(-1, -1, keys.shape[-1]))
    nearest = torch.full_like(order, -1)
    for _ in range(ROUNDS):
        previous, nearest = nearest, squared_distances(keys, centres).argmin(-1)
        if torch.equal(previous, nearest):
            break
        assigned = members[..., None] & (nearest[..., None] == torch.arange(count, device=keys.device))
        weights = assigned.double().mT
        sizes = weights.sum(-1, keepdim=True)
        centres = torch.where(sizes > 0, weights @ keys / sizes.clamp(min=1), centres)
    distance = squared_distances(keys, centres)
    nearest = distance.argmin(-1)
    assigned = members[..., None] & (nearest[..., None] == torch.arange(count, device=keys.device))
    distance = distance.masked_fill(~assigned, torch.inf)
    # Two members of one cluster are equally near to their mean, up to rounding.
    is_nearest = assigned & (
        distance <= distance.amin(1, keepdim=True) + ROUNDING * keys.square().sum(-1).amax(1)[:, None, None]
    )
    first = is_nearest & (is_nearest.cumsum(1) == 1)
    return torch.where(member_count <= count, members, first.any(-1))


def squared_distances(keys: Tensor, centres: Tensor) -> Tensor:
    """Return the squared distances [row, m, count] without forming a tensor of all differences."""
    lengths = keys.square().sum(-1)[..., None] + centres.square().sum(-1)[:, None]
    return lengths - 2 * keys @ centres.mT


@dataclass(frozen=True)
class AnnealedThoughts(Thoughts):
    """`Thoughts` with budgets that fall at every transition, and slots selected by clusters of their keys.

    A segment's budget is that of its kind when it closes (ThinKV begins with 64 for all kinds; the budgets of EpiKV are
    the parent's) and is halved by every later transition, down to `least`. Slots of a closed segment rank by how far
    down the ladder they remain medoids: first the medoids of 64 clusters, among these the medoids of 32, and so on to
    `least`. The scores of `base` rank the remaining slots, and all slots of the prompt and the open segment. A slot
    that is a medoid at a low step is one at every earlier step, so the ranking is nested across budgets.
    """

    @property
    def needs(self) -> frozenset[Signal]:
        return super().needs | {Keys()}

    def score(self, view: View) -> Scores:
        kinds = self.kinds(view)
        segments = self.segments(view, kinds)
        segments = segments._replace(budgets=anneal_budgets(segments.budgets, kinds, self.least))
        base = self.base.score(view).slots.expand(view.layers, view.kv_heads, -1)
        rank = base.argsort(stable=True, descending=True).argsort().double() / base.shape[-1]
        scores = torch.where(base.isfinite(), self.ladder_steps(view, segments) - rank, base.double())
        return Scores(scores, segments=segments)

    def ladder_steps(self, view: View, segments: Segments) -> Tensor:
        """Return [layer, kv_head, n]: at how many ladder steps a slot of a closed segment is a medoid."""
        keys = torch.stack(read_signal(view, Keys()))
        segment_ids = segments.segment_ids.masked_fill(~view.filled, -1).expand(keys.shape[:-1])
        steps = torch.zeros(keys.shape[:-1], dtype=torch.float64, device=keys.device)
        for segment in range(1, len(segments.budgets) + 1):
            in_segment = segment_ids == segment
            columns = in_segment.any(0).any(0).nonzero().flatten()
            if not len(columns):
                continue
            segment_keys = keys[:, :, columns].flatten(0, 1)
            remaining = in_segment[:, :, columns].flatten(0, 1)
            for size in ladder(max(self.reasoning, self.execution, self.transition), self.least):
                remaining = medoids(segment_keys, remaining, size) if size else torch.zeros_like(remaining)
                steps[:, :, columns] += remaining.view(*keys.shape[:2], -1)
        return steps


def thinkv_annealed() -> Policy:
    """`thinkv` with annealing: closed segments shrink at every transition, to the medoids of their keys."""
    parent = thinkv()
    scoring = parent.scoring
    assert isinstance(scoring, Thoughts)
    return replace(parent, scoring=AnnealedThoughts(scoring.base))
