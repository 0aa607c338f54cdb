"""The gate `static_route`: each head uniform or attention-scored, by an offline table (arXiv:2605.14292)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from policies.calibrated import Calibrated, Routes
from policies.contract import Scores, Signal, View
from policies.policy import Policy
from policies.routing import PerHead
from policies.signals import calibrated
from policies.triattention import per_head

__all__ = ["StaticRoute", "evenly", "static_route"]


@dataclass(frozen=True)
class StaticRoute(PerHead):
    """A set of equal size for each layer and KV head: its highest scores, or slots at even distances.

    routes: the name under which the table was calibrated that says which.
    """

    routes: str = "routes"

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({Calibrated(self.routes, Routes)})

    def rescored(self, view: View, scores: Scores) -> Scores:
        attention = calibrated(view, self.routes, Routes).attention
        if attention.shape != (view.layers, view.kv_heads):
            raise ValueError(
                f"routes must be of {view.layers} layers and {view.kv_heads} KV heads, not of "
                f"{list(attention.shape)}: calibrate the model under {self.routes!r} anew"
            )
        assert view.budget is not None  # the policy says it
        filled = view.filled.expand(view.layers, view.kv_heads, -1)
        even = evenly(filled, view.budget).to(scores.slots.dtype)
        return scores._replace(slots=torch.where(attention[..., None], scores.slots, even))


def evenly(filled: Tensor, count: int) -> Tensor:
    """filled [..., n] -> [..., n] float64, more than 0 at `count` slots at even distances, and 0 elsewhere.

    Of the m filled slots of a row these are the round(i (m - 1) / (count - 1)), i = 0..count-1, halves up, so
    the first and the last are among them; of a single one, the first. All of them where there are fewer.
    Should others be kept in their place, those with the least here go first: the places i have the values of
    a van der Corput sequence, so that what is left is still spread out.
    """
    held = filled.sum(-1, keepdim=True)
    place = torch.arange(count, device=filled.device)
    wanted = held.clamp(max=count)
    steps = 2 * (wanted - 1).clamp(min=1)
    rank = (2 * place * (held - 1) + steps // 2) // steps
    worth = torch.zeros(*filled.shape[:-1], filled.shape[-1] + 1, dtype=torch.float64, device=filled.device)
    # Places that a row has no slot for go behind its end.
    rank = rank.masked_fill(place >= wanted, filled.shape[-1])
    worth.scatter_(-1, rank, spread(count, filled.device).expand(rank.shape))
    own = (filled.cumsum(-1) - 1).clamp(min=0)
    return worth.gather(-1, own).masked_fill(~filled, 0)


def spread(count: int, device: torch.device) -> Tensor:
    """[count] float64 from (0, 1], all different: any of the highest lie far apart."""
    place = torch.arange(count, device=device)
    turned = torch.zeros(count, dtype=torch.float64, device=device)
    for bit in range(max(1, (count - 1).bit_length())):
        turned += (place >> bit & 1) * 0.5 ** (bit + 1)
    return 1 - turned


def static_route() -> Policy:
    """`1d-per-head`, but for heads that a table sends to slots at even distances.

    The paper describes the gate by one line: "an offline-calibrated per-head choice between uniform and
    attention scoring". Ours: uniform is `evenly`, over what a head holds; attention is the score of
    `1d-per-head`; the table is the choice that captures more of the attention of the model's own answers to
    calibration problems (`kv-prereg calibrate MODEL routes`); every head keeps the same number.
    """
    return replace(per_head(), routing=StaticRoute())
