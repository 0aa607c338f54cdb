"""EpiKV's methods that read keys and values: KV-key, KV-val and Lag-KV (arXiv:2606.26472, section 3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias, get_args

import torch
from torch import Tensor

from policies.contract import FedTokens, Scores, Signal, View
from policies.epikv import (
    channel_variance,
    gather_slots,
    lag_relative,
    preserving_policy,
    refuse_window,
    rolling_mean,
    score_parts,
)
from policies.policy import Policy
from policies.signals import read_signal, upcast
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "kv-key": PolicyFacts(
        "epikv",
        "as epikv, but tokens whose keys vary most over their channels",
        "Kolawole and Smith, arXiv:2606.26472",
        "The variance of keys over their channels is an equally good signal.",
        parent="epikv",
        component="scoring",
    ),
    "kv-val": PolicyFacts(
        "epikv",
        "as epikv, but tokens whose values vary most over their channels",
        "Kolawole and Smith, arXiv:2606.26472",
        "The variance of values over their channels is an equally good signal.",
        parent="epikv",
        component="scoring",
    ),
    "lagkv-causal": PolicyFacts(
        "epikv",
        "as epikv, but tokens that differ most from the previous chunk, its form of Lag-KV",
        "Kolawole and Smith, arXiv:2606.26472",
        "Difference from the previous chunk is an equally good signal.",
        parent="epikv",
        component="scoring",
    ),
}

Part: TypeAlias = Literal["keys", "values"]


@dataclass(frozen=True)
class ChannelVariances:
    """Variance over the channels of the key or the value of every token fed, mean over the KV heads: [t].

    Keys have their RoPE rotation; removing it changes almost nothing (appendix E).
    """

    part: Part

    def __post_init__(self) -> None:
        if self.part not in get_args(Part):
            raise ValueError(f"part must be one of {', '.join(get_args(Part))}, not {self.part!r}")

    def reads(self, layer: int) -> bool:
        return True

    def fold(self, fed: FedTokens, before: Tensor | None) -> Tensor:
        vectors = fed.keys if self.part == "keys" else fed.values
        new = channel_variance(vectors).mean(-2)
        return new if before is None else torch.cat([before, new], -1)

    def result(self, state: Tensor) -> Tensor:
        return state


@dataclass(frozen=True)
class MeanVariance:
    """The rolling mean of `ChannelVariances`, mean over the layers; higher scores are kept.

    The paper gives no sign for values; for keys the sign is that of competition mathematics, which reverses
    on easier problems (section 4.5). The aggregation over layers and heads is ours.
    """

    part: Part
    window: int = 64

    def __post_init__(self) -> None:
        refuse_window(self.window)

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({ChannelVariances(self.part)})

    def score(self, view: View) -> Scores:
        # The mean over layers of rolling means is the rolling mean of the mean over layers.
        spread = torch.stack(read_signal(view, ChannelVariances(self.part))).double().mean(0)
        means = score_parts(spread, view.prompt, lambda part: rolling_mean(part, self.window))
        return Scores(gather_slots(view, means))


class LagState(NamedTuple):
    """State of LagVariances. The axis `row` holds the keys of all KV heads, then their values."""

    scores: Tensor
    """[..., t], for every token fed."""
    previous_range: tuple[Tensor, Tensor]
    """[..., row, d] each: minimum and maximum of the previous chunk, channel by channel."""
    chunk_range: tuple[Tensor, Tensor]
    """Minimum and maximum of the current chunk."""


@dataclass(frozen=True)
class LagVariances:
    """`lag_relative` of the key plus that of the value of every token, relative to the previous chunk: [t].

    Chunks of `lag` tokens are aligned with the start of the answer, so the last `lag` tokens of the prompt
    (or fewer) are the reference of the first chunk of the answer. The first chunk of the prompt has no
    reference and scores 0. Mean over the KV heads.
    """

    lag: int = 64

    def __post_init__(self) -> None:
        if self.lag < 1:
            raise ValueError(f"lag must be 1 token or more, not {self.lag}")

    def reads(self, layer: int) -> bool:
        return True

    def fold(self, fed: FedTokens, before: LagState | None) -> LagState:
        rows = upcast(torch.cat([fed.keys, fed.values], -3))
        position, stop = fed.start, fed.start + rows.shape[-2]
        first = -fed.prompt // self.lag
        scores = [] if before is None else [before.scores]
        previous_range, chunk_range = (channel_ranges(rows[..., :1, :]),) * 2 if before is None else before[1:]
        while position < stop:
            chunk, inside = divmod(position - fed.prompt, self.lag)
            end = min(stop, position - inside + self.lag)
            piece = rows[..., position - fed.start : end - fed.start, :]
            if inside == 0:
                previous_range = chunk_range
            is_first = inside == 0 or position == 0
            chunk_range = channel_ranges(piece) if is_first else merge_ranges(chunk_range, channel_ranges(piece))
            relative = lag_relative(piece, *previous_range) * (chunk > first)
            key, value = relative.chunk(2, -2)
            scores.append(key.mean(-2) + value.mean(-2))
            position = end
        return LagState(torch.cat(scores, -1), previous_range, chunk_range)

    def result(self, state: LagState) -> Tensor:
        return state.scores


def channel_ranges(rows: Tensor) -> tuple[Tensor, Tensor]:
    """rows [..., t, d] -> minimum and maximum of each channel, [..., d] each."""
    return rows.amin(-2), rows.amax(-2)


def merge_ranges(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return torch.minimum(a[0], b[0]), torch.maximum(a[1], b[1])


@dataclass(frozen=True)
class LagVariance:
    """`LagVariances`, mean over the layers; higher scores are kept. The paper gives no chunk size; 64 is ours."""

    lag: int = 64

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({LagVariances(self.lag)})

    def score(self, view: View) -> Scores:
        spread = torch.stack(read_signal(view, LagVariances(self.lag))).double().mean(0)
        return Scores(gather_slots(view, spread))


def vectors() -> Mapping[str, Policy]:
    """Return the policies by name: each differs from `epikv` in its scoring alone."""
    return MappingProxyType({"kv-key": kv_key(), "kv-val": kv_val(), "lagkv-causal": lagkv_causal()})


def kv_key() -> Policy:
    """KV-key of EpiKV (section 3.3): keep tokens near which keys vary much over their channels."""
    return preserving_policy(MeanVariance("keys"))


def kv_val() -> Policy:
    """KV-val of EpiKV (section 3.3): keep tokens near which values vary much over their channels."""
    return preserving_policy(MeanVariance("values"))


def lagkv_causal() -> Policy:
    """EpiKV's "Lag-KV" (section 3.3): variance of key and value, normalised by the range of the chunk before.

    LagKV itself (arXiv:2504.04704) normalises by the chunk after, once a prompt: `lagkv`.
    """
    return preserving_policy(LagVariance())
