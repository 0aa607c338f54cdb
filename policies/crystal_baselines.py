"""The baselines of the CrystalCache paper, as the paper defines them (Po-Ting Lin).

It reimplements them "from their published descriptions" (its section 4.3), but its descriptions differ from
the published policies. Each differs from our policy of that name in the scoring alone. The paper states what
is protected only for H2O ("a most-recent window"); here each baseline protects what its parent protects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from policies.chunkkv import chunkkv
from policies.contract import Scores, Signal, View
from policies.h2o import AccumulatedAttention, h2o
from policies.policy import Policy
from policies.pyramidkv import pyramidkv
from policies.signals import AttentionSums, group_mean, read_signal
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "h2o-window": PolicyFacts(
        "attention",
        "as h2o, but by the attention of the last 128 queries",
        "Po-Ting Lin, CrystalCache",
        "The attention of only the latest queries predicts what will be attended to.",
        parent="h2o",
        component="scoring",
    ),
    "pyramidkv-cumulative": PolicyFacts(
        "attention",
        "as pyramidkv, but by the attention of all queries",
        "Po-Ting Lin, CrystalCache",
        "The attention of all queries shows what to keep, with budgets that decrease with depth.",
        parent="pyramidkv",
        component="scoring",
    ),
    "chunkkv-cumulative": PolicyFacts(
        "attention",
        "as chunkkv, but by the attention of all queries",
        "Po-Ting Lin, CrystalCache",
        "The attention of all queries shows which chunks to keep.",
        parent="chunkkv",
        component="scoring",
    ),
}


@dataclass(frozen=True)
class WindowSums:
    """Attention received from the last `window` queries, or all of a shorter text, mean over a group.

    Equals `AccumulatedAttention` restricted to the window; unlike `WindowAttention`, it is neither pooled nor
    zero for the slots of the window.
    """

    window: int = 128
    stacks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ValueError(f"window must be 1 or more, not {self.window}")

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({AttentionSums(window=self.window)})

    def score(self, view: View) -> Scores:
        layers = read_signal(view, AttentionSums(window=self.window))
        return Scores(torch.stack([group_mean(sums, view.kv_heads) for sums in layers], -3))


def crystal_baselines() -> Mapping[str, Policy]:
    """ChunkKV, PyramidKV and Scissorhands of the CrystalCache paper.

    `chunkkv-cumulative`: its Eq. 6, the sum over the slots of a chunk of 10 of the attention from every query that sees
    them; ChunkKV itself sums over a window at the end of the prompt. `Chunks` ranks by the mean of a chunk, which is
    the same order for complete chunks, and cuts the last selected chunk to the budget, as in `chunkkv`.

    `pyramidkv-cumulative`: its section 4.3, "layer-wise budget allocation (more KV in early layers, less in
    late layers) on top of cumulative-attention scoring"; PyramidKV itself scores as SnapKV does. The paper
    does not specify how budgets fall: they fall as in `pyramidkv`.

    `h2o-window`: what its section 2.2 calls Scissorhands, "an H2O variant scored over a windowed rather than
    cumulative observation horizon"; Scissorhands itself counts how often a slot is below average. The paper
    does not specify the window length: 128 is ours, the only window length in the paper (Table 14), and at
    most half of its prompts. The paper does not run this policy.

    While decoding, sums over all queries continue from one eviction step to the next; sums over a window are
    recomputed from the last queries, which are carried.
    """
    return {
        "chunkkv-cumulative": replace(chunkkv(), scoring=AccumulatedAttention()),
        "pyramidkv-cumulative": replace(pyramidkv(), scoring=AccumulatedAttention()),
        "h2o-window": replace(h2o(), scoring=WindowSums()),
    }
