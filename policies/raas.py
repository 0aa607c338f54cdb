"""RaaS: forget what no query has looked at for longest (arXiv:2502.11147)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from policies.contract import Rows, Scores, Signal, View
from policies.policy import Policy
from policies.protect import Pinned, Protect
from policies.routing import PerLayer
from policies.signals import EveryLayer, of_all_layers

__all__ = ["LastLooked", "Stamps", "raas", "stamps"]


def stamps(attention: Tensor, before: Tensor | None, start: int, threshold: float) -> Tensor:
    """When each slot was last looked at: int32 [..., 1, slot], one for all heads of a layer.

    attention [..., q_head, row, slot] of consecutive rows, the first at time `start`; before [..., 1, m], the
    stamps before them, slots m and later being new. A row stamps the slots to which some head gives
    `threshold` of its attention or more, and its own; a new slot carries the time at which it came.
    """
    rows, n = attention.shape[-2:]
    looked = attention.amax(-3, keepdim=True) >= threshold
    time = torch.arange(start, start + rows, dtype=torch.int32, device=attention.device)
    seen = torch.where(looked, time[:, None], -1).amax(-2)
    old = seen.shape[-1] if before is None else before.shape[-1]
    held = 0 if before is None else old
    born = torch.arange(start, start + n - held, dtype=torch.int32, device=attention.device)
    born = born.expand(*seen.shape[:-1], -1)
    return torch.maximum(seen, born if before is None else torch.cat([before, born], -1))


@dataclass(frozen=True)
class Stamps(EveryLayer):
    """`stamps`, carried on from row to row. Time is the position of the query."""

    threshold: float = 1e-4
    window: ClassVar[None] = None
    stacks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1:
            raise ValueError(f"threshold must be between 0 and 1, not {self.threshold}")

    def attend(self, rows: Rows, before: Tensor | None) -> Tensor:
        return stamps(rows.attention, before, rows.start, self.threshold)


@dataclass(frozen=True)
class LastLooked:
    """The later a slot was last looked at, the higher; of equal stamps, the later slot."""

    threshold: float = 1e-4
    stacks: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({Stamps(self.threshold)})

    def score(self, view: View) -> Scores:
        stamped = torch.stack(of_all_layers(view, Stamps(self.threshold)), -3).double()
        return Scores(stamped + view.positions / view.seen)


def raas(threshold: float = 1e-4) -> Policy:
    """Keep the prompt and, of the answer, the tokens that some head looked at most recently.

    The abstract and summaries of the paper name stamps that attention renews, the eviction of the oldest, and
    a prompt that is kept whole; its text was not at hand, and the threshold of 1e-4 is as others report it
    (they also report, instead of a threshold, the upper half of the cache). Ours: a slot is a token, where
    the authors work on pages of 16; one stamp for all heads of a layer, renewed as soon as one query head
    gives the slot its share; of equal stamps the later token stays; the last token cannot be evicted.
    The authors' repository (DerekHJH/RaaS) is another policy in the state that is public: each query head
    stamps the better half of the pages that a step may read, by a bound on their logits, the last page is
    spared, and pages are masked and never given back.

    The budget counts the prompt, of which the paper says nothing: a budget below the prompt is refused.
    Stamps are renewed at every token, whatever the interval; an interval lets the cache grow by as many
    tokens between two evictions, where the authors evict at every token. State: one int32 a slot and layer.
    """
    return Policy(
        scoring=LastLooked(threshold), routing=PerLayer(), protect=Pinned(Protect(sinks=0, recent=1))
    )
