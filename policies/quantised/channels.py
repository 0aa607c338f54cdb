"""Keys as KIVI stores them, by channel (arXiv:2402.02750, section 3): 32 neighbouring slots share, in each channel, a
least number and a step in float16.

Each slot's row has the codes of its key and the 32nd part of what its group shares, so that rows of a group have the
bytes that are counted and no tensor beside them. A group is packed at once and read whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from policies.quantised.blocks import BLOCK, cut
from policies.quantised.tokens import Codes

PARTS = 8
"""Least number and step of the channels of a head, 4 bytes each, are cut into 32 parts of whole bytes."""


@dataclass(frozen=True)
class ByChannel(Codes):
    """x is about least + step q, as in ByToken, of the numbers of one channel in BLOCK slots."""

    def row_bytes(self, width: int) -> int:
        if width % PARTS:
            raise ValueError(
                f"keys by channel are packed in parts of {PARTS} numbers, but a head has {width}; choose another state"
            )
        return width // self.per_byte + width // PARTS

    def encode(self, numbers: Tensor) -> Tensor:
        """[..., slot, width], of whole groups -> uint8 [..., slot, row_bytes(width)]."""
        head, codes = self.quantise(cut_groups(numbers.float()), -2)
        shared = head.view(torch.uint8).flatten(-3)
        parts = shared.view(*shared.shape[:-1], BLOCK, shared.shape[-1] // BLOCK)
        return torch.cat([self.pack(codes), parts], -1).flatten(-3, -2)

    def decode(self, rows: Tensor) -> Tensor:
        """uint8 [..., slot, row_bytes(width)], of whole groups -> float32 [..., slot, width]."""
        groups = cut_groups(rows)
        width = rows.shape[-1] * PARTS * self.per_byte // (PARTS + self.per_byte)
        codes, parts = groups[..., : width // self.per_byte], groups[..., width // self.per_byte :]
        shared = cut(parts.flatten(-2).contiguous().view(torch.float16).float(), 2)[..., None, :, :]
        least, step = shared.unbind(-1)
        return self.unpack(codes).mul_(step).add_(least).flatten(-3, -2)


def cut_groups(rows: Tensor) -> Tensor:
    """Return rows [..., slot, _] as [..., group, BLOCK, _]."""
    return rows.reshape(*rows.shape[:-2], rows.shape[-2] // BLOCK, BLOCK, rows.shape[-1])
