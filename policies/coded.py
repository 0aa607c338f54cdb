"""What becomes of slots and of their values where a state does not keep them as computed."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor

__all__ = ["Codec", "Merging"]


class Merging(NamedTuple):
    """Slots that go on in others, as a state has it. All [layer, kv_head, n]."""

    kept: Tensor
    """bool, the slots that are there afterwards, in each head as many as the selection kept, or fewer. A
    merged slot stands in the place, and at the position, of one of its own.
    """
    into: Tensor
    """int64, the kept slot in which each slot goes on: its own number where it stays as it is, -1 where it is
    dropped and where no slot is.
    """
    shares: Tensor
    """float32 or better, the part of each slot in the mean of the one that it goes on in: those that go on in
    one sum to 1.
    """


class Codec(Protocol):
    """How values are stored, of one model. Keys are stored as computed."""

    @property
    def width(self) -> int:
        """Numbers of a stored value."""
        ...

    def encode(self, layer: int, values: Tensor) -> Tensor:
        """[..., kv_head, t, d] -> [..., kv_head, t, width]."""
        ...

    def decode(self, layer: int, stored: Tensor) -> Tensor:
        """[..., kv_head, t, width] -> [..., kv_head, t, d]: the value that attention sees."""
        ...

    def expand(self, layer: int, attended: Tensor) -> Tensor:
        """[..., q_head, t, width] -> [..., q_head, t, d]: means of stored values, by weights that sum to 1,
        as the means of their decoded ones.
        """
        ...
