"""What every part of a policy is given and what it owes: the values, the seams, the refusals.

ValueError
  BudgetError      a budget that cannot hold what the policy protects
  UnknownPolicy    a name that the catalogue does not hold
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

__all__ = [
    "BudgetError",
    "Protection",
    "Routing",
    "Scores",
    "Scoring",
    "Selection",
    "Signal",
    "Trunks",
    "UnknownPolicy",
    "View",
]


class BudgetError(ValueError):
    """The budget is below the protected set. It is never enlarged, nor the set emptied, to make it fit."""


class UnknownPolicy(ValueError):
    """No policy of this name."""


class Signal(Protocol):
    """One measurement of a prefill: a frozen, hashable value, so that equal signals are measured once."""

    def measure(self, layer: int, queries: Tensor, keys: Tensor, scale: float) -> Any | None:
        """What one layer says of one prompt; None where this signal wants nothing of the layer.

        queries [q_head, n, d] and keys [kv_head, n, d] carry their RoPE rotation, q_head is a multiple of
        kv_head (query head h reads KV head h // group), scale multiplies the logits. Works in float32 or
        better, in blocks of query rows: no [n, n] is ever held.
        """
        ...


class View(NamedTuple):
    """What a policy may see at an event. All tensors lie on one device."""

    token_ids: Tensor
    """[n] int64, the tokens in the cache."""
    layers: int
    kv_heads: int
    sentence_ends: frozenset[int]
    """Token ids that end a sentence."""
    seed: int
    """Stream key of this lane, for policies that draw."""
    signals: Mapping[Signal, tuple[Any, ...]]
    """What `measure` returned, one entry a layer, for every signal that the policy needs."""


class Trunks(NamedTuple):
    """Runs of neighbouring slots that are kept or dissolved as one unit (CrystalCache, section 3.3)."""

    spans: tuple[range, ...]
    """Disjoint, in order, together 0..n-1."""
    crystallization: Tensor
    """[trunk] float64 on the host: D, Eq. 27."""
    impact: Tensor
    """[trunk] float64 on the host: mean of the three highest members, Eq. 23."""


class Scores(NamedTuple):
    """How much every slot is worth."""

    slots: Tensor
    """[layer | 1, kv_head | 1, n], float32 or better and finite; higher is kept."""
    trunks: Trunks | None = None
    """Units for a selection that keeps more than single slots."""


class Scoring(Protocol):
    """Which signals, and a score for every slot."""

    @property
    def needs(self) -> frozenset[Signal]: ...

    def score(self, view: View) -> Scores: ...


class Selection(Protocol):
    """Scores and an allocation to kept slots."""

    @property
    def slack(self) -> int:
        """How many slots of its allocation a head may leave unused."""
        ...

    def select(self, scores: Scores, protected: Tensor, allocation: Tensor) -> Tensor:
        """Kept slots, bool [layer, kv_head, n].

        scores.slots [layer, kv_head, n] and allocation [layer, kv_head] have one row for each keep set,
        protected is [n].
        """
        ...


class Routing(Protocol):
    """Who shares a keep set, and how the budget is split over those who do not."""

    def route(self, scores: Scores, layers: int, kv_heads: int) -> Scores:
        """Scores with one row for each keep set: [layer | 1, kv_head | 1, n]."""
        ...

    def allocate(self, slots: Tensor, budget: int) -> Tensor:
        """Slots for each keep set, int64 [layer | 1, kv_head | 1]; their mean is the budget exactly."""
        ...


class Protection(Protocol):
    """Slots that no selection may drop."""

    def slots(self, n: int, budget: int, device: torch.device) -> Tensor:
        """[n] bool; True is kept whatever its score."""
        ...
