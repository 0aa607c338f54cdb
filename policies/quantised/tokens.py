"""The formats token-4 and token-2: values as KIVI stores them, by token (arXiv:2402.02750, section 3).

Groups of 32 numbers of one vector share a least number and a step in float16; codes are 4 or 2 bits, the first of a
byte in its lowest ones. Keys in this format are what the paper calls its worse variant; its own are in `channels`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from policies.quantised.blocks import BLOCK, count_blocks, cut

__all__ = ["ByToken", "Codes"]

HEAD_BYTES = 4


@dataclass(frozen=True)
class Codes:
    """Whole numbers of 4 or 2 bits between the least and the largest number of a group: KIVI's quantisation."""

    bits: int

    @property
    def per_byte(self) -> int:
        return 8 // self.bits

    def quantise(self, groups: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        """Return least number and step of groups along an axis, in float16 and stacked behind it, and the codes, uint8.

        x is about least + step q, q from 0 to 2^bits - 1, step (largest - least) / (2^bits - 1).
        """
        most = 2**self.bits - 1
        least, largest = groups.aminmax(dim=dim, keepdim=True)
        head = torch.stack([least, (largest - least) / most], -1).half()
        least, step = head.float().unbind(-1)  # as they are stored
        return head, torch.where(step == 0, 0, (groups - least) / step).round().clamp(0, most).to(torch.uint8)

    def pack(self, codes: Tensor) -> Tensor:
        return (cut(codes, self.per_byte) << self.shifts(codes)).sum(-1).to(torch.uint8)

    def unpack(self, rows: Tensor) -> Tensor:
        codes: Tensor = rows[..., None] >> self.shifts(rows) & (2**self.bits - 1)
        return codes.flatten(-2).float()

    def shifts(self, like: Tensor) -> Tensor:
        return torch.arange(0, 8, self.bits, dtype=torch.uint8, device=like.device)


@dataclass(frozen=True)
class ByToken(Codes):
    """Groups of 32 numbers of one vector."""

    def row_bytes(self, width: int) -> int:
        return count_blocks(width, f"token-{self.bits}") * (HEAD_BYTES + BLOCK // self.per_byte)

    def encode(self, numbers: Tensor) -> Tensor:
        head, codes = self.quantise(cut(numbers.float(), BLOCK), -1)
        return torch.cat([head.flatten(-2).view(torch.uint8), self.pack(codes)], -1).flatten(-2)

    def decode(self, rows: Tensor) -> Tensor:
        groups = cut(rows, HEAD_BYTES + BLOCK // self.per_byte)
        head = groups[..., :HEAD_BYTES].view(torch.float16).float()
        return self.unpack(groups[..., HEAD_BYTES:]).mul_(head[..., 1:]).add_(head[..., :1]).flatten(-2)
