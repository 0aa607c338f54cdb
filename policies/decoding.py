"""What the prompt asks for, and how text is emitted given that the cache is compressed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from policies.contract import View

__all__ = ["Plain"]


@dataclass(frozen=True)
class Plain:
    """The prompt of the task, unchanged, and no pinned spans."""

    asks: ClassVar[str] = ""
    mark: ClassVar[str] = ""

    def pins(self, view: View, budget: int) -> Tensor:
        return torch.zeros_like(view.filled)
