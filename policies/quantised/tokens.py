"""The formats token-4 and token-2: values as KIVI stores them, by token (arXiv:2402.02750, section 3).

Groups of 32 numbers of one vector share a least number and a step in float16; codes are 4 or 2 bits, the first of a
byte in its lowest ones. KIVI's keys share them by channel over 32 tokens instead, which an eviction would break up:
keys in this format are what the paper calls its worse variant.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from policies.quantised.blocks import BLOCK, count_blocks, cut

__all__ = ["ByToken"]

HEAD_BYTES = 4


@dataclass(frozen=True)
class ByToken:
    """x is about least + step q, q a whole number from 0 to 2^bits - 1, step (largest - least) / (2^bits - 1)."""

    bits: int

    @property
    def per_byte(self) -> int:
        return 8 // self.bits

    def row_bytes(self, width: int) -> int:
        return count_blocks(width, f"token-{self.bits}") * (HEAD_BYTES + BLOCK // self.per_byte)

    def encode(self, numbers: Tensor) -> Tensor:
        groups, most = cut(numbers.float(), BLOCK), 2**self.bits - 1
        least, largest = groups.aminmax(dim=-1, keepdim=True)
        head = torch.cat([least, (largest - least) / most], -1).half()
        least, step = head[..., :1].float(), head[..., 1:].float()  # as they are stored
        codes = torch.where(step == 0, 0, (groups - least) / step).round().clamp(0, most).to(torch.uint8)
        packed = (cut(codes, self.per_byte) << self.shifts(codes)).sum(-1).to(torch.uint8)
        return torch.cat([head.view(torch.uint8), packed], -1).flatten(-2)

    def decode(self, rows: Tensor) -> Tensor:
        groups = cut(rows, HEAD_BYTES + BLOCK // self.per_byte)
        head = groups[..., :HEAD_BYTES].view(torch.float16).float()
        codes: Tensor = groups[..., HEAD_BYTES:, None] >> self.shifts(rows) & (2**self.bits - 1)
        return codes.flatten(-2).float().mul_(head[..., 1:]).add_(head[..., :1]).flatten(-2)

    def shifts(self, like: Tensor) -> Tensor:
        return torch.arange(0, 8, self.bits, dtype=torch.uint8, device=like.device)
