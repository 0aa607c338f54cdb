"""Expected Attention: keep the slots that future queries are expected to attend to (arXiv:2510.00636)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from policies.contract import FedTokens, Rotation, Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect, slot_index
from policies.routing import PerHead
from policies.selection import HEAVIEST
from policies.signals import Keys, Norms, group_mean, read_signal, upcast
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "expected-attention": PolicyFacts(
        "attention",
        "what future queries are expected to attend to",
        "arXiv:2510.00636",
        "The distribution of past queries predicts what later ones will attend to.",
        aliases=("expected",),
    )
}

FURTHEST = 2**20
"""Maximum number of future positions in the average; each needs one angle per pair."""


class Moments(NamedTuple):
    """Moments of the queries of a layer before RoPE; while decoding, with a leading axis for the layers."""

    mean: Tensor
    """[q_head, d]."""
    covariance: Tensor
    """[q_head, d, d], divided by the number of queries, not by one less."""
    tokens: Tensor
    """[1], the number of queries."""


def rotation_factors(rotation: Rotation, start: int, count: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosine and sine [count, d/2] of the model's rotation at positions from `start` on.

    In float32, as transformers computes them for every dtype of the model, so that the inverse is exact.
    """
    position = torch.arange(start, start + count, device=like.device, dtype=torch.float32)
    angle = position[:, None] * rotation.frequencies.to(like.device, torch.float32)
    return angle.cos(), angle.sin()


def undo_rotation(queries: Tensor, rotation: Rotation, start: int) -> Tensor:
    """Return the queries [..., t, d] at positions from `start` on before RoPE; float32 or better."""
    queries = upcast(queries)
    cosine, sine = (part.to(queries.dtype) for part in rotation_factors(rotation, start, queries.shape[-2], queries))
    # In float32, cosine and sine are not exactly on the unit circle, so the rotation also scales slightly.
    length = rotation.scaling * (cosine.square() + sine.square())
    cosine, sine = cosine / length, sine / length
    real, imaginary = queries.chunk(2, -1)
    return torch.cat([real * cosine + imaginary * sine, imaginary * cosine - real * sine], -1)


def mean_rotation(rotation: Rotation, start: int, count: int, like: Tensor) -> Tensor:
    """Return R: the mean of the RoPE matrices [d, d] at positions start .. start + count - 1."""
    cosine, sine = (
        rotation.scaling * part.mean(0).to(like.dtype) for part in rotation_factors(rotation, start, count, like)
    )
    upper = torch.cat([cosine.diag(), -sine.diag()], 1)
    return torch.cat([upper, torch.cat([sine.diag(), cosine.diag()], 1)])


def expected_logits(moments: Moments, turn: Tensor, keys: Tensor) -> Tensor:
    """Return the logarithm of the expected exp(logit) of normally distributed queries: [q_head, n].

    mu . k / sqrt(d) + k' Sigma k / (2 d), where mu and Sigma are the mean and the covariance of the queries
    rotated by `turn` [d, d]; keys [kv_head, n, d] with their RoPE rotation.
    """
    keys = upcast(keys)
    dim = keys.shape[-1]
    mean = moments.mean.to(keys.dtype) @ turn.T
    covariance = turn @ moments.covariance.to(keys.dtype) @ turn.T
    group = len(mean) // len(keys)
    logits = [
        key @ mean[head] / math.sqrt(dim) + (key @ covariance[head]).mul_(key).sum(-1) / (2 * dim)
        for head, key in enumerate(key for key in keys for _ in range(group))
    ]
    return torch.stack(logits)


@dataclass(frozen=True)
class QueryMoments:
    """`Moments` of the queries of all tokens but the first `sinks`: mean and covariance before RoPE.

    Updated block by block as tokens are fed (Chan, Golub and LeVeque 1979, update formula 2.1), which avoids
    the cancellation of a sum of squares minus a squared mean. None if the model has no fixed rotation.
    """

    sinks: int
    turns: ClassVar[bool] = True

    def reads(self, layer: int) -> bool:
        return True

    def fold(self, fed: FedTokens, before: Moments | None) -> Moments | None:
        if fed.queries is None or fed.rotation is None:
            return before
        skipped = max(0, self.sinks - fed.start)
        queries = undo_rotation(fed.queries[..., skipped:, :], fed.rotation, fed.start + skipped)
        layers, count = queries.shape[:-3], queries.shape[-2]
        total = queries.new_full((*layers, 1), count)
        mean = queries.sum(-2) / max(1, count)
        centred = queries - mean[..., None, :]
        new = Moments(mean, centred.mT @ centred / max(1, count), total)
        return new if before is None else merge_moments(before, new)

    def result(self, state: Moments) -> Moments:
        return state


def merge_moments(a: Moments, b: Moments) -> Moments:
    """Return the moments of the queries of both."""
    total = a.tokens + b.tokens
    share = (b.tokens / total.clamp(min=1))[..., None]  # [..., 1, 1]
    difference = b.mean - a.mean
    outer_product = difference[..., :, None] * difference[..., None, :]
    weight = share[..., None]
    covariance = a.covariance + weight * (b.covariance - a.covariance)
    return Moments(a.mean + share * difference, covariance + weight * (1 - weight) * outer_product, total)


@dataclass(frozen=True)
class ExpectedAttention:
    """(p + epsilon) * ||v||: p is the softmax of `expected_logits` over the slots after the first `sinks`, mean over
    the query heads of a group; v is the value of the slot. Sinks score 0: the policy has to protect them.

    future: the number of next positions over which the rotation is averaged. As in the authors' code, R is
    the mean rotation in R Sigma R', instead of averaging R Sigma R' over the rotations.
    """

    future: int = 512
    sinks: int = 4
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.future <= FURTHEST or self.sinks < 0 or not 0 <= self.epsilon <= HEAVIEST:
            raise ValueError(
                f"future must be from 1 to {FURTHEST}, sinks 0 or more and epsilon from 0 to {HEAVIEST:.0f}, "
                f"not future {self.future}, sinks {self.sinks} and epsilon {self.epsilon}"
            )

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({QueryMoments(self.sinks), Keys(), Norms()})

    def score(self, view: View) -> Scores:
        if view.rotation is None:
            raise ValueError(
                "view.rotation must say how the model rotates queries: Expected Attention needs a rotary "
                "embedding that rotates every pair of a head by one rule; choose another policy"
            )
        filled = view.filled.expand(view.layers, view.kv_heads, -1)
        outside = ~filled | (slot_index(filled) < self.sinks)
        layers = zip(
            read_signal(view, QueryMoments(self.sinks)),
            read_signal(view, Keys()),
            read_signal(view, Norms()),
            outside,
            strict=True,
        )
        turn, scores = None, []
        for moments, keys, norms, excluded in layers:
            if turn is None:
                turn = mean_rotation(view.rotation, len(view.token_ids), self.future, upcast(keys))
            logits = expected_logits(moments, turn, keys)
            group = len(logits) // view.kv_heads
            masked = logits.masked_fill(excluded.repeat_interleave(group, 0), -torch.inf)
            expected = group_mean(masked.softmax(-1), view.kv_heads)
            scores.append(((expected + self.epsilon) * norms.value).masked_fill(excluded, 0))
        return Scores(torch.stack(scores))


def expected_attention(future: int = 512, sinks: int = 4) -> Policy:
    """Keep the first `sinks` slots and, of each layer and KV head, those that future queries are expected to
    attend to, weighted by the norm of their values.

    Formulas and numbers are those of ExpectedAttentionPress (NVIDIA/kvpress 0.5.5), by the authors: queries
    are assumed normally distributed, with the mean and covariance of the prompt's queries before RoPE, at any
    of the next 512 positions. Departs from the paper as that code does: it uses the norm of the value itself,
    not of the value after the output projection. The entry of that name on kvpress' leaderboard is another
    policy: heads compete, and epsilon is 0.01.

    Moments are accumulated as tokens are fed, by undoing the rotation of the queries, instead of from stored
    hidden states. With an interval, moments continue over the tokens of the answer, and the remaining slots
    are scored again at every eviction step; DecodingPress of kvpress uses the moments of the last 256 tokens
    only, and drops many slots at a time. The moments are carried: d (d + 1) numbers per query head at any
    length, which is more than the slots of a short answer take.
    """
    return Policy(scoring=ExpectedAttention(future, sinks), routing=PerHead(), protect=Protect(sinks=sinks, recent=0))
