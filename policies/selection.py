"""Selection of the retained slots by scores and allocation. Ties keep the lower position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from policies.contract import Scores, Signal, View
from policies.signals import MeanValues, read_signal, upcast

WINDOW = 512
"""Candidates among which `select_diverse` picks before it updates the others."""
HEAVIEST = 1e6
"""Largest penalty weight: above it float32 loses the score next to its penalty, and finally overflows."""


@dataclass(frozen=True)
class TopK:
    """The protected slots, then the highest scores."""

    stacks: ClassVar[bool] = True

    needs: ClassVar[frozenset[Signal]] = frozenset()
    unused: ClassVar[int] = 0

    def select(self, view: View, scores: Scores, protected: Tensor, allocation: Tensor) -> Tensor:
        return select_highest(scores.slots, protected, allocation)


@dataclass(frozen=True)
class Chunks:
    """The protected slots, then chunks of `size` neighbouring slots, the highest mean score first.

    Chunks are counted from the first slot of a head. Only competing slots count in the mean, so a chunk that
    is shortened by protected slots or by the end competes like a complete one. The last selected chunk is cut
    to its highest scores, so the allocation is used completely.
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
        chunk = torch.arange(slots.shape[-1], device=slots.device) // self.chunk_size(slots)
        order = rank[..., chunk].masked_fill(~filled, len(chunk)).masked_fill(protected, -1)
        by_score = slots.argsort(stable=True, descending=True)
        by_order = order.gather(-1, by_score).argsort(stable=True)
        return select_first(by_score.gather(-1, by_order), allocation)

    def chunk_size(self, slots: Tensor) -> int:
        """Return the chunk size, at most the number of slots."""
        return min(self.size, slots.shape[-1])

    def means(self, slots: Tensor, compete: Tensor) -> Tensor:
        """Return the mean scores [..., layer, kv_head, chunk]; 0 for a chunk without competing slots."""
        size = self.chunk_size(slots)
        short = -slots.shape[-1] % size

        def sum_chunks(values: Tensor) -> Tensor:
            return functional.pad(values, (0, short)).reshape(*values.shape[:-1], -1, size).sum(-1)

        counts = sum_chunks(compete.to(slots.dtype))
        return sum_chunks(slots.masked_fill(~compete, 0)) / counts.clamp(min=1)


@dataclass(frozen=True)
class Diverse:
    """The protected slots, then greedily the slot that adds most to those already selected.

    Algorithm 1 of Sun and Harn, "Minimal-Intervention KV Retention via Set-Conditioned Diversity": a slot
    adds its score minus `weight` times its largest cosine to a selected slot, if that is positive; see
    `select_diverse`. Protected slots, which the paper does not have, are selected before the first pick and
    count in the cosines. weight: in units of the score; 0 equals TopK, slot for slot. Signatures average over
    layers and heads, so all heads must share one keep set.
    """

    weight: float = 0.5
    stacks: ClassVar[bool] = True
    needs: ClassVar[frozenset[Signal]] = frozenset({MeanValues()})
    unused: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= HEAVIEST:
            raise ValueError(f"weight must be 0 (no penalty) or more, at most {HEAVIEST:.0f}, not {self.weight}")

    def select(self, view: View, scores: Scores, protected: Tensor, allocation: Tensor) -> Tensor:
        weight = self.weight_at(view)
        if weight == 0:
            return select_highest(scores.slots, protected, allocation)
        slots, k = scores.slots, int(allocation.flatten()[0])
        ranked = slots.masked_fill(protected, torch.inf)
        if (ranked != ranked[..., :1, :1, :]).any() or (allocation != k).any():
            raise ValueError(f"{type(self).__name__} keeps one set for all layers and heads; choose Shared as routing")
        shared, preselected = slots[..., 0, 0, :], protected[..., 0, 0, :]
        retained = torch.zeros_like(shared, dtype=torch.bool)
        picks = select_diverse(shared, self.signatures(view), k, weight, preselected=preselected)
        return retained.scatter_(-1, picks, value=True)[..., None, None, :].expand(slots.shape)

    def weight_at(self, view: View) -> float:
        """Return the weight of this eviction step."""
        return self.weight

    def signatures(self, view: View) -> Tensor:
        """Return the signatures [n, d] of unit length, whose products are the cosines."""
        return signature(torch.stack(read_signal(view, MeanValues()), -3)[..., None, :, :])


def signature(values: Tensor) -> Tensor:
    """values [..., layer, kv_head, n, d] -> [..., n, d] of unit length, the direction of the mean value.

    Equation 1 of Sun and Harn, with epsilon 1e-8, which they do not specify; float32 or better.
    """
    mean = upcast(values).mean((-4, -3))
    unit: Tensor = mean / (mean.norm(dim=-1, keepdim=True) + 1e-8)
    return unit


def select_diverse(
    scores: Tensor, signatures: Tensor, k: int, weight: float, *, preselected: Tensor | None = None
) -> Tensor:
    """Return the k slots that Algorithm 1 of Sun and Harn selects, ascending, on the device of the scores:
    [k], or all if there are fewer.

    scores [n]; signatures [n, d] of unit length; weight of the penalty, 0 or more. preselected [n] bool:
    slots that are selected before the first pick and count among the k; none in the paper. Ties: the lowest
    slot. All three tensors may have a leading axis for lanes, which are processed side by side.

    The matrix of all cosines is never formed. The gain of a slot only falls as others are selected, so an old
    gain is an upper bound. Picks are made among WINDOW candidates, whose mutual cosines are known, until the
    best of them gains no more than the bound of a slot outside; then all gains are updated and a new window
    is chosen. Works on the host. Cosines are computed in float64 and rounded to the dtype of the scores
    (float32 or better), so that ties do not depend on the order of summation.
    """
    n, device = scores.shape[-1], scores.device
    if k >= n:
        return torch.arange(n, device=device).expand(scores.shape)
    if scores.dim() > 1:
        return select_diverse_batch(scores, signatures, k, weight, preselected)
    taken = torch.zeros(n, dtype=torch.bool, device=device) if preselected is None else preselected
    if weight == 0:
        ranked = scores.masked_fill(taken, torch.inf).argsort(stable=True, descending=True)
        return ranked[:k].sort().values
    worth = upcast(scores).cpu()
    unit = signatures.cpu().double()
    retained = taken.nonzero().flatten().tolist()
    gains = penalised_scores(worth, unit, unit[retained], weight) if retained else worth.clone()
    gains[retained] = -torch.inf
    while len(retained) < k:
        order = gains.argsort(stable=True, descending=True)
        window, outside = order[:WINDOW].sort().values, order[WINDOW:]
        places = window.tolist()
        bound, rival = (float(gains[outside[0]]), int(outside[0])) if len(outside) else (-torch.inf, n)
        window_gains = gains[window]
        pair_gains = pairwise_gains(worth[window], unit[window], unit[window], weight)
        rows = pair_gains.fill_diagonal_(-torch.inf).unbind()  # a slot is not picked twice
        picks: list[int] = []
        while len(retained) + len(picks) < k:
            best, argmax = window_gains.max(0)
            index, gain = int(argmax), float(best)
            if gain < bound or (gain == bound and places[index] > rival):
                break
            picks.append(index)
            torch.minimum(window_gains, rows[index], out=window_gains)
        retained += [places[index] for index in picks]
        gains[window] = window_gains
        if len(retained) < k:
            picked_units = unit[window[picks]]
            gains[outside] = gains[outside].minimum(
                penalised_scores(worth[outside], unit[outside], picked_units, weight)
            )
    return torch.tensor(sorted(retained), dtype=torch.int64, device=device)  # an empty list would be float32


def select_diverse_batch(
    scores: Tensor, signatures: Tensor, k: int, weight: float, preselected: Tensor | None
) -> Tensor:
    """`select_diverse` for a batch of lanes: int64 [lane, k]."""
    lanes, n = scores.shape
    if weight == 0 or k == 0 or n > WINDOW or (preselected is not None and preselected.any()):
        preselections = [None] * lanes if preselected is None else preselected.expand(scores.shape)
        inputs = zip(scores, signatures, preselections, strict=True)
        return torch.stack(
            [select_diverse(lane_input, unit, k, weight, preselected=taken) for lane_input, unit, taken in inputs]
        )
    gains, units = upcast(scores).cpu().clone(), signatures.cpu().double()
    # Computed lane by lane, like `lane_matmul`.
    pair_gains = torch.stack(
        [pairwise_gains(*lane_input, lane_input[1], weight) for lane_input in zip(gains, units, strict=True)]
    )
    pair_gains.diagonal(dim1=-2, dim2=-1).fill_(-torch.inf)  # a slot is not picked twice
    rows, row_starts = pair_gains.flatten(0, 1), torch.arange(lanes) * n
    picks = []
    for _ in range(k):
        picked = gains.argmax(-1)
        picks.append(picked)
        torch.minimum(gains, rows.index_select(0, row_starts + picked), out=gains)
    return torch.stack(picks, -1).sort().values.to(scores.device)


def pairwise_gains(worth: Tensor, unit: Tensor, retained: Tensor, weight: float) -> Tensor:
    """worth [n], unit [n, d], retained [m, d] -> [m, n], the gain of each slot given one retained slot."""
    return worth - weight * (retained @ unit.T).to(worth.dtype).clamp(min=0)


def penalised_scores(worth: Tensor, unit: Tensor, retained: Tensor, weight: float) -> Tensor:
    """Return the gains [n] of each slot given all retained ones."""
    nearest = (retained @ unit.T).amax(0).to(worth.dtype).clamp(min=0)
    return worth - weight * nearest


def select_highest(slots: Tensor, protected: Tensor, allocation: Tensor) -> Tensor:
    """Return a mask of the protected slots, then the highest scores; arguments as in `TopK.select`."""
    # Scores are finite here, so infinity ranks the protected slots above all others.
    return select_first(slots.masked_fill(protected, torch.inf).argsort(stable=True, descending=True), allocation)


def select_first(ranked: Tensor, allocation: Tensor) -> Tensor:
    """Return a mask of the first `allocation` [..., kv_head] slots of `ranked` [..., kv_head, n]."""
    rank = torch.arange(ranked.shape[-1], device=ranked.device)
    within = rank < allocation[..., None]
    return torch.zeros_like(within).scatter(-1, ranked, within)
