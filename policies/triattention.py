"""TriAttention's global mode, "1d": how strongly the queries of the model would see a key (arXiv:2604.04921).

Also its modes of a set per layer and per head, and the gates of Sun and Harn, "Minimal-Intervention KV
Retention via Set-Conditioned Diversity", that start from it and change one component each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

import torch
from torch import Tensor

from policies.cadence import Schedule
from policies.calibrated import Calibrated, Statistics
from policies.contract import Scores, Signal, View
from policies.decoding import state_lines
from policies.policy import Policy
from policies.protect import Protect
from policies.routing import PerHead, PerLayer
from policies.selection import HEAVIEST, Diverse, signature
from policies.signals import Keys, MeanValues, calibrated, of_all_layers, product, refuse_separate, wide

__all__ = [
    "HeadStatistics",
    "LayerStatistics",
    "QueryStatistics",
    "ValuePrior",
    "gates",
    "one_dimensional",
    "per_head",
    "per_layer",
    "standard_scores",
    "triattention",
    "trigonometric",
]

OFFSETS = tuple(2**power for power in range(17))
"""How many tokens ahead the queries stand for which a key is scored: 1, 2, 4, ..., 65536."""


@dataclass(frozen=True)
class QueryStatistics:
    """One score per token: the largest over all layers and query heads of its standardised attention logit,
    as the mean query of the head would give it, averaged over `offsets`.

    statistics: the name under which the query statistics were calibrated.
    """

    statistics: str = "text"
    offsets: tuple[int, ...] = OFFSETS
    stacks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.offsets or min(self.offsets) < 1:
            raise ValueError(f"offsets must be one or more tokens ahead, each at least 1, not {self.offsets}")

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({Keys(), Calibrated(self.statistics)})

    def score(self, view: View) -> Scores:
        refuse_separate(view)
        return Scores(one_dimensional(self.logits(view).flatten(-3, -2))[..., None, None, :])

    def logits(self, view: View) -> Tensor:
        """[layer, q_head, n], that the mean query of each head gives; anything where no slot is."""
        keys = torch.stack(of_all_layers(view, Keys()), -4)
        statistics = calibrated(view, self.statistics, Statistics)
        return trigonometric(keys, statistics, view.seen, self.offsets)


@dataclass(frozen=True)
class HeadStatistics(QueryStatistics):
    """A score per layer and KV head: the largest standardised logit of the query heads that read it.

    Standardised over the slots that the head holds, so heads may hold different ones, and their scores can be
    set against each other. Keys keep their rotation, so nothing is asked of their positions.
    """

    stacks: ClassVar[bool] = True

    def score(self, view: View) -> Scores:
        logits = self.logits(view)
        grouped = logits.reshape(*logits.shape[:-2], view.kv_heads, -1, logits.shape[-1])
        return Scores(standard_scores(grouped, view.filled[..., None, :]).amax(-2))


@dataclass(frozen=True)
class LayerStatistics(QueryStatistics):
    """A score per layer, [layer, 1, n]: the largest standardised logit of all query heads of the layer, which
    hold the same slots.
    """

    stacks: ClassVar[bool] = True

    def score(self, view: View) -> Scores:
        if (view.positions != view.positions[..., :1, :]).any():
            raise ValueError(
                "heads of a layer hold different slots, but this scoring has one score for all of them: "
                "route PerLayer"
            )
        return Scores(standard_scores(self.logits(view), view.filled[..., :1, :]).amax(-2, keepdim=True))


@dataclass(frozen=True)
class ValuePrior:
    """A score and `weight` times the cosine of a token's value to where values point on average.

    The gate `variant_b`, of which the paper says "+ lambda cos(V, dir)" and no more. Our readings: the mean
    value over layers and heads (`selection.signature`), and the direction that was calibrated under the name
    `statistics`, the unit mean of the values of the model's own answers.
    """

    base: QueryStatistics
    weight: float = 0.5
    statistics: str = "traces"

    def __post_init__(self) -> None:
        if not abs(self.weight) <= HEAVIEST:
            raise ValueError(f"weight must be from -{HEAVIEST:.0f} to {HEAVIEST:.0f}, not {self.weight}")

    @property
    def needs(self) -> frozenset[Signal]:
        return self.base.needs | {MeanValues(), Calibrated(self.statistics)}

    def score(self, view: View) -> Scores:
        values = signature(torch.stack(of_all_layers(view, MeanValues()))[:, None])
        direction = calibrated(view, self.statistics, Statistics).value_direction.to(values)
        return Scores(self.base.score(view).slots + self.weight * (values @ direction))


def trigonometric(keys: Tensor, statistics: Statistics, t: int | Tensor, offsets: tuple[int, ...]) -> Tensor:
    """keys [layer, kv_head, n, d] with RoPE -> [layer, q_head, n], the logit that each key may expect.

    t: tokens seen, so the position of the next; of several lanes [lane, 1, 1, 1], as all tensors have an axis
    for them. The mean over `offsets` of what the mean query would give at t + offset, and the norm term for
    what of the queries' magnitude the mean query does not hold. Written for rotated keys, so that no position
    is needed: the angle between the two is (t + offset) times the frequency wherever the key stands. Angles
    are float64, since at 70,000 tokens those of float32 are off by 4e-3. float32 or better.
    """
    keys = wide(keys)
    heads = keys.shape[-3]
    if isinstance(t, int):
        turn = turned(t, statistics, offsets, keys.device)
    else:
        ages = t.flatten().tolist()
        made = {age: turned(age, statistics, offsets, keys.device) for age in set(ages)}
        turn = torch.stack([made[age] for age in ages])[:, None, None]
    mean = statistics.query_mean * turn
    facing = torch.cat([mean.real, mean.imag], -1).to(keys.dtype)
    spread = (statistics.query_magnitude - statistics.query_mean.abs()).to(keys.dtype)
    lanes, layers = mean.shape[:-3], mean.shape[-3]
    facing = facing.reshape(*lanes, layers, heads, -1, 2 * mean.shape[-1])
    spread = spread.view(layers, heads, -1, mean.shape[-1]).expand(*facing.shape[:-1], -1)
    magnitude = torch.hypot(*keys.chunk(2, -1))
    logits = product(facing, keys.mT, 2) + product(spread, magnitude.mT, 2)
    return (statistics.scaling * logits).flatten(-3, -2)


def turned(t: int, statistics: Statistics, offsets: tuple[int, ...], device: torch.device) -> Tensor:
    """[d/2] complex128, the mean over the offsets of the turn up to t + offset."""
    ahead = torch.tensor(offsets, dtype=torch.float64, device=device) + t
    angles = ahead[:, None] * statistics.frequencies
    return torch.complex(angles.cos(), angles.sin()).mean(0)


def one_dimensional(raw: Tensor) -> Tensor:
    """raw [..., head, n], a row for each head of each layer -> [..., n], the largest of its standard scores.

    Standardised by the mean and the population's deviation of the row, which is at least 1e-6.
    """
    centred = raw - raw.mean(-1, keepdim=True)
    deviation = centred.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-6)
    return (centred / deviation).amax(-2)


def standard_scores(raw: Tensor, filled: Tensor) -> Tensor:
    """raw [..., n] less the mean of its row, over the deviation, both over the `filled` slots; 0 elsewhere.

    filled: bool, and broadcasts with raw. The deviation is the population's, at least 1e-6.
    """
    count = filled.sum(-1, keepdim=True).clamp(min=1)
    raw = raw.masked_fill(~filled, 0)
    centred = (raw - raw.sum(-1, keepdim=True) / count).masked_fill(~filled, 0)
    deviation = (centred.square().sum(-1, keepdim=True) / count).sqrt().clamp(min=1e-6)
    return centred / deviation


def triattention(statistics: str = "text") -> Policy:
    """Keep the highest scores of `QueryStatistics`, one set for all layers and heads; nothing is protected.

    Follows WeianMao/triattention @ c3744ee with per_head_pruning off, normalisation on and
    allow_prefill_compression on: the "1d" of Sun and Harn (its own default keeps a set for each KV head).
    The union of every head's best k, out of which that code takes the best k, is left out: it changes
    nothing. Departs from it: no noise of 1e-6 against ties; angles in float64; query statistics after q_norm,
    where the model has one; when events fire and how far a lane grows between them is for the cadence.
    """
    return Policy(scoring=QueryStatistics(statistics), protect=Protect(sinks=0, recent=0))


def per_head(statistics: str = "text") -> Policy:
    """Keep the highest scores of `HeadStatistics`, a set of equal size for each layer and KV head.

    The mode per_layer_perhead_pruning of WeianMao/triattention @ c3744ee, with its default of the largest
    over a group (mean is its other one) and the departures of `triattention`.
    """
    return Policy(scoring=HeadStatistics(statistics), routing=PerHead(), protect=Protect(sinks=0, recent=0))


def per_layer(statistics: str = "text") -> Policy:
    """Keep the highest scores of `LayerStatistics`, one set for the heads of a layer.

    The mode "per_layer" of that code's runtime for vLLM (selector_hf.py): there the largest over the heads,
    in its older core the mean over them. What is standardised is every query head's row, as in `per_head`.
    """
    return Policy(scoring=LayerStatistics(statistics), routing=PerLayer(), protect=Protect(sinks=0, recent=0))


def gates() -> Mapping[str, Policy]:
    """By name: each differs from `1d` in exactly one component.

    `1d_div` is the method of Sun and Harn with the three weights of their sweep; the others are gates that
    they rejected.
    """
    parent = triattention()
    return MappingProxyType(
        {
            "1d": parent,
            "1d_div": replace(parent, selection=Diverse(0.5)),
            "1d_div-1.0": replace(parent, selection=Diverse(1.0)),
            "1d_div-1.5": replace(parent, selection=Diverse(1.5)),
            "variant_b": replace(parent, scoring=ValuePrior(QueryStatistics())),
            "q_stats": triattention(statistics="traces"),
            "schedule-front": replace(parent, cadence=Schedule(load="front")),
            "schedule-back": replace(parent, cadence=Schedule(load="back")),
            "schedule-inverted": replace(parent, cadence=Schedule(load="inverted")),
            **{name: replace(parent, decoding=decoding) for name, decoding in state_lines().items()},
        }
    )
