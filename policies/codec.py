"""How a state merges slots, and encodes or packs what it does not store as computed."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor


class Merging(NamedTuple):
    """The slots that a state merges into others. All tensors are [layer, kv_head, n]."""

    retained: Tensor
    """bool, the slots that remain, in each head at most as many as the selection kept. A merged slot has the
    index and position of one of its members.
    """
    targets: Tensor
    """int64, the retained slot into which each slot is merged: its own index if it stays unchanged, -1 if it
    is dropped or empty.
    """
    shares: Tensor
    """float32 or better, the weight of each slot in the mean of its target: the weights of one target sum to
    1.
    """


class Codec(Protocol):
    """The encoding of stored values for one model. Keys are stored as computed."""

    @property
    def width(self) -> int:
        """Number of entries of a stored value."""

    def encode(self, layer: int, values: Tensor) -> Tensor:
        """[..., kv_head, t, d] -> [..., kv_head, t, width]."""

    def decode(self, layer: int, stored: Tensor) -> Tensor:
        """[..., kv_head, t, width] -> [..., kv_head, t, d]: the values that attention uses."""

    def expand(self, layer: int, attended: Tensor) -> Tensor:
        """[..., q_head, t, width] -> [..., q_head, t, d]: decode weighted means of stored values, whose
        weights sum to 1, into the same means of decoded values.
        """


class Format(Protocol):
    """The packing of one vector into a row of bytes, alone: no other slot is read or written."""

    def row_bytes(self, width: int) -> int:
        """Return the bytes of a row. Raises ValueError for a width of a head that it cannot pack."""

    def encode(self, numbers: Tensor) -> Tensor:
        """[..., width] -> uint8 [..., row_bytes(width)]."""

    def decode(self, rows: Tensor) -> Tensor:
        """uint8 [..., row_bytes(width)] -> float32 [..., width]."""


class Packing(NamedTuple):
    """The formats in which a state stores keys, as they are after RoPE, and values. Both are packed once, as a slot is
    written, and unpacked to be attended to.

    recent: 0 if each slot is packed alone. Otherwise `keys` packs groups of neighbouring slots, [..., slot, width], and
    the latest slots of each head stay in float16: `recent` values, and up to as many keys.
    """

    keys: Format
    values: Format
    recent: int = 0
