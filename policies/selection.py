"""Scores and an allocation to kept slots. Ties are decided here, once: the lower position is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from policies.contract import Scores, Signal, View
from policies.signals import MeanValues, of_all_layers, wide

__all__ = ["Chunks", "Diverse", "TopK", "diverse", "highest", "signature"]

WINDOW = 512
"""Candidates among which `diverse` picks before it looks at the others again."""
HEAVIEST = 1e6
"""Above it float32 has little left of a score beside its penalty, and in the end no number at all."""


@dataclass(frozen=True)
class TopK:
    """The protected slots, then the highest scores."""

    stacks: ClassVar[bool] = True

    needs: ClassVar[frozenset[Signal]] = frozenset()
    unused: ClassVar[int] = 0

    def select(self, view: View, scores: Scores, protected: Tensor, allocation: Tensor) -> Tensor:
        return highest(scores.slots, protected, allocation)


@dataclass(frozen=True)
class Chunks:
    """The protected slots, then chunks of `size` neighbouring slots, the highest mean score first.

    Chunks are counted from the first slot of a head. Only slots that compete count in the mean, so a chunk
    that the protected slots or the end cut short is weighed like a whole one. The last chunk taken is cut to
    its highest scores: no slot of the allocation stays unused.
    """

    size: int
    stacks: ClassVar[bool] = True
    needs: ClassVar[frozenset[Signal]] = frozenset()
    unused: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size of a chunk must be 1 or more, not {self.size}")

    def select(self, view: View, scores: Scores, protected: Tensor, allocation: Tensor) -> Tensor:
        slots = scores.slots
        filled = slots > -torch.inf
        worth = self.means(slots, filled & ~protected)
        rank = worth.argsort(stable=True, descending=True).argsort()
        chunk = torch.arange(slots.shape[-1], device=slots.device) // self.within(slots)
        order = rank[..., chunk].masked_fill(~filled, len(chunk)).masked_fill(protected, -1)
        by_score = slots.argsort(stable=True, descending=True)
        by_order = order.gather(-1, by_score).argsort(stable=True)
        return first(by_score.gather(-1, by_order), allocation)

    def within(self, slots: Tensor) -> int:
        """Slots of a chunk, of which a longer one than the cache has no more."""
        return min(self.size, slots.shape[-1])

    def means(self, slots: Tensor, compete: Tensor) -> Tensor:
        """[..., layer, kv_head, chunk]; 0 of a chunk in which no slot competes."""
        size = self.within(slots)
        short = -slots.shape[-1] % size

        def summed(values: Tensor) -> Tensor:
            return functional.pad(values, (0, short)).reshape(*values.shape[:-1], -1, size).sum(-1)

        counts = summed(compete.to(slots.dtype))
        return summed(slots.masked_fill(~compete, 0)) / counts.clamp(min=1)


@dataclass(frozen=True)
class Diverse:
    """The protected slots, then one after the other the slot that adds most to those already kept.

    Algorithm 1 of Sun and Harn, "Minimal-Intervention KV Retention via Set-Conditioned Diversity": a slot
    adds its score less `weight` times its largest cosine to a kept slot, if that is positive; `diverse`. The
    protected slots, of which the paper has none, are kept before the first pick and count in the cosines.
    weight: in units of the score; 0 is TopK, slot for slot. A head that holds other slots than the rest of
    its model has no signatures of its own, so all of them must share one keep set.
    """

    weight: float = 0.5
    stacks: ClassVar[bool] = True
    needs: ClassVar[frozenset[Signal]] = frozenset({MeanValues()})
    unused: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= HEAVIEST:
            raise ValueError(
                f"weight must be 0 (no penalty) or more, at most {HEAVIEST:.0f}, not {self.weight}"
            )

    def select(self, view: View, scores: Scores, protected: Tensor, allocation: Tensor) -> Tensor:
        weight = self.weight_at(view)
        if weight == 0:
            return highest(scores.slots, protected, allocation)
        slots, k = scores.slots, int(allocation.flatten()[0])
        ranked = slots.masked_fill(protected, torch.inf)
        if (ranked != ranked[..., :1, :1, :]).any() or (allocation != k).any():
            raise ValueError(
                f"{type(self).__name__} keeps one set for all layers and heads: choose Shared as routing"
            )
        shared, held = slots[..., 0, 0, :], protected[..., 0, 0, :]
        kept = torch.zeros_like(shared, dtype=torch.bool)
        picks = diverse(shared, self.signatures(view), k, weight, held=held)
        return kept.scatter_(-1, picks, value=True)[..., None, None, :].expand(slots.shape)

    def weight_at(self, view: View) -> float:
        """Of this event."""
        return self.weight

    def signatures(self, view: View) -> Tensor:
        """[n, d] of unit length, whose products are the cosines."""
        return signature(torch.stack(of_all_layers(view, MeanValues()), -3)[..., None, :, :])


def signature(values: Tensor) -> Tensor:
    """values [..., layer, kv_head, n, d] -> [..., n, d] of unit length: where the values of a slot point.

    Equation 1 of Sun and Harn, with 1e-8 as the epsilon that they leave open; float32 or better.
    """
    mean = wide(values).mean((-4, -3))
    unit: Tensor = mean / (mean.norm(dim=-1, keepdim=True) + 1e-8)
    return unit


def diverse(
    scores: Tensor, signatures: Tensor, k: int, weight: float, *, held: Tensor | None = None
) -> Tensor:
    """The k slots that Algorithm 1 of Sun and Harn keeps, ascending, on the device of the scores: [k], or all
    where they are fewer.

    scores [n]; signatures [n, d] of unit length; weight, 0 or more, of the penalty. held [n] bool: slots that
    are kept before the first pick and count among the k; none in the paper. Ties: the lowest slot. All three
    may have a leading axis for lanes, whose picks are made side by side.

    Without the matrix of all cosines: what a slot adds only falls as others are kept, so an old value bounds
    it from above. Picks are made among WINDOW candidates, whose cosines are all known, until the best of them
    adds no more than the bound of a slot outside; then all are brought up to date and the window is chosen
    anew. Works on the host. Cosines are formed in float64 and rounded to the dtype of the scores (float32 or
    better), so that equal signatures are equally near whatever the order of summation.
    """
    n, device = scores.shape[-1], scores.device
    if k >= n:
        return torch.arange(n, device=device).expand(scores.shape)
    if scores.dim() > 1:
        return diverse_each(scores, signatures, k, weight, held)
    taken = torch.zeros(n, dtype=torch.bool, device=device) if held is None else held
    if weight == 0:
        ranked = scores.masked_fill(taken, torch.inf).argsort(stable=True, descending=True)
        return ranked[:k].sort().values
    worth = wide(scores).cpu()
    unit = signatures.cpu().double()
    kept = taken.nonzero().flatten().tolist()
    gains = penalised(worth, unit, unit[kept], weight) if kept else worth.clone()
    gains[kept] = -torch.inf
    while len(kept) < k:
        order = gains.argsort(stable=True, descending=True)
        window, outside = order[:WINDOW].sort().values, order[WINDOW:]
        places = window.tolist()
        bound, rival = (float(gains[outside[0]]), int(outside[0])) if len(outside) else (-torch.inf, n)
        inside = gains[window]
        after = penalties(worth[window], unit[window], unit[window], weight)
        rows = after.fill_diagonal_(-torch.inf).unbind()  # a slot is not picked twice
        picks: list[int] = []
        while len(kept) + len(picks) < k:
            best, at = inside.max(0)
            place, gain = int(at), float(best)
            if gain < bound or (gain == bound and places[place] > rival):
                break
            picks.append(place)
            torch.minimum(inside, rows[place], out=inside)
        kept += [places[place] for place in picks]
        gains[window] = inside
        if len(kept) < k:
            seen = unit[window[picks]]
            gains[outside] = gains[outside].minimum(penalised(worth[outside], unit[outside], seen, weight))
    return torch.tensor(sorted(kept), device=device)


def diverse_each(scores: Tensor, signatures: Tensor, k: int, weight: float, held: Tensor | None) -> Tensor:
    """`diverse` of several lanes: int64 [lane, k]."""
    lanes, n = scores.shape
    if weight == 0 or n > WINDOW or (held is not None and held.any()):
        owns = [None] * lanes if held is None else held.expand(scores.shape)
        each = zip(scores, signatures, owns, strict=True)
        return torch.stack([diverse(own, unit, k, weight, held=taken) for own, unit, taken in each])
    gains, units = wide(scores).cpu().clone(), signatures.cpu().double()
    # Formed lane by lane, as `product` has it.
    after = torch.stack([penalties(*own, own[1], weight) for own in zip(gains, units, strict=True)])
    after.diagonal(dim1=-2, dim2=-1).fill_(-torch.inf)  # a slot is not picked twice
    rows, first = after.flatten(0, 1), torch.arange(lanes) * n
    picks = []
    for _ in range(k):
        at = gains.argmax(-1)
        picks.append(at)
        torch.minimum(gains, rows.index_select(0, first + at), out=gains)
    return torch.stack(picks, -1).sort().values.to(scores.device)


def penalties(worth: Tensor, unit: Tensor, kept: Tensor, weight: float) -> Tensor:
    """worth [n], unit [n, d], kept [m, d] -> [m, n], what each slot would add beside each kept one alone."""
    return worth - weight * (kept @ unit.T).to(worth.dtype).clamp(min=0)


def penalised(worth: Tensor, unit: Tensor, kept: Tensor, weight: float) -> Tensor:
    """[n], what each slot would add beside all of the kept ones."""
    nearest = (kept @ unit.T).amax(0).to(worth.dtype).clamp(min=0)
    return worth - weight * nearest


def highest(slots: Tensor, protected: Tensor, allocation: Tensor) -> Tensor:
    """Mask of the protected slots, then the highest scores; the arguments as `TopK.select` gets them."""
    # Scores are finite by now, so infinity puts the protected slots above every other.
    return first(slots.masked_fill(protected, torch.inf).argsort(stable=True, descending=True), allocation)


def first(ranked: Tensor, allocation: Tensor) -> Tensor:
    """Mask of the first `allocation` [..., kv_head] slots of those `ranked` [..., kv_head, n]."""
    place = torch.arange(ranked.shape[-1], device=ranked.device)
    within = place < allocation[..., None]
    return torch.zeros_like(within).scatter(-1, ranked, within)
