"""CAOTE: keep the tokens whose removal would change the attention output most (arXiv:2504.14051)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from policies.contract import Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect
from policies.routing import PerHead
from policies.signals import AttentionSums, Values, group_mean, read_signal
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "caote": PolicyFacts(
        "attention",
        "slots whose removal would change the output of the last query most",
        "arXiv:2504.14051",
        "The slots to keep are those whose removal changes the attention output most.",
    )
}

MIN_REST = 1e-12
"""Attention share below which 1 - share is dominated by rounding, even in float64."""


def output_errors(attention: Tensor, values: Tensor) -> Tensor:
    """Return c: attention [q_head, n], 0 or more, values [kv_head, n, d] -> [q_head, n] float64.

    alpha / (1 - alpha) * ||X - v||, where alpha is the attention normalised to sum to 1 per head, and X is
    the mean of the values weighted by alpha. This is the Euclidean distance by which the output of the head
    moves if one slot is removed and its attention is redistributed in proportion.

    Computed in float64: the share of an attention sink can round to 1 in float32. If the other slots together
    have less than MIN_REST, the output without the slot counts as 0, and the change is ||v|| (ours: the
    formula is undefined there).
    """
    heads, n = attention.shape
    values = values.double()
    shares = attention.double()
    shares = shares / shares.sum(-1, keepdim=True).clamp(min=torch.finfo(shares.dtype).tiny)
    grouped = shares.view(len(values), -1, n)
    # The fast mode of cdist computes squared norms and loses precision.
    exact = "donot_use_mm_for_euclid_dist"
    distances = torch.cdist(grouped @ values, values, compute_mode=exact).view(heads, n)
    rest = 1 - shares
    single_errors = shares * values.norm(dim=-1).repeat_interleave(heads // len(values), 0)
    return torch.where(rest < MIN_REST, single_errors, shares / rest * distances)


@dataclass(frozen=True)
class OutputError:
    """`output_errors`, mean over the query heads of a group.

    window: the number of last queries over which the attention is summed; None for all queries. The paper
    uses the attention of its base method: 1 is that of TOVA, 32 that of SnapKV before pooling, None that of
    H2O. The policy has to protect the slots that the base method protects.
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
        pairs = zip(read_signal(view, AttentionSums(window=self.window)), read_signal(view, Values()), strict=True)
        return Scores(torch.stack([group_mean(output_errors(*pair), view.kv_heads) for pair in pairs]))


def caote(window: int | None = 1) -> Policy:
    """Keep, of each layer and KV head, the slots whose removal would change the last token's output most.

    No code is public, and only published notes on the paper were available. They agree with Eq. 7 of the CrystalCache
    paper, which does not state that the shares sum to 1. Ours: TOVA's attention, that of the last query; the mean over
    a group, since its heads share values but not attention; a set for each KV head; nothing is protected, as in TOVA.
    Many slots are removed at once, each scored as if it were removed alone, as in the paper. Departs from it: one
    eviction step at the end of the prefill, where the paper evicts after every block of 128 tokens (`caote-blocks`).

    The authors evict while decoding too. With an interval, every eviction step scores the remaining slots by
    the last query, which is carried; no sums accumulate between steps.
    """
    return Policy(scoring=OutputError(window), routing=PerHead(), protect=Protect(sinks=0, recent=0))
