"""Candidates for the neighbours of Eq. 13, from random projections (CrystalCache, section 8.4, F2)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Sketch"]


@dataclass(frozen=True)
class Sketch:
    """Random projections of the attention patterns, which keep inner products near what they were.

    Johnson and Lindenstrauss, "Extensions of Lipschitz mappings into a Hilbert space". The cosines of the
    candidates are then taken in full, so every weight is exact. An edge may be missed, and the next candidate
    above the threshold then has its place. As many candidates as a chunk has tokens miss none.
    Holds [BLOCK, candidates, chunk] while it weighs them, and on a CPU takes longer than comparing all pairs
    of a chunk of 1024 (benchmarks/crystal.py).

    Departs from the paper, which would hash queries and keys for the edges between chunks: their attention is
    formed for the output of the layer in any case, and reading it once costs less than hashing.

    width: numbers of a projection. candidates: for each token, itself among them. seed: of the directions.
    """

    width: int = 64
    candidates: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.width, self.candidates) < 1:
            raise ValueError(
                f"width and candidates must be 1 or more, not {self.width} and {self.candidates}"
            )

    def nearest(self, unit: Tensor) -> Tensor:
        """unit [row, key], rows of length one -> [row, candidate] int64, ascending."""
        generator = torch.Generator().manual_seed(self.seed)
        directions = torch.randn(unit.shape[1], self.width, generator=generator).to(unit)
        short = unit @ directions
        count = min(self.candidates, len(unit))
        return (short @ short.T).topk(count).indices.sort().values
