"""The state of quantised slots, and all states that an arm names: { policy = "1d", set = { state = "q4_0" } }."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from policies.contract import Packing, State
from policies.quantised.blocks import BLOCK
from policies.quantised.channels import ByChannel
from policies.quantised.formats import FORMATS, Half
from policies.quantised.tokens import ByToken
from policies.quest import Quest
from policies.state import Verbatim
from protocol.formats.suggestions import suggest


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


@dataclass(frozen=True)
class Kivi(Verbatim):
    """Keys by channel in groups of 32 slots, values by token, and the latest slots in float16 (arXiv:2402.02750,
    algorithm 1; jy-yuan/KIVI, models/llama_kivi.py).

    Of n slots of a head, the first n - n mod recent have packed keys, and the first n - recent packed values; the
    others are in float16, as in the paper, in a ring of `recent` slots. A new token attends to slots as they were
    before it, and to itself in float16.

    Departs from the paper where it has nothing: an eviction leaves groups with holes, and the slots that stay are
    unpacked and packed anew in their order. Groups before the first that lost a slot keep their codes, but for channels
    whose least number float16 rounds by over half a step: of 4 bits at 60 times the spread, of 2 at 300, or more.
    """

    bits: int
    recent: int = BLOCK
    stacks: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.bits not in (2, 4):
            raise ValueError(f"bits: {self.bits} is not possible; write 2 or 4")
        if self.recent < BLOCK or self.recent % BLOCK:
            raise ValueError(
                f"recent: {self.recent} is not possible; write a multiple of {BLOCK}, the slots of a group"
            )

    def codec(self, statistics: Mapping[str, Any]) -> Packing:
        return Packing(ByChannel(self.bits), ByToken(self.bits), self.recent)

    def refuse_width(self, width: int) -> None:
        self.slot_bytes(width, 0)

    def slot_bytes(self, width: int, itemsize: int) -> int:
        return ByChannel(self.bits).row_bytes(width) + ByToken(self.bits).row_bytes(width)

    def recent_bytes(self, width: int) -> int:
        return self.recent * 2 * Half().row_bytes(width)


STATES: Mapping[str, State] = MappingProxyType(
    {
        "verbatim": Verbatim(),
        **{name: Quantised(name, name) for name in FORMATS},
        "kivi-4": Kivi(4),
        "kivi-2": Kivi(2),
        "quest": Quest(),
    }
)
"""A name keeps its meaning, as that of a policy does."""
