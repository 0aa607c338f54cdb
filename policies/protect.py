"""Which slots no selection may drop."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Protect", "RecentHalf"]


@dataclass(frozen=True)
class Protect:
    """The first `sinks` and the last `recent` slots, both inside the budget.

    Attention sinks: StreamingLLM, arXiv:2309.17453. The defaults are those of CrystalCache, Table 14.
    """

    sinks: int = 4
    recent: int = 128

    def __post_init__(self) -> None:
        if self.sinks < 0 or self.recent < 0:
            raise ValueError(f"sinks and recent must be 0 or more, not {self.sinks} and {self.recent}")

    def slots(self, n: int, budget: int, device: torch.device) -> Tensor:
        position = torch.arange(n, device=device)
        return (position < self.sinks) | (position >= n - self.recent)


@dataclass(frozen=True)
class RecentHalf:
    """The last budget // 2 slots; an odd slot goes to the scored half."""

    def slots(self, n: int, budget: int, device: torch.device) -> Tensor:
        return torch.arange(n, device=device) >= n - budget // 2
