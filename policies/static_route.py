"""The rejected variant `static_route`: an offline table selects uniform or attention scores for each head
(arXiv:2605.14292).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from policies.calibration import Calibrated, Routes
from policies.contract import Scores, Signal, View
from policies.policy import Policy
from policies.routing import PerHead
from policies.signals import read_calibration
from policies.triattention import per_head
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "static_route": PolicyFacts(
        "triattention",
        "as 1d-per-head, but evenly spaced slots in the heads that a table names",
        "Sun and Harn, arXiv:2605.14292",
        "An offline choice, head by head, between evenly spaced and scored slots beats either alone.",
        parent="1d-per-head",
        component="routing",
    )
}


@dataclass(frozen=True)
class StaticRoute(PerHead):
    """A set of equal size for each layer and KV head: its highest scores, or evenly spaced slots.

    routes: the name under which the table of choices was calibrated.
    """

    routes: str = "routes"

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({Calibrated(self.routes, Routes)})

    def rescore(self, view: View, scores: Scores) -> Scores:
        attention = read_calibration(view, self.routes, Routes).attention
        if attention.shape != (view.layers, view.kv_heads):
            raise ValueError(
                f"routes must be for {view.layers} layers and {view.kv_heads} KV heads, not "
                f"{list(attention.shape)}; calibrate the model again under {self.routes!r}"
            )
        assert view.budget is not None  # the policy says it
        filled = view.filled.expand(view.layers, view.kv_heads, -1)
        even = even_scores(filled, view.budget).to(scores.slots.dtype)
        return scores._replace(slots=torch.where(attention[..., None], scores.slots, even))


def even_scores(filled: Tensor, count: int) -> Tensor:
    """filled [..., n] -> [..., n] float64, above 0 at `count` evenly spaced slots, and 0 elsewhere.

    Of the m filled slots of a row these are round(i (m - 1) / (count - 1)), i = 0..count-1, halves rounded
    up, so they include the first and the last; for a count of 1, the first; all slots if there are fewer.
    Slot i scores the i-th value of a van der Corput sequence, so that if fewer slots are kept (some places
    may go to protected slots), the highest scores are still spread out.
    """
    slot_counts = filled.sum(-1, keepdim=True)
    index = torch.arange(count, device=filled.device)
    target_counts = slot_counts.clamp(max=count)
    steps = 2 * (target_counts - 1).clamp(min=1)
    rank = (2 * index * (slot_counts - 1) + steps // 2) // steps
    worth = torch.zeros(*filled.shape[:-1], filled.shape[-1] + 1, dtype=torch.float64, device=filled.device)
    # Indices without a slot in a row point past its end.
    rank = rank.masked_fill(index >= target_counts, filled.shape[-1])
    worth.scatter_(-1, rank, van_der_corput(count, filled.device).expand(rank.shape))
    slot_index = (filled.cumsum(-1) - 1).clamp(min=0)
    return worth.gather(-1, slot_index).masked_fill(~filled, 0)


def van_der_corput(count: int, device: torch.device) -> Tensor:
    """Return [count] distinct float64 values from (0, 1], whose highest values are spread out."""
    index = torch.arange(count, device=device)
    values = torch.zeros(count, dtype=torch.float64, device=device)
    for bit in range(max(1, (count - 1).bit_length())):
        values += (index >> bit & 1) * 0.5 ** (bit + 1)
    return 1 - values


def static_route() -> Policy:
    """`1d-per-head`, with evenly spaced slots in the heads that a table selects.

    The paper describes this rejected variant in one line: "an offline-calibrated per-head choice between
    uniform and attention scoring". Ours: uniform is `even_scores` over the slots of a head; attention is the
    score of `1d-per-head`; the table holds the choice that captures more of the attention in the model's own
    answers to calibration problems (`kv-prereg calibrate MODEL routes`); every head keeps the same number.
    """
    return replace(per_head(), routing=StaticRoute())
