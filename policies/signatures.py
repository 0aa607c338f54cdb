"""The set-conditioned selector of `1d_div` where its authors did not take it: inside the budgets of Ada-KV
and PyramidKV, which Sun and Harn (section 6) name as untested, and with other signatures and weights.
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
from policies.selection import HEAVIEST, Diverse, diverse, highest
from policies.signals import MeanValues, of_all_layers, wide
from policies.triattention import per_head, per_layer, triattention

__all__ = [
    "DiverseByHead",
    "DiverseByLayer",
    "DiverseEach",
    "DiverseScheduled",
    "UnitValues",
    "modes",
    "side_by_side",
]


@dataclass(frozen=True)
class UnitValues:
    """Where each stored value points: [kv_head, n, d] of unit length, in float32 or better.

    0 where no slot is. The epsilon of Equation 1 of Sun and Harn is 1e-8, as in `selection.signature`.
    """

    def summarise(self, layer: int, keys: Tensor, values: Tensor, filled: Tensor) -> Tensor:
        return unit(wide(values).masked_fill(~filled[..., None], 0))


@dataclass(frozen=True)
class DiverseEach(Diverse):
    """`Diverse` in each layer and KV head by itself: its own slots, its own budget, its own signatures.

    The signature of a slot is where its one value points: nothing is averaged. So heads may hold different
    slots, and different numbers of them. The weight is in units of that head's score.
    """

    needs: ClassVar[frozenset[Signal]] = frozenset({UnitValues()})

    def select(self, view: View, scores: Scores, protected: Tensor, allocation: Tensor) -> Tensor:
        weight = self.weight_at(view)
        if weight == 0:
            return highest(scores.slots, protected, allocation)
        # On the host, where picks are made one after the other.
        slots, counts = scores.slots.cpu(), allocation.cpu()
        protected = protected.expand(slots.shape).cpu()
        kept = torch.zeros_like(protected)
        for layer, values in enumerate(of_all_layers(view, UnitValues())):
            for head, own in enumerate(values.cpu()):
                # A head that holds fewer slots than another has them first.
                at, held = (layer, head), int((slots[layer, head] > -torch.inf).sum())
                picks = diverse(
                    slots[at][:held], own[:held], int(counts[at]), weight, held=protected[at][:held]
                )
                kept[layer, head, picks] = True
        return kept.to(scores.slots.device)


@dataclass(frozen=True)
class DiverseByLayer(Diverse):
    """`Diverse` whose cosine of two slots is the mean over the layers of the cosines of their mean values.

    Equation 1 of Sun and Harn averages the values first, so that layers whose values are long, or point the
    same way for every token, decide. A signature is as wide as the values of all layers together.
    """

    def signatures(self, view: View) -> Tensor:
        return side_by_side(unit(torch.stack(of_all_layers(view, MeanValues()))))


@dataclass(frozen=True)
class DiverseByHead(Diverse):
    """`Diverse` whose cosine of two slots is the mean over layers and KV heads of those of their values.

    A signature is as wide as the values of all heads together.
    """

    needs: ClassVar[frozenset[Signal]] = frozenset({UnitValues()})

    def signatures(self, view: View) -> Tensor:
        return side_by_side(torch.cat(of_all_layers(view, UnitValues())))


@dataclass(frozen=True)
class DiverseScheduled(Diverse):
    """`Diverse` whose weight goes by equal steps from `weight` to `last` over the first `over` tokens of the
    answer, and stays there.

    At the end of a prefill it is `weight`. An event at which it is 0 is TopK, slot for slot.
    """

    weight: float = 1.0
    last: float = 0.0
    over: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.last <= HEAVIEST or self.over < 1:
            raise ValueError(
                f"last must be 0 (no penalty) or more, at most {HEAVIEST:.0f}, and over 1 token or more, "
                f"not {self.last} and {self.over}"
            )

    def weight_at(self, view: View) -> float:
        answered = min(self.over, max(0, len(view.token_ids) - view.prompt))
        return self.weight + (self.last - self.weight) * answered / self.over


def unit(values: Tensor) -> Tensor:
    """values [..., d] -> of unit length."""
    of_length: Tensor = values / (values.norm(dim=-1, keepdim=True) + 1e-8)
    return of_length


def side_by_side(parts: Tensor) -> Tensor:
    """parts [part, n, d] of unit length -> [n, part * d] of unit length, whose products are the mean over the
    parts of theirs.
    """
    joined: Tensor = parts.transpose(0, 1).flatten(1) / len(parts) ** 0.5
    return joined


def modes() -> Mapping[str, Policy]:
    """TriAttention's modes of more than one set, and `1d_div` in other rooms. All of these compositions,
    their weights and the schedule are ours.

    `ada-1d` and `pyramid-1d` are `1d-per-head` with another routing; the `_div` ones differ from these, and
    the others from `1d_div`, in the selection alone. A standard score says how far a slot stands out in its
    own head, so the heads that `ada-1d` gives more are those with more outliers.
    """
    own, shared = per_head(), replace(triattention(), selection=Diverse(0.5))
    ada, pyramid = replace(own, routing=Adaptive()), replace(own, routing=Pyramid())
    return MappingProxyType(
        {
            "1d-per-layer": per_layer(),
            "1d-per-head": own,
            "ada-1d": ada,
            "ada-1d_div": replace(ada, selection=DiverseEach(0.5)),
            "pyramid-1d": pyramid,
            "pyramid-1d_div": replace(pyramid, selection=DiverseEach(0.5)),
            "1d_div-per-layer": replace(shared, selection=DiverseByLayer(0.5)),
            "1d_div-per-head": replace(shared, selection=DiverseByHead(0.5)),
            "1d_div-scheduled": replace(shared, selection=DiverseScheduled()),
        }
    )
