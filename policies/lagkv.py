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
from policies.signals import of_all_layers, wide

__all__ = ["LagRelative", "LagScores", "lag_scores", "lagkv", "relative"]


def relative(states: Tensor) -> Tensor:
    """How much each token stands out: states [kv_head, chunk, lag, d] -> [kv_head, chunk - 1, lag].

    Every channel is scaled to the range that it has in the next chunk; the standard deviation over the
    channels, as a softmax over the tokens of the chunk. A range below 1e-6 counts as 1e-6 (ours: the authors
    divide by it, whatever it is).
    """
    own, following = states[:, :-1], states[:, 1:]
    least, most = following.amin(2, keepdim=True), following.amax(2, keepdim=True)
    return ((own - least) / (most - least).clamp(min=1e-6)).std(-1).softmax(-1)


def lag_scores(keys: Tensor, values: Tensor, sinks: int = 4, lag: int = 128) -> Tensor:
    """keys and values [kv_head, n, d], the keys with RoPE -> [kv_head, n].

    After the first `sinks` tokens come chunks of `lag`. Every chunk but the last is ranked by the mean of
    what its keys and values have `relative` to the next one: 0 to below 1. The last chunk and what is left
    after it score above 1, the later the higher; the sinks highest of all.
    """
    heads, n, _ = keys.shape
    chunks = max(0, n - sinks) // lag
    ranked = max(0, chunks - 1) * lag
    later = 1 + torch.arange(n, device=keys.device) / n
    later[:sinks] = 3
    scores = later.expand(heads, n).clone()
    if ranked:
        parts = (wide(part)[:, sinks : sinks + chunks * lag] for part in (keys, values))
        key, value = (relative(part.reshape(heads, chunks, lag, -1)) for part in parts)
        worth = (key + value) / 2
        place = worth.argsort(stable=True, descending=True).argsort()
        # What is no number has no rank.
        rank = ((lag - 1 - place) / lag).masked_fill(worth.isnan(), torch.nan)
        scores[:, sinks : sinks + ranked] = rank.flatten(1)
    return scores


@dataclass(frozen=True)
class LagScores:
    """`lag_scores` of the slots that each head holds, [kv_head, n]; chunks are counted in slots."""

    sinks: int
    lag: int

    def summarise(self, layer: int, keys: Tensor, values: Tensor, filled: Tensor) -> Tensor:
        n = filled.shape[-1]
        held = filled.sum(-1).tolist()
        heads = [
            lag_scores(key[None, :count], value[None, :count], self.sinks, self.lag)
            for key, value, count in zip(keys, values, held, strict=True)
        ]
        return torch.cat([pad(scores, (0, n - scores.shape[-1])) for scores in heads])


@dataclass(frozen=True)
class LagRelative:
    """The score of `lag_scores`."""

    sinks: int = 4
    lag: int = 128

    def __post_init__(self) -> None:
        if self.sinks < 0 or self.lag < 2:
            raise ValueError(
                f"sinks must be 0 or more and lag 2 or more, not sinks {self.sinks} and lag {self.lag}"
            )

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({LagScores(self.sinks, self.lag)})

    def score(self, view: View) -> Scores:
        return Scores(torch.stack(of_all_layers(view, LagScores(self.sinks, self.lag))))


def lagkv(sinks: int = 4, lag: int = 128) -> Policy:
    """Keep the sinks, the latest tokens from the last whole chunk on, and the best ranked of each chunk.

    Numbers and rule are those of LagKVPress of NVIDIA/kvpress 0.5.5, which ranks within each chunk of a
    layer and KV head: with a budget that leaves every chunk equally many, the slots are the same. Ours: of
    equal ranks in two chunks the lower slot stays; a budget below the last chunk keeps the latest of it.
    Departs from the authors' code (AI-Lab-China-Merchants-Bank/LagKV @ 2a9d19e: 16 sinks, a lag of 1024, 128
    in the README), which keeps a share of every chunk once and never looks at it again, so that its cache
    grows with the text: a budget asks for another rule. Here every event ranks all slots anew, in chunks of
    what is left; two events of 64 tokens each are therefore not one of 128. No attention is read and nothing
    is carried. For the form that compares with the chunk before, see `lagkv-causal`.
    """
    return Policy(scoring=LagRelative(sinks, lag), routing=PerHead(), protect=Protect(sinks=sinks, recent=0))
