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
from policies.signals import AttentionSums, read_signal, upcast
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "longflow": PolicyFacts(
        "attention",
        "what adds most to the output of the current token",
        "arXiv:2603.11504",
        "What adds most to the output of the current token will do so again.",
        parent="tova",
        component="scoring",
    )
}


def importance(attention: Tensor, magnitude: Tensor) -> Tensor:
    """attention [..., q_head, n] of one row, magnitude [..., kv_head, n] of values -> [..., n] per layer.

    Mean over query heads and channels of |attention * value|: the elementwise contribution of a slot to the
    output of this token.
    """
    grouped = attention.reshape(*magnitude.shape[:-1], -1, attention.shape[-1]).sum(-2)
    mean: Tensor = (grouped * magnitude).sum(-2) / attention.shape[-2]
    return mean


@dataclass(frozen=True)
class MeanMagnitude:
    """Mean over the channels of |value|, the L1 norm divided by d: [kv_head, n], float32 or better."""

    stacks: ClassVar[bool] = True

    def summarise(self, layer: int, keys: Tensor, values: Tensor, filled: Tensor) -> Tensor:
        return upcast(values).abs().mean(-1)


@dataclass(frozen=True)
class Contribution:
    """`importance` for the last query."""

    needs: ClassVar[frozenset[Signal]] = frozenset({AttentionSums(window=1), MeanMagnitude()})
    stacks: ClassVar[bool] = True

    def score(self, view: View) -> Scores:
        rows = read_signal(view, AttentionSums(window=1))
        magnitudes = read_signal(view, MeanMagnitude())
        layers = [importance(*pair) for pair in zip(rows, magnitudes, strict=True)]
        return Scores(torch.stack(layers, -2)[..., None, :])


def longflow() -> Policy:
    """Keep, in each layer, the slots that contribute most to the last token's output; nothing is protected.

    The formula, and one keep set for all heads of a layer, follow yisunlp/LongFLow @ 89a68d3, whose kernel
    computes it during attention. Their buffer of b slots includes the current token: the next token
    overwrites the slot that contributes least. Here the token is appended first and slots are evicted down to
    the budget afterwards, so a budget of b corresponds to a buffer of b + 1, and each token attends to the
    same slots. Departs from their code: a prompt above the budget is evicted by the same rule as an answer,
    where they keep its last 32 tokens and those with the largest attention from these, pooled over 5
    (carrying 32 queries for a rule that is used once would count as state in every lane); the cache stays in
    the order of positions; float32 throughout, where they round attention to the dtype of the model.

    The authors evict at every token, by the query that has just attended. With an interval, several slots are
    removed at once by the last query alone: a slot that matters only to earlier queries is lost. The query of
    the last token is carried.
    """
    return Policy(scoring=Contribution(), routing=PerLayer(), protect=Protect(sinks=0, recent=0))
