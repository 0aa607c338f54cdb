"""CAOTE: keep the tokens without which the output of attention would change most (arXiv:2504.14051)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from policies.contract import Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect
from policies.routing import PerHead
from policies.signals import AttentionSums, Values, group_mean, of_all_layers

__all__ = ["OutputError", "caote", "output_errors"]

LEFT = 1e-12
"""Of the attention of a query. What a difference from 1 says below it is rounding, in float64 too."""


def output_errors(attention: Tensor, values: Tensor) -> Tensor:
    """c: attention [q_head, n], 0 or more, values [kv_head, n, d] -> [q_head, n] float64.

    alpha / (1 - alpha) * ||X - v||, where alpha are the shares of the attention, which sum to 1 in a head,
    and X is the mean of the values by them. This is how far the output of the head moves, in Euclidean norm,
    where one slot is taken away and the others share its attention by what they have.

    float64 throughout: of an attention sink, whose share is 1 in float32, the small shares of the others
    still tell what would be left. Where all of them together have less than LEFT, the output is taken to
    become 0, and the change is ||v|| (ours: the formula ends there).
    """
    heads, n = attention.shape
    values = values.double()
    shares = attention.double()
    shares = shares / shares.sum(-1, keepdim=True).clamp(min=torch.finfo(shares.dtype).tiny)
    grouped = shares.view(len(values), -1, n)
    # Without the matrices of the fast product, whose rounding is that of the squares of the values.
    exact = "donot_use_mm_for_euclid_dist"
    apart = torch.cdist(grouped @ values, values, compute_mode=exact).view(heads, n)
    rest = 1 - shares
    alone = shares * values.norm(dim=-1).repeat_interleave(heads // len(values), 0)
    return torch.where(rest < LEFT, alone, shares / rest * apart)


@dataclass(frozen=True)
class OutputError:
    """`output_errors`, mean over the query heads of a group.

    window: how many queries, counted from the last, the attention is summed over; None for all of them. The
    paper takes the attention of the method that it is put on: with 1 that of TOVA, with 32 that of SnapKV
    before it pools, with None that of H2O. What such a method protects is for the policy to protect.
    """

    window: int | None = 1
    of_whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ValueError(f"window must be 1 or more, or None for all queries, not {self.window}")

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({AttentionSums(window=self.window), Values()})

    def score(self, view: View) -> Scores:
        pairs = zip(
            of_all_layers(view, AttentionSums(window=self.window)), of_all_layers(view, Values()), strict=True
        )
        return Scores(torch.stack([group_mean(output_errors(*pair), view.kv_heads) for pair in pairs]))


def caote(window: int | None = 1) -> Policy:
    """Keep, of each layer and KV head, the slots whose removal would change the last token's output most.

    No code is public, and of the paper published notes were at hand; they and Eq. 7 of the CrystalCache paper
    have one formula, of which the latter leaves out that the shares sum to 1, and of what. Ours: TOVA's
    attention, that of the last query; the mean of the group, since values are shared and attention is not; a
    set for each KV head; nothing is protected, as in TOVA. Many slots go at once, each weighed as if it went
    alone, as in the paper. Departs from it: one event at the end of the prefill, where it evicts after every
    block of 128 tokens (`caote-blocks`).

    The authors evict while decoding too. With an interval, every event weighs what is left by the last query,
    which is carried: an interval changes when slots go, and no sum goes on.
    """
    return Policy(scoring=OutputError(window), routing=PerHead(), protect=Protect(sinks=0, recent=0))
