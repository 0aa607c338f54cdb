"""What every part of a policy is given and what it owes: the values, the seams, the refusals.

ValueError
  BudgetError      a budget that cannot hold what the policy protects
  UnknownPolicy    a name that the catalogue does not hold
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from policies.coded import Codec, Merging
from policies.kinds import Kind
from policies.measured import (
    AskedSignal,
    AttentionSignal,
    CacheSignal,
    Fed,
    FedSignal,
    HiddenSignal,
    Mark,
    Measured,
    OfWhole,
    OutputSignal,
    Rotation,
    Rows,
    Signal,
    Turning,
)

__all__ = [
    "Allocation",
    "AskedSignal",
    "AttentionSignal",
    "BudgetError",
    "CacheSignal",
    "Codec",
    "Decoding",
    "Fed",
    "FedSignal",
    "HiddenSignal",
    "InBands",
    "InUnits",
    "Mark",
    "Measured",
    "Merging",
    "OfWhole",
    "OutputSignal",
    "Protection",
    "Remembered",
    "Rescores",
    "Rotation",
    "Routing",
    "Rows",
    "Scores",
    "Scoring",
    "Sees",
    "Segments",
    "Selection",
    "Several",
    "Signal",
    "Stacks",
    "State",
    "Trunks",
    "Turning",
    "UnknownPolicy",
    "View",
    "WholeUnits",
]


class BudgetError(ValueError):
    """The budget is below the protected set. It is never enlarged, nor the set emptied, to make it fit."""


class UnknownPolicy(ValueError):
    """No policy of this name."""


class Several(NamedTuple):
    """What lanes that are asked together do not share, each [lane, 1, 1, 1] int64."""

    seen: Tensor
    """Tokens that each has seen."""
    prompt: Tensor
    """How many of these are its prompt's."""


@runtime_checkable
class Stacks(Protocol, metaclass=Kind):
    """A part of a policy, or a signal, that works on several lanes at once: every tensor that it is given has
    a leading axis for the lanes, and so has what it returns, which is for each lane what it would be alone,
    bit for bit. Optional: where one part of a policy is none, each lane is asked alone.

    It draws nothing, since lanes have seeds of their own, and reads of the tokens their number alone
    (`View.seen`). In `Rows`, start and total are those of one of the lanes; their difference is that of all.
    """

    @property
    def stacks(self) -> bool:
        """Counts where the class says it itself: one that inherits it may do otherwise (`together`)."""
        ...


class View(NamedTuple):
    """What a policy may see at an event. All tensors lie on one device."""

    token_ids: Tensor
    """[t] int64, every token seen; of several lanes [lane, 0]."""
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
    """How many of the tokens seen are the prompt's; the others the answer's. Of several lanes 0, as seed."""
    routed: Any = None
    """What the routing carried from the last event; None at the first."""
    budget: int | None = None
    """Slots per KV head and layer that the event may leave, of which a `Policy` tells its parts."""
    rotation: Rotation | None = None
    """Of the model; None where it does not turn every pair of a head."""
    weights: Tensor | None = None
    """[layer | 1, kv_head | 1, n] float32, how many tokens each slot stands for; None where each is one."""
    lines: Mapping[Mark, tuple[range, ...]] = MappingProxyType({})
    """By mark that the policy looks for: positions of the marked stretches of the answer, oldest first and
    disjoint; the last one may be unfinished.
    """
    several: Several | None = None
    """Not None in a view of several lanes at once, which only parts that take them get (`Stacks`)."""

    @property
    def seen(self) -> int | Tensor:
        """Tokens seen; of several lanes [lane, 1, 1, 1]."""
        return len(self.token_ids) if self.several is None else self.several.seen

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
class Remembered(Protocol, metaclass=Kind):
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
class InBands(Protocol, metaclass=Kind):
    """A scoring that sets layers of a model against others."""

    def refuse_depth(self, layers: int) -> None:
        """ValueError where a model of so many layers has no such layers, or the same ones twice."""
        ...


@runtime_checkable
class InUnits(Protocol, metaclass=Kind):
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
class WholeUnits(Protocol, metaclass=Kind):
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


@runtime_checkable
class Rescores(Protocol, metaclass=Kind):
    """A routing that scores some heads otherwise than the policy's scoring does."""

    @property
    def needs(self) -> frozenset[Signal]: ...

    def rescored(self, view: View, scores: Scores) -> Scores:
        """The scores that are routed, [layer | 1, kv_head | 1, n], in the place of those of the scoring."""
        ...


class State(Protocol):
    """What a slot stores."""

    @property
    def needs(self) -> frozenset[Signal]:
        """What it reads at an event, and what was calibrated for it."""
        ...

    @property
    def merges(self) -> bool:
        """Whether slots may stand for several tokens; then their number is stored with each, in float32."""
        ...

    @property
    def mass(self) -> bool:
        """Whether the logarithm of this number is added to the attention logit of the slot."""
        ...

    def merge(self, view: View, scores: Scores, protected: Tensor, kept: Tensor) -> Merging | None:
        """What becomes of the slots, given those that the selection kept; None where they are all there is.

        scores, protected: as a selection gets them; kept bool [layer, kv_head, n].
        """
        ...

    def codec(self, statistics: Mapping[str, Any]) -> Codec | None:
        """How values are stored; None where as computed. statistics: what was calibrated of the model, by
        name. ValueError for what does not fit.
        """
        ...

    def slot_bytes(self, width: int, itemsize: int) -> int:
        """Bytes of one slot of one head in one layer, of keys and values of `width` numbers each."""
        ...


class Decoding(Protocol):
    """What the model is asked, and how text is emitted given that the cache is compressed."""

    @property
    def asks(self) -> str:
        """What is said to the model after the question; empty for nothing."""
        ...

    @property
    def mark(self) -> Mark | None:
        """What it looks for in the answer (`View.lines`); None for nothing, and then it pins nothing."""
        ...

    def pins(self, view: View, budget: int) -> Tensor:
        """[layer | 1, kv_head | 1, n] bool, slots that no selection may drop, beside the protected ones: at
        most `budget` of each head, which is what these leave.
        """
        ...


class Protection(Protocol):
    """Slots that no selection may drop."""

    def slots(self, filled: Tensor, budget: int, *, decoding: bool, prompt: Tensor | None = None) -> Tensor:
        """[layer | 1, kv_head | 1, n] bool, as `filled`; True is kept whatever its score.

        decoding: at an event after the first, which is the end of the prefill.
        prompt: the filled slots that are the prompt's, as `filled`; None where all of them are.
        """
        ...


@runtime_checkable
class Sees(Protection, Protocol, metaclass=Kind):
    """A protection that looks at the text."""

    @property
    def mark(self) -> Mark: ...

    def seen(self, view: View, budget: int) -> Tensor:
        """As `Protection.slots`, in its place."""
        ...
