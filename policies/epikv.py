"""EpiKV: keep the tokens at which the residual stream turned (Kolawole and Smith, arXiv:2606.26472).

A token is worth how much it changed the hidden state in one band of layers, less how much in another. Its
score is a function of what was fed up to it, so that it is settled when the token is generated, and never
changes (section 3.3; by section 4.4 "the raw key-variance and lag-key variants recompute scores over the
whole cache each step": we read the former, for every method). What an interval does: a token is scored as it
would be at every step, and evicted later.

Readings that every method of the paper shares here (`family`), and
docs/decisions/epikv-where-it-is-silent.md: windows begin anew at the first token of the answer, whose change
is that from the last token of the prompt; tokens of the prompt are scored by the same formula among
themselves, which decides nothing where the prompt is preserved; one score a token is one keep set for all
layers and heads; layers are counted in a model of `depth` layers, as those of the paper are in one of 32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn import functional

from policies.contract import Scores, Scoring, Signal, View
from policies.policy import Policy
from policies.protect import Preserve
from policies.signals import AttentionSums, HiddenChange, of_all_layers, refuse_separate, wide

__all__ = [
    "BandDifference",
    "Epiphany",
    "Heard",
    "HiddenMean",
    "changes",
    "channel_variance",
    "epiphany",
    "hidden_states",
    "in_parts",
    "lag_relative",
    "of_slots",
    "preserving",
    "refuse_window",
    "rolling_mean",
    "rolling_z",
    "standardised",
]

EPSILON = 1e-6
"""Of Eq. 3, which leaves it open; ours."""


def changes(hidden: Tensor) -> Tensor:
    """hidden [..., t, width] -> [..., t], g(t) = ||h(t) - h(t-1)|| (Eq. 1); the first token has changed by
    0.
    """
    return functional.pad(wide(hidden).diff(dim=-2).norm(dim=-1), (1, 0))


def rolling_mean(values: Tensor, window: int) -> Tensor:
    """values [..., t] -> [..., t] float64, the mean over the last `window` entries, the own one included;
    over all there are at the start.
    """
    return trailing(values, window)[1]


def rolling_z(values: Tensor, window: int) -> Tensor:
    """values [..., t] -> [..., t] float64, Eq. 3: how far an entry lies from the mean of its window, in
    deviations.

    The window is that of `rolling_mean`, the deviation is the population's, EPSILON is added to it: none
    exceeds sqrt(window - 1), and the first is 0.
    """
    rows, mean, held = trailing(values, window)
    inside = torch.arange(window, device=values.device) >= window - held[:, None]
    variance = ((rows - mean[..., None]) * inside).square().sum(-1) / held
    return (values.double() - mean) / (variance.sqrt() + EPSILON)


def trailing(values: Tensor, window: int) -> tuple[Tensor, Tensor, Tensor]:
    """values [..., t] -> the last `window` entries of each, 0 before the first [..., t, window]; their mean
    [..., t]; and how many there are [t]. A view of float64 and no copy, so that nothing cancels.
    """
    t = values.shape[-1]
    rows = functional.pad(values.double(), (window, 0)).unfold(-1, window, 1)[..., 1:, :]
    held = torch.arange(1, t + 1, device=values.device).clamp(max=window)
    return rows, rows.sum(-1) / held, held


def channel_variance(vectors: Tensor) -> Tensor:
    """vectors [..., t, d] -> [..., t], the population's variance over the channels of each: what KV-key and
    KV-val take the rolling mean of (section 3.3).
    """
    return wide(vectors).var(-1, correction=0)


def lag_relative(vectors: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """vectors [..., t, d], low and high [..., d] of another chunk -> [..., t], the variance over the
    channels once each is normalised by the range that it has in that chunk (section 3.3, after LagKV,
    arXiv:2504.04704).

    A range below EPSILON counts as EPSILON. The population's variance, as said, where LagKV takes the
    deviation and a softmax over the chunk, after which scores of two chunks would not compare.
    """
    low, high = (wide(end)[..., None, :] for end in (low, high))
    return channel_variance((wide(vectors) - low) / (high - low).clamp(min=EPSILON))


def standardised(values: Tensor) -> Tensor:
    """values [..., n] -> [..., n], Eq. 3 over all of them at once."""
    centred = values - values.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True).sqrt() + EPSILON)


def epiphany(
    hidden: Tensor, band_a: int | tuple[int, ...], band_b: int | tuple[int, ...], window: int = 64
) -> Tensor:
    """hidden [layer, t, width] -> [t] float64, z_A - z_B (section 3.2): the mean of `rolling_z` over the
    changes in the layers of band A, less that over band B. The methods call what it is made of; this is the
    formula.
    """
    refuse_window(window)
    of_bands = [[band] if isinstance(band, int) else list(band) for band in (band_a, band_b)]
    for band in of_bands:
        HiddenChange(tuple(band), None).layers_in(len(hidden))  # refuses what is no band of these layers
    high, low = (rolling_z(changes(hidden[band]), window).mean(0) for band in of_bands)
    return high - low


def in_parts(values: Tensor, prompt: int, score: Callable[[Tensor], Tensor]) -> Tensor:
    """values [..., t] -> [..., t], the score of the prompt's tokens among themselves, and of the answer's."""
    return torch.cat([score(values[..., :prompt]), score(values[..., prompt:])], -1)


def of_slots(view: View, tokens: Tensor) -> Tensor:
    """tokens [t] -> [1, 1, n], those that still have a slot; heads must hold the same ones."""
    refuse_separate(view)
    return tokens[view.positions[:1, :1]]


def in_band(view: View, band: HiddenChange) -> list[Tensor]:
    """The changes [t] in every layer of the band."""
    return [trace.changes for trace in of_all_layers(view, band) if trace is not None]


@dataclass(frozen=True)
class BandDifference:
    """How much the hidden state changes in band A less how much in band B, over the last `window` tokens.

    band_a, band_b: layers as counted, from 0, in a model of `depth` layers; HiddenChange says which these
    are in
        a model of another depth. None: the layers themselves.
    window: in tokens.
    """

    band_a: tuple[int, ...] = (10,)
    band_b: tuple[int, ...] = (21,)
    window: int = 64
    depth: int | None = 32

    def __post_init__(self) -> None:
        refuse_window(self.window)
        for band in (self.band_a, self.band_b):
            HiddenChange(band, self.depth)  # refuses what is no band

    @property
    def high(self) -> HiddenChange:
        return HiddenChange(self.band_a, self.depth)

    @property
    def low(self) -> HiddenChange:
        return HiddenChange(self.band_b, self.depth)

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({self.high, self.low})

    def refuse_depth(self, layers: int) -> None:
        """ValueError where a layer of a model of so many is in both bands: what it says would cancel."""
        if both := sorted(set(self.high.layers_in(layers)) & set(self.low.layers_in(layers))):
            raise ValueError(
                f"scoring.band_a {self.band_a} and scoring.band_b {self.band_b}, counted in "
                f"{'the model itself' if self.depth is None else f'{self.depth} layers'}, both fall on layer "
                f"{both[0]} of a model of {layers} layers: set scoring.depth and bands that stay apart in it"
            )

    def worth(self, changes: Tensor) -> Tensor:
        """changes [t] in one layer -> [t], what a band takes the mean of."""
        raise NotImplementedError

    def score(self, view: View) -> Scores:
        self.refuse_depth(view.layers)
        high, low = (
            torch.stack([in_parts(own, view.prompt, self.worth) for own in in_band(view, band)]).mean(0)
            for band in (self.high, self.low)
        )
        return Scores(of_slots(view, high - low))


@dataclass(frozen=True)
class HiddenMean(BandDifference):
    """s(t) of Eq. 2: the mean change in layer 10 less that in layer 21. "Variance" in the method's name
    only.
    """

    def worth(self, changes: Tensor) -> Tensor:
        return rolling_mean(changes, self.window)


@dataclass(frozen=True)
class Epiphany(BandDifference):
    """z_10(t) - z_21(t) of Eq. 3, which takes out of Eq. 2 what drifts with the position; of whole bands, the
    difference of their means.
    """

    def worth(self, changes: Tensor) -> Tensor:
        return rolling_z(changes, self.window)


@dataclass(frozen=True)
class Heard:
    """Attention received so far plus z_10(t): "cumul. attn + z10" of Table 1, for all that it is named x.

    The attention is what all queries so far gave the slot, in the mean over heads and layers (AttentionSums,
    as in H2O); it goes on after the token, z does not. Its scale is that of the answer's length, and would
    be another with sums over heads: it is standardised by Eq. 3 over the slots of the answer, as the
    prompt's among themselves, so that the two weigh alike (ours). The literal sum would be a weighting by
    the number of tokens.

    layer: as `BandDifference` counts; window in tokens.
    """

    layer: int = 10
    window: int = 64
    depth: int | None = 32

    def __post_init__(self) -> None:
        refuse_window(self.window)
        HiddenChange((self.layer,), self.depth)

    @property
    def change(self) -> HiddenChange:
        return HiddenChange((self.layer,), self.depth)

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({AttentionSums(), self.change})

    def score(self, view: View) -> Scores:
        received = torch.stack(of_all_layers(view, AttentionSums())).mean((0, 1)).double()
        (own,) = in_band(view, self.change)
        turned = of_slots(view, in_parts(own, view.prompt, lambda part: rolling_z(part, self.window)))
        asked = int((view.positions[0, 0] < view.prompt).sum())
        return Scores(in_parts(received, asked, standardised) + turned)


def refuse_window(window: int) -> None:
    if window < 1:
        raise ValueError(f"window must be 1 token or more, not {window}")


def preserving(scoring: Scoring) -> Policy:
    """What the methods of the paper share: the prompt and the last min(128, K/4) slots stay (section 3.3,
    appendix D), and the highest scores of the others, one set for all layers and heads.

    K is the size of the cache, prompt and recent slots included: section 3.1 "caps the cache at a budget of K
    tokens", against section 3.3, where a method "applies its budget to the remaining positions". A registered
    `preserve` replaces what is protected here. The paper evicts at every step; an interval is for the
    cadence.
    """
    return Policy(scoring=scoring, protect=Preserve(prompt=True, recent="min(128, K/4)"))


def hidden_states() -> Mapping[str, Policy]:
    """By name: Table 1's methods that read hidden states. Each differs from `epikv` in its scoring alone."""
    return MappingProxyType(
        {
            "epikv": epikv(),
            "hs-variance": hs_variance(),
            "band-adaptive": band_adaptive(),
            "attn-x-hs": attn_x_hs(),
        }
    )


def epikv() -> Policy:
    """EpiKV, z_10 - z_21 over 64 tokens (section 3.2, Eq. 3): keep the tokens that turned the residual
    stream.
    """
    return preserving(Epiphany())


def hs_variance() -> Policy:
    """HS-variance (section 3.2, Eq. 2): EpiKV by rolling means, with the drift that Eq. 3 takes out."""
    return preserving(HiddenMean())


def band_adaptive() -> Policy:
    """Band-adaptive (Table 1, "Band A/B layers"): the mean z over layers 7-13 less that over layers 18-25.

    All that is said of it. What adapts is not: a choice of one layer of each band a trace would be as good a
    reading. Ours adapts nothing, and has no setting that the paper would have to give.
    """
    return preserving(Epiphany(band_a=tuple(range(7, 14)), band_b=tuple(range(18, 26))))


def attn_x_hs() -> Policy:
    """Attn x HS (Table 1, "cumul. attn + z10"): attention received so far plus z_10, both standardised."""
    return preserving(Heard())
