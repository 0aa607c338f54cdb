"""Variants of the set-conditioned selector of `1d_div`: within the budgets of Ada-KV and PyramidKV, which Sun
and Harn (section 6) list as untested, and with other signatures and weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

import torch
from torch import Tensor

from policies.contract import Scores, Signal, View
from policies.policy import Policy
from policies.routing import Adaptive, Pyramid
from policies.selection import HEAVIEST, Diverse, select_diverse, select_highest
from policies.signals import MeanValues, read_signal, upcast
from policies.triattention import per_head, per_layer, triattention
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "ada-1d": PolicyFacts(
        "triattention",
        "as 1d-per-head, but heads of a layer compete for its slots",
        "ours",
        "Heads that compete for the slots of a layer use them better than equal shares.",
        parent="1d-per-head",
        component="routing",
    ),
    "pyramid-1d": PolicyFacts(
        "triattention",
        "as 1d-per-head, but more slots in early layers than in late ones",
        "ours",
        "More slots in early layers than in late ones are better than equal shares.",
        parent="1d-per-head",
        component="routing",
    ),
    "1d_div-per-layer": PolicyFacts(
        "triattention",
        "as 1d_div, but similarity is averaged over layers",
        "ours",
        "Similarity should be measured in each layer, not on the mean value of all layers.",
        parent="1d_div",
        component="selection",
    ),
    "1d_div-per-head": PolicyFacts(
        "triattention",
        "as 1d_div, but similarity is averaged over layers and heads",
        "ours",
        "Similarity should be measured in each head, not on the mean value of all heads.",
        parent="1d_div",
        component="selection",
    ),
    "1d_div-scheduled": PolicyFacts(
        "triattention",
        "as 1d_div, but the weight falls while the answer grows",
        "ours",
        "The weight of the discount should fall as the answer grows.",
        parent="1d_div",
        component="selection",
    ),
    "ada-1d_div": PolicyFacts(
        "triattention",
        "as ada-1d, less the similarity to values that the head has kept",
        "ours",
        "The discount also helps if heads compete for the budget, not only if they share one set.",
        parent="ada-1d",
        component="selection",
    ),
    "pyramid-1d_div": PolicyFacts(
        "triattention",
        "as pyramid-1d, less the similarity to values that the head has kept",
        "ours",
        "The discount also helps if each layer has its own budget, not only if all share one set.",
        parent="pyramid-1d",
        component="selection",
    ),
    "1d-per-head_div": PolicyFacts(
        "triattention",
        "as 1d-per-head, less the similarity to values that the head has kept",
        "ours",
        "The discount also helps if each head keeps its own set of equal size, not only if all share one set.",
        parent="1d-per-head",
        component="selection",
    ),
    "1d-per-layer": PolicyFacts(
        "triattention",
        "as 1d, but one set for the heads of each layer",
        "arXiv:2604.04921",
        "As 1d, but layers need scores and sets of their own.",
    ),
    "1d-per-head": PolicyFacts(
        "triattention",
        "as 1d, but a set for each layer and KV head",
        "arXiv:2604.04921",
        "As 1d, but heads need scores and sets of their own.",
    ),
}


@dataclass(frozen=True)
class UnitValues:
    """The direction of each stored value: [kv_head, n, d] of unit length, in float32 or better.

    0 for padding. The epsilon of Equation 1 of Sun and Harn is 1e-8, as in `selection.signature`.
    """

    def summarise(self, layer: int, keys: Tensor, values: Tensor, filled: Tensor) -> Tensor:
        return normalise(upcast(values).masked_fill(~filled[..., None], 0))


@dataclass(frozen=True)
class DiverseEach(Diverse):
    """`Diverse` applied separately to each layer and KV head, with separate budgets and signatures.

    The signature of a slot is the direction of its value, without averaging. Heads may hold different slots,
    and different numbers of them. The weight is in units of that head's score.
    """

    needs: ClassVar[frozenset[Signal]] = frozenset({UnitValues()})

    def select(self, view: View, scores: Scores, protected: Tensor, allocation: Tensor) -> Tensor:
        weight = self.weight_at(view)
        if weight == 0:
            return select_highest(scores.slots, protected, allocation)
        # On the host, because picks are sequential.
        slots, counts = scores.slots.cpu(), allocation.cpu()
        protected = protected.expand(slots.shape).cpu()
        retained = torch.zeros_like(protected)
        for layer, values in enumerate(read_signal(view, UnitValues())):
            for head, head_values in enumerate(values.cpu()):
                # Padding of a head comes after its slots.
                index, slot_count = (layer, head), int((slots[layer, head] > -torch.inf).sum())
                picks = select_diverse(
                    slots[index][:slot_count],
                    head_values[:slot_count],
                    int(counts[index]),
                    weight,
                    preselected=protected[index][:slot_count],
                )
                retained[layer, head, picks] = True
        return retained.to(scores.slots.device)


@dataclass(frozen=True)
class DiverseByLayer(Diverse):
    """`Diverse` whose cosine of two slots is the mean over the layers of the cosines of their mean values.

    Equation 1 of Sun and Harn averages the values first, so layers dominate whose values are long or have the
    same direction for every token. A signature is the concatenation of the values of all layers.
    """

    def signatures(self, view: View) -> Tensor:
        return concatenate_units(normalise(torch.stack(read_signal(view, MeanValues()))))


@dataclass(frozen=True)
class DiverseByHead(Diverse):
    """`Diverse` whose cosine of two slots is the mean of the cosines of their values over layers and KV heads.

    A signature is the concatenation of the values of all heads.
    """

    needs: ClassVar[frozenset[Signal]] = frozenset({UnitValues()})

    def signatures(self, view: View) -> Tensor:
        return concatenate_units(torch.cat(read_signal(view, UnitValues())))


@dataclass(frozen=True)
class DiverseScheduled(Diverse):
    """`Diverse` whose weight changes linearly from `weight` to `last` over the first `over` tokens of the
    answer, and then stays constant.

    At the end of a prefill it is `weight`. With weight 0 an eviction step equals TopK, slot for slot.
    """

    weight: float = 1.0
    last: float = 0.0
    over: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.last <= HEAVIEST or self.over < 1:
            raise ValueError(
                f"last must be 0 (no penalty) or more, at most {HEAVIEST:.0f}, and over must be 1 token or "
                f"more, not {self.last} and {self.over}"
            )

    def weight_at(self, view: View) -> float:
        steps = min(self.over, max(0, len(view.token_ids) - view.prompt))
        return self.weight + (self.last - self.weight) * steps / self.over


def normalise(values: Tensor) -> Tensor:
    """Scale values [..., d] to unit length."""
    unit_values: Tensor = values / (values.norm(dim=-1, keepdim=True) + 1e-8)
    return unit_values


def concatenate_units(parts: Tensor) -> Tensor:
    """parts [part, n, d] of unit length -> [n, part * d], whose products are the mean of the parts' products."""
    joined: Tensor = parts.transpose(0, 1).flatten(1) / len(parts) ** 0.5
    return joined


def modes() -> Mapping[str, Policy]:
    """TriAttention's modes with several keep sets, and variants of `1d_div`. All of these compositions, their
    weights and the schedule are ours.

    `ada-1d` and `pyramid-1d` are `1d-per-head` with another routing; what ends in `_div` differs from the policy
    of its name without it, and the others from `1d_div`, in the selection alone. Standard scores are relative to
    a head, so `ada-1d` gives more slots to heads with more outliers.
    """
    head_policy, shared = per_head(), replace(triattention(), selection=Diverse(0.5))
    ada, pyramid = replace(head_policy, routing=Adaptive()), replace(head_policy, routing=Pyramid())
    return MappingProxyType(
        {
            "1d-per-layer": per_layer(),
            "1d-per-head": head_policy,
            "1d-per-head_div": replace(head_policy, selection=DiverseEach(0.5)),
            "ada-1d": ada,
            "ada-1d_div": replace(ada, selection=DiverseEach(0.5)),
            "pyramid-1d": pyramid,
            "pyramid-1d_div": replace(pyramid, selection=DiverseEach(0.5)),
            "1d_div-per-layer": replace(shared, selection=DiverseByLayer(0.5)),
            "1d_div-per-head": replace(shared, selection=DiverseByHead(0.5)),
            "1d_div-scheduled": replace(shared, selection=DiverseScheduled()),
        }
    )
