"""The format f16: each number as float16, the 16-bit cache that serving engines and papers compare with.

Under a network in float32 it is the full cache of half the bytes; beyond 65,504 a number is not finite, and its lane
fails.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Half"]


@dataclass(frozen=True)
class Half:
    """Two bytes a number."""

    def row_bytes(self, width: int) -> int:
        return 2 * width

    def encode(self, numbers: Tensor) -> Tensor:
        return numbers.half().contiguous().view(torch.uint8)

    def decode(self, rows: Tensor) -> Tensor:
        return rows.contiguous().view(torch.float16).float()
