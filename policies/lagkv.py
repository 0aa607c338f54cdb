"""LagKV: keep the tokens that stand out from the chunk after theirs (arXiv:2504.04704)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from policies.contract import Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect
from policies.routing import PerHead
from policies.signals import read_signal, upcast
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "lagkv": PolicyFacts(
        "stored",
        "keys and values that differ most from the following chunk",
        "arXiv:2504.04704",
        "Keys and values that differ from the following chunk are needed.",
    )
}


def relative_spread(states: Tensor) -> Tensor:
    """Score how much each token stands out: states [kv_head, chunk, lag, d] -> [kv_head, chunk - 1, lag].

    Every channel is scaled to its range in the next chunk; the score is the standard deviation over the channels, after
    a softmax over the tokens of the chunk. A range below 1e-6 counts as 1e-6 (ours: the authors divide by any range).
    """
    chunk, following = states[:, :-1], states[:, 1:]
    least, most = following.amin(2, keepdim=True), following.amax(2, keepdim=True)
    return ((chunk - least) / (most - least).clamp(min=1e-6)).std(-1).softmax(-1)


def lag_scores(keys: Tensor, values: Tensor, sinks: int = 4, lag: int = 128) -> Tensor:
    """keys and values [kv_head, n, d], the keys with RoPE -> [kv_head, n].

    The tokens after the first `sinks` form chunks of `lag`. Every chunk but the last is ranked by the mean of
    `relative_spread` of its keys and values: scores from 0 to below 1. The last chunk and the tokens after it
    score above 1, later tokens higher; the sinks score highest.
    """
    heads, n, _ = keys.shape
    chunks = max(0, n - sinks) // lag
    ranked = max(0, chunks - 1) * lag
    position_scores = 1 + torch.arange(n, device=keys.device) / n
    position_scores[:sinks] = 3
    scores = position_scores.expand(heads, n).clone()
    if ranked:
        parts = (upcast(part)[:, sinks : sinks + chunks * lag] for part in (keys, values))
        key, value = (relative_spread(part.reshape(heads, chunks, lag, -1)) for part in parts)
        worth = (key + value) / 2
        order = worth.argsort(stable=True, descending=True).argsort()
        # A nan score stays nan instead of getting a rank.
        rank = ((lag - 1 - order) / lag).masked_fill(worth.isnan(), torch.nan)
        scores[:, sinks : sinks + ranked] = rank.flatten(1)
    return scores


@dataclass(frozen=True)
class LagScores:
    """`lag_scores` of the slots that each head holds, [kv_head, n]; chunks are counted in slots."""

    sinks: int
    lag: int

    def summarise(self, layer: int, keys: Tensor, values: Tensor, filled: Tensor) -> Tensor:
        n = filled.shape[-1]
        slot_counts = filled.sum(-1).tolist()
        heads = [
            lag_scores(key[None, :count], value[None, :count], self.sinks, self.lag)
            for key, value, count in zip(keys, values, slot_counts, strict=True)
        ]
        return torch.cat([pad(scores, (0, n - scores.shape[-1])) for scores in heads])


@dataclass(frozen=True)
class LagRelative:
    """A scoring by `lag_scores`."""

    sinks: int = 4
    lag: int = 128

    def __post_init__(self) -> None:
        if self.sinks < 0 or self.lag < 2:
            raise ValueError(f"sinks must be 0 or more and lag 2 or more, not sinks {self.sinks} and lag {self.lag}")

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({LagScores(self.sinks, self.lag)})

    def score(self, view: View) -> Scores:
        return Scores(torch.stack(read_signal(view, LagScores(self.sinks, self.lag))))


def lagkv(sinks: int = 4, lag: int = 128) -> Policy:
    """Keep the sinks, the latest tokens from the last complete chunk on, and the best ranked of each chunk.

    Numbers and rule are those of LagKVPress of NVIDIA/kvpress 0.5.5, which ranks within each chunk of a
    layer and KV head: if the budget leaves every chunk equally many slots, the slots are the same. Ours: of
    equal ranks in two chunks the lower slot stays; a budget below the last chunk keeps its latest slots.
    Departs from the authors' code (AI-Lab-China-Merchants-Bank/LagKV @ 2a9d19e: 16 sinks, a lag of 1024, 128
    in the README), which keeps a fraction of every chunk once and never ranks it again, so that its cache
    grows with the text; a budget needs another rule. Here every eviction step ranks all slots again, in
    chunks of the remaining slots; two steps of 64 tokens each therefore differ from one of 128. No attention
    is read and nothing is carried. `lagkv-causal` compares with the previous chunk instead.
    """
    return Policy(scoring=LagRelative(sinks, lag), routing=PerHead(), protect=Protect(sinks=sinks, recent=0))
