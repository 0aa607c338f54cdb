"""The formats of keys and values by name. A name keeps its meaning: another packing is another name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from policies.codec import Format
from policies.quantised.blocks import Eights, Fives, Fours
from policies.quantised.fp8 import Float8
from policies.quantised.half import Half
from policies.quantised.tokens import ByToken

__all__ = ["FORMATS"]

FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "f16": Half(),
        "q8_0": Eights(),
        "q5_0": Fives(),
        "q4_0": Fours(),
        "fp8": Float8(),
        "token-4": ByToken(4),
        "token-2": ByToken(2),
    }
)
