"""TriAttention's global mode, "1d": score a key by the expected logit of the model's mean query
(arXiv:2604.04921).

Also its modes with a set per layer and per head, and the variants of Sun and Harn, "Minimal-Intervention KV
Retention via Set-Conditioned Diversity", which change one component of it each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

import torch
from torch import Tensor

from policies.cadence import Schedule
from policies.calibration import Calibrated, Statistics
from policies.contract import Scores, Signal, View
from policies.decoding import state_lines
from policies.policy import Policy
from policies.protect import Protect
from policies.routing import PerHead, PerLayer
from policies.selection import HEAVIEST, Diverse, signature
from policies.signals import Keys, MeanValues, lane_matmul, read_calibration, read_signal, refuse_separate_heads, upcast
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "schedule-front": PolicyFacts(
        "triattention",
        "as 1d, but budgets that fall from round to round",
        "Sun and Harn, arXiv:2605.14292",
        "Budgets that fall from round to round spend memory where reasoning is most at risk.",
        parent="1d",
        component="cadence",
    ),
    "schedule-back": PolicyFacts(
        "triattention",
        "as 1d, but budgets that rise from round to round",
        "Sun and Harn, arXiv:2605.14292",
        "Budgets that rise from round to round spend memory where reasoning is most at risk.",
        parent="1d",
        component="cadence",
    ),
    "schedule-inverted": PolicyFacts(
        "triattention",
        "as 1d, but a low budget in the first rounds and a high one later",
        "Sun and Harn, arXiv:2605.14292",
        "The shortfall of a schedule is due to its phase: it disappears if low budgets come first.",
        parent="1d",
        component="cadence",
    ),
    "state_emit": PolicyFacts(
        "triattention",
        "as state_ask, but pins the State: lines that the model wrote",
        "Sun and Harn, arXiv:2605.14292",
        "Compact lines, for which the model is prompted, give the scorer dense tokens that it can pin.",
        parent="state_ask",
        component="decoding",
    ),
    "variant_b": PolicyFacts(
        "triattention",
        "as 1d, plus a bonus for values close to the mean direction of the model's values",
        "Sun and Harn, arXiv:2605.14292",
        "Values close to the model's mean value direction are worth more.",
        parent="1d",
        component="scoring",
    ),
    "q_stats": PolicyFacts(
        "triattention",
        "as 1d, but with statistics of the model's own answers",
        "Sun and Harn, arXiv:2605.14292",
        "Query statistics of the model's own reasoning score better than those of plain text.",
        parent="1d",
        component="scoring",
    ),
    "1d_div": PolicyFacts(
        "triattention",
        "as 1d, less the similarity to values that are already kept, weight 0.5",
        "Sun and Harn, arXiv:2605.14292",
        "A greedy choice that discounts values similar to those already kept (by 0.5) is more accurate.",
        parent="1d",
        component="selection",
    ),
    "1d_div-1.0": PolicyFacts(
        "triattention",
        "as 1d_div, but weight 1.0",
        "Sun and Harn, arXiv:2605.14292",
        "As 1d_div, at weight 1.0: a heavier discount is better.",
        parent="1d",
        component="selection",
    ),
    "1d_div-1.5": PolicyFacts(
        "triattention",
        "as 1d_div, but weight 1.5",
        "Sun and Harn, arXiv:2605.14292",
        "As 1d_div, at weight 1.5: a heavier discount is better.",
        parent="1d",
        component="selection",
    ),
    "state_ask": PolicyFacts(
        "triattention",
        "as 1d, but the model is prompted for State: lines and none is pinned: a control",
        "Sun and Harn, arXiv:2605.14292",
        "Prompted for compact lines that are not pinned, the model answers as before: the control.",
        parent="1d",
        component="decoding",
        is_control=True,
    ),
    "1d": PolicyFacts(
        "triattention",
        "keys that the model's mean query would attend to, with one set for all",
        "arXiv:2604.04921",
        "The average queries of a model predict which keys later queries will attend to.",
    ),
}

OFFSETS = tuple(2**power for power in range(17))
"""Distances in tokens of the future queries for which a key is scored: 1, 2, 4, ..., 65536."""


@dataclass(frozen=True)
class QueryStatistics:
    """One score per token: the maximum, over all layers and query heads, of the standardised logit that the
    mean query of the head gives it, averaged over `offsets`.

    statistics: the name under which the query statistics were calibrated.
    """

    statistics: str = "text"
    offsets: tuple[int, ...] = OFFSETS
    stacks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.offsets or min(self.offsets) < 1:
            raise ValueError(f"offsets must be at least one number of tokens, each 1 or more, not {self.offsets}")

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({Keys(), Calibrated(self.statistics)})

    def score(self, view: View) -> Scores:
        refuse_separate_heads(view)
        return Scores(max_standard_scores(self.logits(view).flatten(-3, -2))[..., None, None, :])

    def logits(self, view: View) -> Tensor:
        """Return the logits of the mean query of each head, [layer, q_head, n]; undefined for padding."""
        keys = torch.stack(read_signal(view, Keys()), -4)
        statistics = read_calibration(view, self.statistics, Statistics)
        return expected_logits(keys, statistics, view.token_count, self.offsets)


@dataclass(frozen=True)
class HeadStatistics(QueryStatistics):
    """A score per layer and KV head: the maximum standardised logit of the query heads that read it.

    Standardised over the slots of the head, so heads may hold different slots, and their scores are
    comparable. Keys keep their rotation, so positions are not needed.
    """

    stacks: ClassVar[bool] = True

    def score(self, view: View) -> Scores:
        logits = self.logits(view)
        grouped = logits.reshape(*logits.shape[:-2], view.kv_heads, -1, logits.shape[-1])
        return Scores(standard_scores(grouped, view.filled[..., None, :]).amax(-2))


@dataclass(frozen=True)
class LayerStatistics(QueryStatistics):
    """A score per layer, [layer, 1, n]: the maximum standardised logit of its query heads, which share slots."""

    stacks: ClassVar[bool] = True

    def score(self, view: View) -> Scores:
        if (view.positions != view.positions[..., :1, :]).any():
            raise ValueError(
                "heads of a layer contain different slots, but this scoring has one score for all of them; "
                "choose the routing PerLayer"
            )
        return Scores(standard_scores(self.logits(view), view.filled[..., :1, :]).amax(-2, keepdim=True))


@dataclass(frozen=True)
class ValuePrior:
    """A score plus `weight` times the cosine of a token's value to the average direction of values.

    The rejected variant `variant_b`, which the paper describes only as "+ lambda cos(V, dir)". Ours: V is the
    mean value over layers and heads (`selection.signature`), and dir is the direction calibrated under the
    name `statistics`, the unit mean of the values of the model's own answers.
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
        values = signature(torch.stack(read_signal(view, MeanValues()))[:, None])
        direction = read_calibration(view, self.statistics, Statistics).value_direction.to(values)
        return Scores(self.base.score(view).slots + self.weight * (values @ direction))


def expected_logits(keys: Tensor, statistics: Statistics, t: int | Tensor, offsets: tuple[int, ...]) -> Tensor:
    """keys [layer, kv_head, n, d] with RoPE -> [layer, q_head, n], the expected logit of each key.

    t: tokens fed, which is the next position; [lane, 1, 1, 1] for a batch, whose tensors all have a lane
    axis. The result is the mean over `offsets` of the logits of the mean query at t + offset, plus a norm
    term for the part of the queries' magnitude that the mean query lacks. It uses rotated keys, so positions
    are not needed: the mean query is rotated by (t + offset) times the frequency for every key. Angles are
    float64, since float32 angles have errors of 4e-3 at 70,000 tokens. float32 or better.
    """
    keys = upcast(keys)
    heads = keys.shape[-3]
    if isinstance(t, int):
        turn = mean_turn(t, statistics, offsets, keys.device)
    else:
        ages = t.flatten().tolist()
        turn_by_age = {age: mean_turn(age, statistics, offsets, keys.device) for age in set(ages)}
        turn = torch.stack([turn_by_age[age] for age in ages])[:, None, None]
    mean = statistics.query_mean * turn
    weights = torch.cat([mean.real, mean.imag], -1).to(keys.dtype)
    spread = (statistics.query_magnitude - statistics.query_mean.abs()).to(keys.dtype)
    lanes, layers = mean.shape[:-3], mean.shape[-3]
    weights = weights.reshape(*lanes, layers, heads, -1, 2 * mean.shape[-1])
    spread = spread.view(layers, heads, -1, mean.shape[-1]).expand(*weights.shape[:-1], -1)
    magnitude = torch.hypot(*keys.chunk(2, -1))
    logits = lane_matmul(weights, keys.mT, 2) + lane_matmul(spread, magnitude.mT, 2)
    return (statistics.scaling * logits).flatten(-3, -2)


def mean_turn(t: int, statistics: Statistics, offsets: tuple[int, ...], device: torch.device) -> Tensor:
    """Return [d/2] complex128, the mean over the offsets of the rotation to position t + offset."""
    ahead = torch.tensor(offsets, dtype=torch.float64, device=device) + t
    angles = ahead[:, None] * statistics.frequencies
    return torch.complex(angles.cos(), angles.sin()).mean(0)


def max_standard_scores(raw: Tensor) -> Tensor:
    """raw [..., head, n], one row per head and layer -> [..., n], the maximum standard score over the rows.

    Standardised by the mean and the population's standard deviation of the row, at least 1e-6.
    """
    centred = raw - raw.mean(-1, keepdim=True)
    deviation = centred.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-6)
    return (centred / deviation).amax(-2)


def standard_scores(raw: Tensor, filled: Tensor) -> Tensor:
    """Standardise raw [..., n] per row over the `filled` slots; 0 elsewhere.

    filled: bool, broadcastable with raw. The standard deviation is the population's, at least 1e-6.
    """
    count = filled.sum(-1, keepdim=True).clamp(min=1)
    raw = raw.masked_fill(~filled, 0)
    centred = (raw - raw.sum(-1, keepdim=True) / count).masked_fill(~filled, 0)
    deviation = (centred.square().sum(-1, keepdim=True) / count).sqrt().clamp(min=1e-6)
    return centred / deviation


def triattention(statistics: str = "text") -> Policy:
    """Keep the highest scores of `QueryStatistics`, one set for all layers and heads; nothing is protected.

    Follows WeianMao/triattention @ c3744ee with per_head_pruning off, normalisation on and
    allow_prefill_compression on: the "1d" of Sun and Harn (the code's default keeps a set for each KV head).
    That code takes the best k of the union of every head's best k; the union is omitted here, since it does
    not change the result. Departs from it: no noise of 1e-6 against ties; angles in float64; query statistics
    after q_norm, if the model has one; the cadence determines when to evict.
    """
    return Policy(scoring=QueryStatistics(statistics), protect=Protect(sinks=0, recent=0))


def per_head(statistics: str = "text") -> Policy:
    """Keep the highest scores of `HeadStatistics`, a set of equal size for each layer and KV head.

    The mode per_layer_perhead_pruning of WeianMao/triattention @ c3744ee, with its default of the maximum
    over a group (the alternative is the mean) and the departures of `triattention`.
    """
    return Policy(scoring=HeadStatistics(statistics), routing=PerHead(), protect=Protect(sinks=0, recent=0))


def per_layer(statistics: str = "text") -> Policy:
    """Keep the highest scores of `LayerStatistics`, one set for the heads of a layer.

    The mode "per_layer" of that code's runtime for vLLM (selector_hf.py), which takes the maximum over the
    heads; its older core takes the mean. Every query head's row is standardised, as in `per_head`.
    """
    return Policy(scoring=LayerStatistics(statistics), routing=PerLayer(), protect=Protect(sinks=0, recent=0))


def gates() -> Mapping[str, Policy]:
    """Return the policies by name: each differs from `1d` in exactly one component.

    `1d_div` is the method of Sun and Harn with the three weights of their sweep; the others are variants that
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
