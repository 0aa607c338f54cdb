"""Integers that the host counts and a device reads: uploaded together, or advanced where they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Integers = NDArray[np.int64]


def upload(device: torch.device, arrays: Sequence[Integers]) -> list[Tensor]:
    """Return the arrays on the device, by one copy that the host does not wait for."""
    return split(torch.from_numpy(flatten(arrays)).to(device, non_blocking=True), arrays)


def flatten(arrays: Sequence[Integers]) -> Integers:
    return np.concatenate([array.ravel() for array in arrays])


def split(flat: Tensor, arrays: Sequence[Integers]) -> list[Tensor]:
    parts = torch.split(flat, [array.size for array in arrays])
    return [part.view(array.shape) for part, array in zip(parts, arrays, strict=True)]


class DeviceNumbers:
    """Integers of every forward pass, by name. Most equal those of the previous pass, or exceed them by one: then the
    device computes them, and nothing is copied to it.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.previous: dict[str, tuple[Integers, Tensor]] = {}

    def update(self, name: str, arrays: Sequence[Integers], growth: int = 0) -> list[Tensor]:
        """Return the arrays on the device. growth: the expected difference to the previous ones of this name."""
        if self.device.type == "cpu" or not arrays:
            return [torch.from_numpy(array) for array in arrays]
        numbers = flatten(arrays)
        before, flat = self.previous.get(name, (numbers[:0], torch.empty(0)))
        if not np.array_equal(numbers, before + growth):
            flat = torch.from_numpy(numbers).to(self.device, non_blocking=True)
        elif growth:
            flat = flat + growth
        self.previous[name] = numbers, flat
        return split(flat, arrays)
