"""What the engine measures on the way for policies: the kinds of signals, and what each is shown."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, runtime_checkable

from torch import Tensor

from policies.calibrated import Calibrated
from policies.kinds import Kind

__all__ = [
    "Additive",
    "AskedSignal",
    "AttentionSignal",
    "CacheSignal",
    "Fed",
    "FedSignal",
    "HiddenSignal",
    "Mark",
    "Measured",
    "OfWhole",
    "OutputSignal",
    "Rotation",
    "Rows",
    "Signal",
    "Turning",
]


class Mark(NamedTuple):
    """A stretch of the answer's text: from `text` to `end`, both in it."""

    text: str
    end: str = "\n"
    within: bool = False
    """Whether `text` may stand anywhere; else it begins the answer or a line of it, spaces aside."""


class Rows(NamedTuple):
    """Consecutive rows of causal attention, as the engine forms them."""

    attention: Tensor
    """[..., q_head, row, slot], float32 or better; 0 where a row may not see a slot. A row sums to 1, or to
    less in a model with attention sinks (`OfWhole`). In a prefill the slots
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
    """As `attention`, before the softmax, without a sink: -inf where a row may not see a slot; for a signal
    that is `raw`.
    """


@runtime_checkable
class AttentionSignal(Protocol, metaclass=Kind):
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
class Additive(Protocol, metaclass=Kind):
    """An attention signal whose state of a merged slot is the sum of those of its members."""

    @property
    def additive(self) -> bool: ...


@runtime_checkable
class CacheSignal(Protocol, metaclass=Kind):
    """What the stored keys and values say of the slots, measured at every event."""

    def summarise(self, layer: int, keys: Tensor, values: Tensor, filled: Tensor) -> Any:
        """keys and values [kv_head, n, d] with their RoPE rotation, filled [kv_head, n]: where a slot is."""
        ...


class Rotation(NamedTuple):
    """How the model's rotary embedding turns queries and keys; pairs are those of the half layout."""

    frequencies: Tensor
    """[d/2] float64, the angle by which each pair is turned from one position to the next."""
    scaling: float
    """What queries and keys are multiplied with when they are turned."""


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
    queries: Tensor | None = None
    """[..., q_head, t, d] with their RoPE rotation; the engine always brings them."""
    rotation: Rotation | None = None
    """Of the model; None where it does not turn every pair of a head."""


@runtime_checkable
class OutputSignal(Protocol, metaclass=Kind):
    """What the stored keys and values say of the slots through the model's output projection, measured at
    every event.
    """

    def project(self, layer: int, keys: Tensor, values: Tensor, filled: Tensor, output: Tensor) -> Any:
        """As `CacheSignal.summarise`; output [q_head, d, width], the slice of the projection that each query
        head's attended values go through.
        """
        ...


@runtime_checkable
class AskedSignal(Protocol, metaclass=Kind):
    """What the attention of tokens that are fed beside the text, and stored nowhere, says of the slots.

    Measured at every event, by a forward of its own over the slots of then.
    """

    def passages(self, token_ids: Tensor, sentence_ends: frozenset[int]) -> tuple[Tensor, ...]:
        """What is fed, each passage on its own behind all slots: token ids [t]. token_ids: all seen."""
        ...

    def attend(self, rows: Rows, before: Any | None) -> Any:
        """The state after these rows of a passage, whose slots are the stored ones alone: what a row gives to
        the tokens of its own passage is left out of it. `before`: the state after the passages before.
        """
        ...

    def result(self, state: Any) -> Any:
        """What a View holds, out of the state after the last passage."""
        ...


@runtime_checkable
class FedSignal(Protocol, metaclass=Kind):
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
class Turning(Protocol, metaclass=Kind):
    """A signal, of whatever kind, that takes queries or keys back to before their rotation. A model whose
    rotation is not known is refused for a policy that needs it.
    """

    turns: ClassVar[bool]


@runtime_checkable
class OfWhole(Protocol, metaclass=Kind):
    """A signal, or a part of a policy, that takes a row of attention for shares that sum to 1. In a model
    with attention sinks rows sum to less, the rest going to no slot: there it is refused.
    """

    of_whole: ClassVar[bool]


@runtime_checkable
class HiddenSignal(Protocol, metaclass=Kind):
    """What the output of some decoder layers says of the tokens, folded over the tokens as they are fed."""

    def layers_in(self, layers: int) -> tuple[int, ...]:
        """The layers that it reads in a model of so many, ascending. ValueError where it finds none."""
        ...

    def change(self, hidden: Tensor, before: Any | None) -> Any:
        """hidden [t, width] of the next t tokens in one layer; the state after them, however many at a time
        they are fed. It is never evicted from.
        """
        ...


Measured: TypeAlias = AttentionSignal | CacheSignal | FedSignal | HiddenSignal | OutputSignal | AskedSignal
"""What the engine measures on the way."""

Signal: TypeAlias = Measured | Calibrated
"""What a policy may ask for."""
