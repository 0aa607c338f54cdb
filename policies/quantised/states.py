"""The state of quantised slots, and all states that an arm names: { policy = "1d", set = { state = "q4_0" } }."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from policies.contract import Packing, State
from policies.quantised.formats import FORMATS
from policies.state import Verbatim
from protocol.formats.suggestions import suggest

__all__ = ["STATES", "Quantised"]


@dataclass(frozen=True)
class Quantised(Verbatim):
    """Keys and values packed in one of the FORMATS each, as `-ctk` and `-ctv` of llama.cpp name them.

    A slot is packed when it is written: what the first eviction step keeps then, a new token's own key and value as it
    is fed, so that a token sees itself packed. An eviction step moves packed bytes as they are.
    """

    keys: str
    values: str
    stacks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name, format_name in (("keys", self.keys), ("values", self.values)):
            if format_name not in FORMATS:
                raise ValueError(f"{name} has no format {format_name!r}; {suggest(format_name, FORMATS)}")

    def codec(self, statistics: Mapping[str, Any]) -> Packing:
        return Packing(FORMATS[self.keys], FORMATS[self.values])

    def refuse_width(self, width: int) -> None:
        self.slot_bytes(width, 0)

    def slot_bytes(self, width: int, itemsize: int) -> int:
        return FORMATS[self.keys].row_bytes(width) + FORMATS[self.values].row_bytes(width)


STATES: Mapping[str, State] = MappingProxyType(
    {"verbatim": Verbatim(), **{name: Quantised(name, name) for name in FORMATS}}
)
"""A name keeps its meaning, as that of a policy does."""
