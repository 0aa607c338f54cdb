"""TriAttention's global mode, "1d": how strongly the queries of the model would see a key (arXiv:2604.04921).

Also the gates of Sun and Harn, "Minimal-Intervention KV Retention via Set-Conditioned Diversity", that start
from it and change one component each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
from torch import Tensor

from policies.cadence import Schedule
from policies.calibrated import Calibrated, Statistics
from policies.contract import Scores, Signal, View
from policies.decoding import state_lines
from policies.policy import Policy
from policies.protect import Protect
from policies.selection import HEAVIEST, Diverse, signature
from policies.signals import Keys, MeanValues, calibrated, of_all_layers, refuse_separate, wide

__all__ = ["QueryStatistics", "ValuePrior", "gates", "one_dimensional", "triattention", "trigonometric"]

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

    def __post_init__(self) -> None:
        if not self.offsets or min(self.offsets) < 1:
            raise ValueError(f"offsets must be one or more tokens ahead, each at least 1, not {self.offsets}")

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({Keys(), Calibrated(self.statistics)})

    def score(self, view: View) -> Scores:
        refuse_separate(view)
        keys = torch.stack(of_all_layers(view, Keys()))
        statistics = calibrated(view, self.statistics, Statistics)
        raw = trigonometric(keys, statistics, len(view.token_ids), self.offsets)
        return Scores(one_dimensional(raw.flatten(0, 1))[None, None])


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


def trigonometric(keys: Tensor, statistics: Statistics, t: int, offsets: tuple[int, ...]) -> Tensor:
    """keys [layer, kv_head, n, d] with RoPE -> [layer, q_head, n], the logit that each key may expect.

    t: tokens seen, so the position of the next. The mean over `offsets` of what the mean query would give at
    t + offset, and the norm term for what of the queries' magnitude the mean query does not hold. Written for
    rotated keys, so that no position is needed: the angle between the two is (t + offset) times the frequency
    wherever the key stands. Angles are float64, since at 70,000 tokens those of float32 are off by 4e-3.
    float32 or better.
    """
    keys = wide(keys)
    layers, heads, n, d = keys.shape
    ahead = torch.tensor(offsets, dtype=torch.float64, device=keys.device) + t
    angles = ahead[:, None] * statistics.frequencies
    turn = torch.complex(angles.cos(), angles.sin()).mean(0)
    mean = statistics.query_mean * turn
    facing = torch.cat([mean.real, mean.imag], -1).to(keys.dtype).view(layers, heads, -1, d)
    spread = statistics.query_magnitude - statistics.query_mean.abs()
    magnitude = torch.hypot(*keys.chunk(2, -1))
    logits = facing @ keys.mT + spread.to(keys.dtype).view(layers, heads, -1, d // 2) @ magnitude.mT
    return (statistics.scaling * logits).view(layers, -1, n)


def one_dimensional(raw: Tensor) -> Tensor:
    """raw [head, n], a row for each head of each layer -> [n], the largest of its standard scores.

    Standardised by the mean and the population's deviation of the row, which is at least 1e-6.
    """
    centred = raw - raw.mean(-1, keepdim=True)
    deviation = centred.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-6)
    return (centred / deviation).amax(0)


def triattention(statistics: str = "text") -> Policy:
    """Keep the highest scores of `QueryStatistics`, one set for all layers and heads; nothing is protected.

    Follows WeianMao/triattention @ c3744ee with per_head_pruning off, normalisation on and
    allow_prefill_compression on: the "1d" of Sun and Harn (its own default keeps a set for each KV head).
    The union of every head's best k, out of which that code takes the best k, is left out: it changes
    nothing. Departs from it: no noise of 1e-6 against ties; angles in float64; query statistics after q_norm,
    where the model has one; when events fire and how far a lane grows between them is for the cadence.
    """
    return Policy(scoring=QueryStatistics(statistics), protect=Protect(sinks=0, recent=0))


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
