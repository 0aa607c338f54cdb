"""LongFlow: drop what adds least to the output of the current token (arXiv:2603.11504)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from policies.contract import Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect
from policies.routing import PerLayer
from policies.signals import AttentionSums, of_all_layers, wide

__all__ = ["Contribution", "MeanMagnitude", "importance", "longflow"]


def importance(attention: Tensor, magnitude: Tensor) -> Tensor:
    """attention [q_head, n] of one row, magnitude [kv_head, n] of the values -> [n], one for the layer.

    Mean over query heads and channels of |attention * value|: how much of the output of this token a slot
    makes up, entry by entry.
    """
    grouped = attention.reshape(len(magnitude), -1, attention.shape[-1]).sum(1)
    return (grouped * magnitude).sum(0) / len(attention)


@dataclass(frozen=True)
class MeanMagnitude:
    """Mean over the channels of |value|, which is its L1 norm by d: [kv_head, n], float32 or better."""

    def summarise(self, layer: int, keys: Tensor, values: Tensor, filled: Tensor) -> Tensor:
        return wide(values).abs().mean(-1)


@dataclass(frozen=True)
class Contribution:
    """`importance` for the last query."""

    needs: ClassVar[frozenset[Signal]] = frozenset({AttentionSums(window=1), MeanMagnitude()})

    def score(self, view: View) -> Scores:
        rows = of_all_layers(view, AttentionSums(window=1))
        magnitudes = of_all_layers(view, MeanMagnitude())
        return Scores(
            torch.stack([importance(*pair) for pair in zip(rows, magnitudes, strict=True)])[:, None]
        )


def longflow() -> Policy:
    """Keep, in each layer, the slots that make up most of the last token's output; nothing is protected."""
    return Policy(scoring=Contribution(), routing=PerLayer(), protect=Protect(sinks=0, recent=0))
