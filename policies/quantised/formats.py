"""The formats of keys and values by name, and those that pack each number by itself: f16 and fp8.

A name keeps its meaning: another packing is another name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from policies.codec import Format
from policies.quantised.blocks import Eights, Fives, Fours
from policies.quantised.tokens import ByToken

LARGEST = 448.0
NUMBERS = torch.arange(256, dtype=torch.uint8, device="cpu").view(torch.float8_e4m3fn).float()
("The number that each byte of fp8 represents; looking it up is six times as fast as torch's cast on a CPU.")


@dataclass(frozen=True)
class Half:
    """f16: each number as float16, the 16-bit cache that serving engines and papers compare with.

    Under a network in float32 it is the full cache of half the bytes; beyond 65,504 a number is not finite, and its
    lane fails.
    """

    def row_bytes(self, width: int) -> int:
        return 2 * width

    def encode(self, numbers: Tensor) -> Tensor:
        return numbers.half().contiguous().view(torch.uint8)

    def decode(self, rows: Tensor) -> Tensor:
        return rows.contiguous().view(torch.float16).float()


@dataclass(frozen=True)
class Float8:
    """fp8: each number as float8 e4m3 (arXiv:2209.05433): sign, 4 bits of exponent, 3 bits of mantissa; no scale.

    A plain cast, as vLLM's cache does with its default scale of 1: a slot is packed by itself and of any width. Numbers
    beyond 448, the largest of e4m3, become 448: clamped first, so that no version of torch and no device decides it.
    """

    def row_bytes(self, width: int) -> int:
        return width

    def encode(self, numbers: Tensor) -> Tensor:
        return numbers.float().clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn).view(torch.uint8)

    def decode(self, rows: Tensor) -> Tensor:
        return NUMBERS.to(rows.device).index_select(0, rows.flatten().int()).view(rows.shape)


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
