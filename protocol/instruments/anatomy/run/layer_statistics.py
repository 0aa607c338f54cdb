"""Statistics of the tokens of a trace in each layer, from one forward pass over all of them.

Layers are those of full attention, which policies see. Each statistic of a token depends only on tokens up to
it, except the attention that it receives and TriAttention's score, which look back from the end. Windows of
tokens and chunks of a lag restart at the answer, and tokens of the prompt are measured by the same formulas
among themselves, as in `policies.epikv`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from policies import AttentionRows, FedTokens, Rotation, Statistics, View
from policies.epikv import channel_variance, rolling_mean, rolling_z, score_parts
from policies.epikv_vectors import LagVariances
from policies.expected_attention import undo_rotation
from policies.signals import AttentionSums, EveryLayer, HiddenChange, Keys, upcast
from policies.triattention import HeadStatistics
from protocol.engine import prefill
from protocol.engine.observation import observe_forward
from protocol.engine.rotation import rotation_of
from protocol.layers.layer_kinds import evictable
from protocol.models.load import LoadedModel

WINDOW, DECAY, LAG = 64, 0.9, 64
"""Tokens of the rolling statistics and of a chunk, as in EpiKV; the decay of the exponential mean."""
CALIBRATED = "text"
"""The statistics of the model under which `1d` is calibrated."""


class StatisticRow(NamedTuple):
    """values: [n] float64 on the CPU. layer: None if no layer is involved."""

    name: str
    layer: int | None
    values: Tensor


@dataclass(frozen=True)
class AttentionEntropy(EveryLayer):
    """-sum a ln a of each query row of attention, mean over the query heads: [t] for every layer. With
    attention sinks a row sums to less than 1, and the share of the sink is left out.
    """

    window: ClassVar[None] = None

    def attend(self, rows: AttentionRows, previous: Tensor | None) -> Tensor:
        entropy = -torch.xlogy(rows.attention, rows.attention).sum(-1).mean(-2)
        return entropy if previous is None else torch.cat([previous, entropy], -1)


def measure_layers(model: LoadedModel, token_ids: Sequence[int], prompt: int, chunk: int | None) -> list[StatisticRow]:
    """Return the position and every statistic of every layer. prompt: tokens of the prompt. chunk: fed at once."""
    layers, n = evictable(model.network.config), len(token_ids)
    hidden = HiddenChange(tuple(range(layers)), None)
    with observe_forward(model.network, range(layers)), torch.no_grad():
        fed = prefill.feed(model, token_ids, (hidden, AttentionSums(), AttentionEntropy()), chunk=chunk, prompt=prompt)
    rotation = rotation_of(model.network)
    results = [StatisticRow("position", None, torch.arange(n, dtype=torch.float64))]
    for layer in range(layers):
        layer_tensors = LayerTensors(prompt, fed.keys[layer], fed.values[layer], rotation)
        change = fed.signals[hidden][layer].changes
        received = fed.signals[AttentionSums()][layer].mean(0)
        entropy = fed.signals[AttentionEntropy()][layer]
        named = (
            *layer_tensors.hidden_statistics(change),
            *layer_tensors.cache_statistics(),
            *attention_statistics(received, entropy),
        )
        results += [StatisticRow(name, layer, values.double().cpu()) for name, values in named]
    if isinstance(statistics := model.statistics.get(CALIBRATED), Statistics):
        scores = triattention_scores(model, token_ids, fed.keys, statistics).mean(1).double().cpu()
        results += [StatisticRow("triattention", layer, scores[layer]) for layer in range(layers)]
    return results


class LayerTensors(NamedTuple):
    """The tensors of one layer. keys, values: [kv_head, n, d]."""

    prompt: int
    keys: Tensor
    values: Tensor
    rotation: Rotation | None

    def apply_in_parts(self, values: Tensor, score: Callable[[Tensor], Tensor]) -> Tensor:
        return score_parts(values.double(), self.prompt, score)

    def rolling_average(self, values: Tensor) -> Tensor:
        return self.apply_in_parts(values, lambda part: rolling_mean(part, WINDOW))

    def hidden_statistics(self, change: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield statistics of change [n]: Euclidean distance of the output of the block to that of the
        previous token; 0 for the first (EpiKV, Eq. 1 to 3).
        """
        yield "hidden_change", change
        yield "hidden_change_rolling", self.rolling_average(change)
        yield "hidden_change_ema", self.apply_in_parts(change, exponential_mean)
        yield "hidden_change_z", self.apply_in_parts(change, lambda part: rolling_z(part, WINDOW))

    def cache_statistics(self) -> Iterator[tuple[str, Tensor]]:
        """Yield variances over the channels of a head, norms and lag statistics, mean over the KV heads. Keys
        also without their rotation, if the model rotates all of a head by one rule.
        """
        variances = {"key_variance": self.keys, "value_variance": self.values}
        if self.rotation is not None:
            variances["key_variance_unrotated"] = undo_rotation(self.keys, self.rotation, 0)
        for name, vectors in variances.items():
            spread = channel_variance(vectors).mean(0)
            yield name, spread
            yield f"{name}_rolling", self.rolling_average(spread)
        for name, vectors in (("key", self.keys), ("value", self.values)):
            yield f"{name}_norm", upcast(vectors).norm(dim=-1).mean(0)
            # The policy adds the parts of keys and values, which are equal here.
            twice = LagVariances(LAG).fold(FedTokens(vectors, vectors, 0, self.prompt), None).scores
            lagged = twice / 2
            # The first chunk has no predecessor: NaN. The policy's 0 would reveal prompt and answer.
            lagged[: self.prompt + (-self.prompt // LAG + 1) * LAG] = torch.nan
            yield f"lag_{name}", lagged


def attention_statistics(received: Tensor, entropy: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield attention statistics. received [n]: attention from this and all later rows, mean over the query heads."""
    n_readers = torch.arange(len(received), 0, -1, device=received.device)
    yield "attention_received", received
    yield "attention_received_mean", received / n_readers
    yield "attention_entropy", entropy


def exponential_mean(values: Tensor) -> Tensor:
    """Return the exponential mean of values [t], with weight DECAY of the previous mean; starts at the first value."""
    mean, means = None, []
    for value in values.tolist():
        mean = value if mean is None else DECAY * mean + (1 - DECAY) * value
        means.append(mean)
    return torch.tensor(means, dtype=torch.float64, device=values.device)


def triattention_scores(
    model: LoadedModel, token_ids: Sequence[int], keys: Sequence[Tensor], statistics: Statistics
) -> Tensor:
    """Return [layer, kv_head, n], TriAttention's score of each head (`triattention-per-head`)."""
    scoring = HeadStatistics(CALIBRATED)
    signals: dict[Any, Any] = dict.fromkeys(scoring.needs, statistics)
    signals[Keys()] = tuple(keys)
    view = View(
        token_ids=torch.tensor(list(token_ids), device=keys[0].device),
        layers=len(keys),
        kv_heads=len(keys[0]),
        sentence_ends=model.sentence_ends,
        seed=0,
        signals=signals,
    )
    return scoring.score(view).slots
