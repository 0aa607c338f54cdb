"""The state part of a policy: what a slot stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor

from policies.cached_protocol import CachedProtocol
from policies.contract import Codec, Merging, Packing, Scores, Signal, View


@runtime_checkable
class CompressedState(Protocol, metaclass=CachedProtocol):
    """A state that does not fit heads of every width."""

    def refuse_width(self, width: int) -> None:
        """Raise ValueError if it does not fit heads of this width."""


@runtime_checkable
class RecentState(Protocol, metaclass=CachedProtocol):
    """A state that stores the latest slots of each head apart, in the same bytes however many slots there are."""

    def recent_bytes(self, width: int) -> int:
        """Return these bytes of one head in one layer."""


@dataclass(frozen=True)
class Verbatim:
    """Key and value as the model computed them, in its precision and at their original RoPE position."""

    needs: ClassVar[frozenset[Signal]] = frozenset()
    stacks: ClassVar[bool] = True
    merges: ClassVar[bool] = False
    keeps_counts: ClassVar[bool] = True
    mass: ClassVar[bool] = False

    def merge(self, view: View, scores: Scores, protected: Tensor, retained: Tensor) -> Merging | None:
        return None

    def codec(self, statistics: Mapping[str, Any]) -> Codec | Packing | None:
        return None

    def slot_bytes(self, width: int, itemsize: int) -> int:
        return 2 * width * itemsize
