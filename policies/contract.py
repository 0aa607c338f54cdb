"""The interfaces of a policy's parts: their input and output values, protocols and errors.

ValueError
  BudgetError      a budget below the protected slots of the policy
  UnknownPolicy    a name that is not in the catalogue
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from policies.cached_protocol import CachedProtocol
from policies.codec import Codec as Codec
from policies.codec import Merging as Merging
from policies.codec import Packing as Packing
from policies.signal_protocols import AttentionRows as AttentionRows
from policies.signal_protocols import AttentionSignal as AttentionSignal
from policies.signal_protocols import CacheSignal as CacheSignal
from policies.signal_protocols import ExtraPromptSignal as ExtraPromptSignal
from policies.signal_protocols import FedSignal as FedSignal
from policies.signal_protocols import FedTokens as FedTokens
from policies.signal_protocols import HiddenSignal as HiddenSignal
from policies.signal_protocols import Mark as Mark
from policies.signal_protocols import MeasuredSignal as MeasuredSignal
from policies.signal_protocols import NormalisedRows as NormalisedRows
from policies.signal_protocols import OutputSignal as OutputSignal
from policies.signal_protocols import Rotation as Rotation
from policies.signal_protocols import Signal as Signal
from policies.signal_protocols import UnrotatingSignal as UnrotatingSignal


class BudgetError(ValueError):
    """The budget is below the protected set. Neither the budget nor the set is changed to make it fit."""


class UnknownPolicy(ValueError):
    """No policy of this name."""


class BatchCounts(NamedTuple):
    """Token counts of the lanes of a batch, each [lane, 1, 1, 1] int64."""

    tokens: Tensor
    """Tokens fed to each lane."""
    prompt: Tensor
    """How many of these belong to the prompt."""


@runtime_checkable
class Batchable(Protocol, metaclass=CachedProtocol):
    """A part of a policy, or a signal, that can process a batch of lanes: its input and output tensors have a
    leading axis for the lanes, and the result for each lane equals the result without batching, bit for bit.
    Optional: a policy with a part that is not Batchable processes each lane separately.

    It must not draw random numbers, since each lane has its own seed, and may use only the number of tokens
    (`View.token_count`), not their ids. In `AttentionRows`, start and total are those of one lane; their
    difference is the same for all lanes.
    """

    @property
    def stacks(self) -> bool:
        """Has to be defined by the class itself: a subclass does not inherit it (`batched.is_batchable`)."""


class View(NamedTuple):
    """The input of a policy at an eviction step. All tensors are on one device."""

    token_ids: Tensor
    """[t] int64, every token fed; [lane, 0] for a batch."""
    layers: int
    kv_heads: int
    sentence_ends: frozenset[int]
    """Token ids that end a sentence."""
    seed: int
    """Random seed of this lane and eviction step."""
    signals: Mapping[Signal, Any]
    """For each signal that the policy needs: one entry per layer (None for a layer that it does not read), or
    the value of a Calibrated.
    """
    stored: Tensor | None = None
    """[layer | 1, kv_head | 1, n] int64, the position of each slot, ascending; -1 is padding in a head that
    holds fewer slots than another. None at the end of a prefill, where every token has a slot.
    """
    memory: ScoringMemory | None = None
    """The memory of the scoring after the last eviction step; None at the first."""
    prompt: int = 0
    ("How many of the tokens belong to the prompt; the others belong to the answer. 0 for a batch, as is seed.")
    routing_state: Any = None
    """The state of the routing after the last eviction step; None at the first."""
    budget: int | None = None
    """Slots per KV head and layer that the eviction step may leave; set by `Policy` for its parts."""
    rotation: Rotation | None = None
    """The rotary embedding of the model; None if it does not rotate every pair of a head."""
    weights: Tensor | None = None
    """[layer | 1, kv_head | 1, n] float32, the number of tokens that each slot represents; None if all are 1.
    """
    lines: Mapping[Mark, tuple[range, ...]] = MappingProxyType({})
    """For each mark of the policy: positions of the marked spans of the answer, oldest first and disjoint;
    the last one may be unfinished.
    """
    batch: BatchCounts | None = None
    """The counts of a batch of lanes, which only Batchable parts receive; None for a single lane."""

    @property
    def token_count(self) -> int | Tensor:
        """The number of tokens fed; [lane, 1, 1, 1] for a batch."""
        return len(self.token_ids) if self.batch is None else self.batch.tokens

    @property
    def positions(self) -> Tensor:
        """[layer | 1, kv_head | 1, n], `stored` or 0..t-1."""
        if self.stored is not None:
            return self.stored
        return torch.arange(len(self.token_ids), device=self.token_ids.device).view(1, 1, -1)

    @property
    def filled(self) -> Tensor:
        """[layer | 1, kv_head | 1, n] bool, False for padding."""
        return self.positions >= 0

    @property
    def slots(self) -> int:
        """n: the number of slots of the fullest head."""
        return len(self.token_ids) if self.stored is None else self.stored.shape[-1]


@runtime_checkable
class ScoringMemory(Protocol, metaclass=CachedProtocol):
    """The state of a scoring between eviction steps, in the order of the slots."""

    def retain(self, retained: Tensor) -> ScoringMemory:
        """Return the memory of the retained slots, bool [layer, kv_head, n]."""


class Trunks(NamedTuple):
    """Runs of neighbouring slots that are kept or dissolved as one unit (CrystalCache, section 3.3)."""

    spans: tuple[range, ...]
    """Disjoint, in order, together 0..n-1."""
    crystallization: Tensor
    """[trunk] float64 on the host: D, Eq. 27."""
    impact: Tensor
    """[trunk] float64 on the host: mean of the three highest members, Eq. 23."""


class Segments(NamedTuple):
    """Spans within which slots compete, oldest first: the prompt, closed segments of the answer, the open one."""

    segment_ids: Tensor
    """[layer | 1, kv_head | 1, n] int64, the segment of each slot; undefined for padding."""
    budgets: Tensor
    """[closed segment] int64, the slots that it may keep in addition to the protected ones."""
    least: int
    ("Slots that a closed segment keeps in addition to the protected ones while other segments have more.")


class Scores(NamedTuple):
    """The output of a scoring."""

    slots: Tensor
    """[layer | 1, kv_head | 1, n], float32 or better, finite for filled slots; higher scores are kept."""
    trunks: Trunks | None = None
    """Units for a selection that keeps more than single slots."""
    memory: ScoringMemory | None = None
    """The memory that the scoring receives at the next eviction step."""
    segments: Segments | None = None
    """Segments, for a routing and a selection that keep a number of slots of each."""


class Scoring(Protocol):
    """Compute a score for every slot from the signals that it needs."""

    @property
    def needs(self) -> frozenset[Signal]: ...

    def score(self, view: View) -> Scores: ...


@runtime_checkable
class LayerBands(Protocol, metaclass=CachedProtocol):
    """A scoring that compares bands of layers."""

    def refuse_depth(self, layers: int) -> None:
        """Raise ValueError if the bands are missing or overlap in a model of `layers` layers."""


@runtime_checkable
class UnitScoring(Protocol, metaclass=CachedProtocol):
    """A scoring that groups slots into units, such as trunks."""

    @property
    def longest(self) -> int:
        """The maximum number of slots of a unit, for any text."""


class Selection(Protocol):
    """Select the retained slots by scores and an allocation."""

    @property
    def needs(self) -> frozenset[Signal]:
        """The signals that it reads in addition to the scores."""

    @property
    def unused(self) -> int:
        """How many slots of its allocation a head may leave unused."""

    def select(self, view: View, scores: Scores, protected: Tensor, allocation: Tensor) -> Tensor:
        """Return the retained slots, bool [layer, kv_head, n].

        view holds the signals of `needs`. scores.slots [layer, kv_head, n] and allocation [layer, kv_head]
        have one row for each keep set; scores are -inf for padding.
        protected [layer | 1, kv_head | 1, n].
        """


@runtime_checkable
class UnitSelection(Protocol, metaclass=CachedProtocol):
    """A selection that keeps the complete unit of every protected slot."""

    @property
    def exceeds(self) -> bool:
        """Whether it keeps these units even if they exceed the allocation; otherwise it raises."""


class Allocation(NamedTuple):
    """The number of slots of each keep set."""

    counts: Tensor
    """int64 [layer | 1, kv_head | 1], at most the filled slots of the set."""
    routing_state: Any = None
    """The state that the routing receives at the next eviction step: a tensor or a tuple of tensors, which
    eviction does not change.
    """


class Routing(Protocol):
    """Decide which heads share a keep set, and allocate the budget to the sets."""

    @property
    def bounds(self) -> bool:
        """Whether the mean of its counts may be below the budget; otherwise it equals the budget."""

    def route(self, scores: Scores, layers: int, kv_heads: int) -> Scores:
        """Return scores with one row for each keep set: [layer | 1, kv_head | 1, n]."""

    def allocate(self, view: View, scores: Scores, protected: Tensor, budget: int) -> Allocation:
        """Allocate the budget. view, scores, protected: as in `Selection.select`."""


@runtime_checkable
class RescoringRouting(Protocol, metaclass=CachedProtocol):
    """A routing that replaces the scores of some heads."""

    @property
    def needs(self) -> frozenset[Signal]: ...

    def rescore(self, view: View, scores: Scores) -> Scores:
        """Return the scores [layer | 1, kv_head | 1, n] that replace those of the scoring."""


class State(Protocol):
    """The storage of slots: verbatim, encoded or merged."""

    @property
    def needs(self) -> frozenset[Signal]:
        """The signals and calibration results that it reads at an eviction step."""

    @property
    def merges(self) -> bool:
        """Whether a slot may represent several tokens; their number is then stored per slot in float32."""

    @property
    def keeps_counts(self) -> bool:
        """Whether a head stores as many slots as were selected, although others are merged into them."""

    @property
    def mass(self) -> bool:
        """Whether the logarithm of this number is added to the attention logit of the slot."""

    def merge(self, view: View, scores: Scores, protected: Tensor, retained: Tensor) -> Merging | None:
        """Return how slots are merged, given the retained ones; None if all others are dropped.

        scores, protected: as in `Selection.select`; retained bool [layer, kv_head, n].
        """

    def codec(self, statistics: Mapping[str, Any]) -> Codec | Packing | None:
        """Return the codec of the values, or the packing of keys and values; None if they are stored as computed.
        statistics: calibration results of the model by name. Raises ValueError if they do not fit.
        """

    def slot_bytes(self, width: int, itemsize: int) -> int:
        """Return the bytes of one slot of one head in one layer, for keys and values of width `width`."""


class Decoding(Protocol):
    """The extra prompt of the model, and the spans of its answer that are pinned in the cache."""

    @property
    def extra_prompt(self) -> str:
        """The text that is appended to the question; may be empty."""

    @property
    def mark(self) -> Mark | None:
        """The mark that it looks for in the answer (`View.lines`); None if it pins nothing."""

    def pins(self, view: View, budget: int) -> Tensor:
        """Return bool [layer | 1, kv_head | 1, n], the slots that no selection may drop in addition to the
        protected ones: at most `budget` of each head, the budget that the protected ones leave.
        """


class Protection(Protocol):
    """Slots that no selection may drop."""

    def slots(self, filled: Tensor, budget: int, *, decoding: bool, prompt: Tensor | None = None) -> Tensor:
        """Return bool [layer | 1, kv_head | 1, n], shaped like `filled`; True slots are kept at any score.

        decoding: whether the eviction step comes after the first one, at the end of the prefill.
        prompt: the filled slots of the prompt, shaped like `filled`; None if all slots are.
        """


@runtime_checkable
class TextProtection(Protection, Protocol, metaclass=CachedProtocol):
    """A protection that depends on the text."""

    @property
    def mark(self) -> Mark: ...

    def slots_in_text(self, view: View, budget: int) -> Tensor:
        """Return the protected slots; called instead of `Protection.slots`."""
