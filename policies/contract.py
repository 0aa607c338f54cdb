"""What every part of a policy is given and what it owes: the values, the seams, the refusals.

ValueError
  BudgetError      a budget that cannot hold what the policy protects
  UnknownPolicy    a name that the catalogue does not hold
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

from policies.calibrated import Calibrated

__all__ = [
    "Allocation",
    "AttentionSignal",
    "BudgetError",
    "CacheSignal",
    "Fed",
    "FedSignal",
    "HiddenSignal",
    "InBands",
    "InUnits",
    "Measured",
    "Protection",
    "Remembered",
    "Routing",
    "Rows",
    "Scores",
    "Scoring",
    "Segments",
    "Selection",
    "Signal",
    "Trunks",
    "UnknownPolicy",
    "View",
    "WholeUnits",
]


class BudgetError(ValueError):
    """The budget is below the protected set. It is never enlarged, nor the set emptied, to make it fit."""


class UnknownPolicy(ValueError):
    """No policy of this name."""


class Rows(NamedTuple):
    """Consecutive rows of causal attention, as the engine forms them."""

    attention: Tensor
    """[..., q_head, row, slot], float32 or better; 0 where a row may not see a slot. In a prefill the slots
    are those up to the last row; while decoding there is one row, and a leading axis for the layers. The
    next block overlays this one: a signal keeps sums or copies, never a view.
    """
    layer: int
    """Layer of the rows in a prefill; the first of the stacked layers while decoding."""
    start: int
    """Number of rows before the first of these."""
    total: int
    """Rows there are in all: the length of the prompt, or as many as have been seen while decoding."""
    kv_heads: int
    """Of the layer: query head h reads KV head h // (query heads / KV heads)."""
    decoded: bool = False
    """Whether they are rows of tokens of the answer, and not of the prompt."""
    logits: Tensor | None = None
    """As `attention`, before the softmax: -inf where a row may not see a slot. For a signal that is `raw`."""


@runtime_checkable
class AttentionSignal(Protocol):
    """What attention says of the slots, folded over blocks of rows, so that no [n, n] is ever held.

    Signals are frozen, hashable values: equal signals are measured once, whoever needs them.
    """

    @property
    def window(self) -> int | None:
        """How many rows, counted from the last, it reads; None for all of them."""
        ...

    @property
    def carried(self) -> bool:
        """Whether it can be measured while decoding.

        Without a window its state is then part of the policy's per-slot memory: every tensor in it has the
        axes [layer, head, slot], and the engine keeps the columns of the kept slots at an event. It has as
        many heads as the queries, or the keys, or one, where all heads of a layer hold the same slots.
        """
        ...

    @property
    def afresh(self) -> bool:
        """Whether it begins anew after each event, in place of being carried over it.

        It then reads one layer, and what outlives an event is in the memory of the scoring.
        """
        ...

    @property
    def raw(self) -> bool:
        """Whether it reads `Rows.logits`."""
        ...

    @property
    def of_tokens(self) -> bool:
        """Whether its state is of the tokens that were fed, one entry each on the last axis, and not of the
        slots: then no event evicts from it.
        """
        ...

    def reads(self, layer: int) -> bool: ...

    def attend(self, rows: Rows, before: Any | None) -> Any:
        """The state after these rows, given the state before them (None at the first)."""
        ...

    def result(self, state: Any) -> Any:
        """What a View holds, out of the state after the last row; the state stays as it is."""
        ...


@runtime_checkable
class CacheSignal(Protocol):
    """What the stored keys and values say of the slots, measured at every event."""

    def summarise(self, layer: int, keys: Tensor, values: Tensor, filled: Tensor) -> Any:
        """keys and values [kv_head, n, d] with their RoPE rotation, filled [kv_head, n]: where a slot is."""
        ...


class Fed(NamedTuple):
    """What a forward shows of the tokens that it fed."""

    keys: Tensor
    """[..., kv_head, t, d] with their RoPE rotation; while decoding, a leading axis for the layers."""
    values: Tensor
    """As `keys`."""
    start: int
    """Position of the first."""
    prompt: int
    """How many tokens the prompt has."""


@runtime_checkable
class FedSignal(Protocol):
    """What keys and values say of the tokens, folded over the tokens as they are fed.

    Its state is of tokens and not of slots: no event evicts from it.
    """

    def reads(self, layer: int) -> bool: ...

    def fold(self, fed: Fed, before: Any | None) -> Any:
        """The state after these tokens, however many at a time they are fed. In every tensor of it a leading
        axis for the layers while decoding, and none in the prefill.
        """
        ...

    def result(self, state: Any) -> Any:
        """What a View holds, out of the state after the last token; the state stays as it is."""
        ...


@runtime_checkable
class HiddenSignal(Protocol):
    """What the output of some decoder layers says of the tokens, folded over the tokens as they are fed."""

    def layers_in(self, layers: int) -> tuple[int, ...]:
        """The layers that it reads in a model of so many, ascending. ValueError where it finds none."""
        ...

    def change(self, hidden: Tensor, before: Any | None) -> Any:
        """hidden [t, width] of the next t tokens in one layer; the state after them, however many at a time
        they are fed. It is never evicted from.
        """
        ...


Measured: TypeAlias = AttentionSignal | CacheSignal | FedSignal | HiddenSignal
"""What the engine measures on the way."""

Signal: TypeAlias = Measured | Calibrated
"""What a policy may ask for."""


class View(NamedTuple):
    """What a policy may see at an event. All tensors lie on one device."""

    token_ids: Tensor
    """[t] int64, every token seen."""
    layers: int
    kv_heads: int
    sentence_ends: frozenset[int]
    """Token ids that end a sentence."""
    seed: int
    """Stream key of this lane and event, for policies that draw."""
    signals: Mapping[Signal, Any]
    """By signal that the policy needs: one entry per layer (None of a layer that it does not read), or the
    value of a Calibrated.
    """
    stored: Tensor | None = None
    """[layer | 1, kv_head | 1, n] int64, the position of each slot, ascending; -1 beyond the slots of a head
    that holds fewer than another. None at the end of a prefill, where every token has its slot.
    """
    memory: Remembered | None = None
    """What the scoring remembers of the last event; None at the first."""
    prompt: int = 0
    """How many of the tokens seen are the prompt's; the others are the answer's."""
    routed: Any = None
    """What the routing carried from the last event; None at the first."""
    budget: int | None = None
    """Slots per KV head and layer that the event may leave, of which a `Policy` tells its parts."""

    @property
    def positions(self) -> Tensor:
        """[layer | 1, kv_head | 1, n], `stored` or 0..t-1."""
        if self.stored is not None:
            return self.stored
        return torch.arange(len(self.token_ids), device=self.token_ids.device).view(1, 1, -1)

    @property
    def filled(self) -> Tensor:
        """[layer | 1, kv_head | 1, n] bool, where a slot is."""
        return self.positions >= 0

    @property
    def slots(self) -> int:
        """n: the slots of the fullest head."""
        return len(self.token_ids) if self.stored is None else self.stored.shape[-1]


@runtime_checkable
class Remembered(Protocol):
    """What a scoring knows of the slots from one event to the next, in the order of the slots."""

    def after(self, kept: Tensor) -> Remembered:
        """What is left of it when of the slots only kept [layer, kv_head, n] stay."""
        ...

    def tensors(self) -> tuple[Tensor, ...]:
        """All that it holds, for the count of bytes."""
        ...


class Trunks(NamedTuple):
    """Runs of neighbouring slots that are kept or dissolved as one unit (CrystalCache, section 3.3)."""

    spans: tuple[range, ...]
    """Disjoint, in order, together 0..n-1."""
    crystallization: Tensor
    """[trunk] float64 on the host: D, Eq. 27."""
    impact: Tensor
    """[trunk] float64 on the host: mean of the three highest members, Eq. 23."""


class Segments(NamedTuple):
    """Stretches of the text within which slots compete, oldest first: the prompt, segments of the answer that
    are closed, and the one that is open.
    """

    of: Tensor
    """[layer | 1, kv_head | 1, n] int64, the segment of each slot; any where no slot is."""
    budgets: Tensor
    """[closed segment] int64, the slots that it may keep beside the protected ones."""
    least: int
    """Slots that a closed segment keeps beside the protected ones as long as others have more."""


class Scores(NamedTuple):
    """How much every slot is worth."""

    slots: Tensor
    """[layer | 1, kv_head | 1, n], float32 or better, finite where a slot is; higher is kept."""
    trunks: Trunks | None = None
    """Units for a selection that keeps more than single slots."""
    memory: Remembered | None = None
    """What the scoring wants back at the next event, should there be one."""
    segments: Segments | None = None
    """For a routing and a selection that keep a number of slots of each."""


class Scoring(Protocol):
    """Which signals, and a score for every slot."""

    @property
    def needs(self) -> frozenset[Signal]: ...

    def score(self, view: View) -> Scores: ...


@runtime_checkable
class InBands(Protocol):
    """A scoring that sets layers of a model against others."""

    def refuse_depth(self, layers: int) -> None:
        """ValueError where a model of so many layers has no such layers, or the same ones twice."""
        ...


@runtime_checkable
class InUnits(Protocol):
    """A scoring whose scores come with units of several slots, such as trunks."""

    @property
    def longest(self) -> int:
        """The most slots that a unit can have, whatever the text says."""
        ...


class Selection(Protocol):
    """Scores and an allocation to kept slots."""

    @property
    def needs(self) -> frozenset[Signal]:
        """What it reads beside the scores."""
        ...

    @property
    def unused(self) -> int:
        """How many slots of its allocation a head may leave unused."""
        ...

    def select(self, view: View, scores: Scores, protected: Tensor, allocation: Tensor) -> Tensor:
        """Kept slots, bool [layer, kv_head, n].

        view holds the signals of `needs`. scores.slots [layer, kv_head, n] and allocation [layer, kv_head]
        have one row for each keep set; scores are -inf where no slot is.
        protected [layer | 1, kv_head | 1, n].
        """
        ...


@runtime_checkable
class WholeUnits(Protocol):
    """A selection that keeps whole the unit of every protected slot."""

    @property
    def exceeds(self) -> bool:
        """Whether it keeps these units also where they are more than the allocation; else it refuses that."""
        ...


class Allocation(NamedTuple):
    """How many slots each keep set gets."""

    counts: Tensor
    """int64 [layer | 1, kv_head | 1], none more than the set holds."""
    carried: Any = None
    """What the routing wants back at the next event, should there be one: tensors, in tuples or alone, which
    no event evicts from.
    """


class Routing(Protocol):
    """Who shares a keep set, and how the budget is split over those who do not."""

    @property
    def bounds(self) -> bool:
        """Whether the budget is an upper bound of the mean of its counts, in place of that mean exactly."""
        ...

    def route(self, scores: Scores, layers: int, kv_heads: int) -> Scores:
        """Scores with one row for each keep set: [layer | 1, kv_head | 1, n]."""
        ...

    def allocate(self, view: View, scores: Scores, protected: Tensor, budget: int) -> Allocation:
        """view, scores, protected: as a selection gets them. `view.routed` is what it carried."""
        ...


class Protection(Protocol):
    """Slots that no selection may drop."""

    def slots(self, filled: Tensor, budget: int, *, decoding: bool, prompt: Tensor | None = None) -> Tensor:
        """[layer | 1, kv_head | 1, n] bool, as `filled`; True is kept whatever its score.

        decoding: at an event after the first, which is the end of the prefill.
        prompt: the filled slots that are the prompt's, as `filled`; None where all of them are.
        """
        ...
