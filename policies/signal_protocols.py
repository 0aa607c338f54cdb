"""The protocols of signals, which the engine measures for policies, and the data that each receives."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, runtime_checkable

from torch import Tensor

from policies.cached_protocol import CachedProtocol
from policies.calibration import Calibrated


class Mark(NamedTuple):
    """A span of the answer's text, from `text` to `end`, both included."""

    text: str
    end: str = "\n"
    within: bool = False
    """Whether `text` may occur anywhere; otherwise it must begin the answer or a line, after spaces."""


class AttentionRows(NamedTuple):
    """Consecutive rows of causal attention, as the engine computes them."""

    attention: Tensor
    """[..., q_head, row, slot], float32 or better; 0 where masked. A row sums to 1, or to less in a model
    with attention sinks (`NormalisedRows`). In a prefill the slots are those up to the last row; while
    decoding there is one row, and a leading axis for the layers. The next block reuses this memory: a signal
    has to store sums or copies, never a view.
    """
    layer: int
    """The layer of the rows in a prefill; the first of the stacked layers while decoding."""
    start: int
    """Number of rows before the first of these."""
    total: int
    """Total number of rows: the length of the prompt, or the tokens fed so far while decoding."""
    kv_heads: int
    """KV heads of the layer: query head h reads KV head h // (query heads / KV heads)."""
    decoded: bool = False
    """Whether the rows belong to tokens of the answer, not of the prompt."""
    logits: Tensor | None = None
    """The logits of `attention` before the softmax, without a sink, -inf where masked; for `raw` signals."""


@runtime_checkable
class AttentionSignal(Protocol, metaclass=CachedProtocol):
    """A statistic of attention per slot, accumulated over blocks of rows, so that no [n, n] is ever stored.

    Signals are frozen, hashable values: equal signals are measured once for all policies.
    """

    @property
    def window(self) -> int | None:
        """The number of last rows that it reads; None for all of them."""

    @property
    def carried(self) -> bool:
        """Whether it can be measured while decoding.

        Without a window its state is then part of the policy's per-slot memory: every tensor in it has the axes [layer,
        head, slot], and the engine keeps the columns of the retained slots at an eviction step. The head axis has the
        size of the query heads, of the KV heads, or 1 if all heads of a layer hold the same slots.
        """

    @property
    def afresh(self) -> bool:
        """Whether its state restarts after each eviction step.

        It then reads one layer, and the memory of the scoring holds the state that persists.
        """

    @property
    def raw(self) -> bool:
        """Whether it reads `AttentionRows.logits`."""

    @property
    def of_tokens(self) -> bool:
        """Whether the last axis of its state has one entry per token fed, not per slot: no eviction changes it."""

    def reads(self, layer: int) -> bool: ...

    def attend(self, rows: AttentionRows, before: Any | None) -> Any:
        """Return the state after these rows, given the state before them (None at the first)."""

    def result(self, state: Any) -> Any:
        """Return the value for the View from the state after the last row, without changing the state."""


@runtime_checkable
class Additive(Protocol, metaclass=CachedProtocol):
    """An attention signal whose state for a merged slot is the sum of the states of its members."""

    @property
    def additive(self) -> bool: ...


@runtime_checkable
class CacheSignal(Protocol, metaclass=CachedProtocol):
    """A statistic of the stored keys and values per slot, measured at every eviction step."""

    def summarise(self, layer: int, keys: Tensor, values: Tensor, filled: Tensor) -> Any:
        """Measure keys and values [kv_head, n, d] with RoPE; filled [kv_head, n] is False for padding."""


class Rotation(NamedTuple):
    """The model's rotary embedding of queries and keys; pairs are those of the half layout."""

    frequencies: Tensor
    """[d/2] float64, the rotation angle of each pair from one position to the next."""
    scaling: float
    """The factor by which the rotation scales queries and keys."""


class FedTokens(NamedTuple):
    """The tokens of a forward pass: their keys, values and queries."""

    keys: Tensor
    """[..., kv_head, t, d] with their RoPE rotation; while decoding, a leading axis for the layers."""
    values: Tensor
    """Shaped like `keys`."""
    start: int
    """Position of the first token."""
    prompt: int
    """Number of tokens of the prompt."""
    queries: Tensor | None = None
    """[..., q_head, t, d] with their RoPE rotation; the engine always sets them."""
    rotation: Rotation | None = None
    """The rotary embedding of the model; None if it does not rotate every pair of a head."""


@runtime_checkable
class OutputSignal(Protocol, metaclass=CachedProtocol):
    """A statistic of the stored slots that uses the model's output projection, measured at every eviction step."""

    def project(self, layer: int, keys: Tensor, values: Tensor, filled: Tensor, output: Tensor) -> Any:
        """As `CacheSignal.summarise`; output [q_head, d, width]: each query head's slice of the output projection."""


@runtime_checkable
class ExtraPromptSignal(Protocol, metaclass=CachedProtocol):
    """A statistic of the attention of an extra prompt per slot; the prompt's tokens are not stored.

    Measured at every eviction step, by a separate forward pass over the stored slots.
    """

    def passages(self, token_ids: Tensor, sentence_ends: frozenset[int]) -> tuple[Tensor, ...]:
        """Return the passages, token ids [t] each, to feed by themselves after all slots. token_ids: all fed so far."""

    def attend(self, rows: AttentionRows, before: Any | None) -> Any:
        """Return the state after these rows of a passage. Their slots are the stored ones only, without the
        tokens of the passage. `before`: the state after the previous rows.
        """

    def result(self, state: Any) -> Any:
        """Return the value for the View from the state after the last passage."""


@runtime_checkable
class FedSignal(Protocol, metaclass=CachedProtocol):
    """A statistic of keys and values per token, accumulated as tokens are fed.

    Its state is per token, not per slot: eviction does not change it.
    """

    def reads(self, layer: int) -> bool: ...

    def fold(self, fed: FedTokens, before: Any | None) -> Any:
        """Return the state after these tokens; it must not depend on how many are fed at a time. Its tensors
        have a leading axis for the layers while decoding, and none in the prefill.
        """

    def result(self, state: Any) -> Any:
        """Return the value for the View from the state after the last token, without changing the state."""


@runtime_checkable
class UnrotatingSignal(Protocol, metaclass=CachedProtocol):
    """A signal that undoes the rotation of queries or keys: refused for a model whose rotation is unknown."""

    turns: ClassVar[bool]


@runtime_checkable
class NormalisedRows(Protocol, metaclass=CachedProtocol):
    """A part that assumes attention rows of sum 1: refused for a model with attention sinks, whose rows sum to less."""

    of_whole: ClassVar[bool]


@runtime_checkable
class HiddenSignal(Protocol, metaclass=CachedProtocol):
    """A statistic of the output of some decoder layers per token, accumulated as tokens are fed."""

    def layers_in(self, layers: int) -> tuple[int, ...]:
        """Return the layers, of `layers`, that it reads, ascending. Raises ValueError if there are none."""

    def change(self, hidden: Tensor, before: Any | None) -> Any:
        """Return the state after hidden [t, width] of the next t tokens in one layer; it must not depend on
        how many are fed at a time. Eviction does not change it.
        """


MeasuredSignal: TypeAlias = AttentionSignal | CacheSignal | FedSignal | HiddenSignal | OutputSignal | ExtraPromptSignal
"""A signal that the engine measures."""

Signal: TypeAlias = MeasuredSignal | Calibrated
"""A signal that a policy may need."""
