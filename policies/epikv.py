"""EpiKV: keep the tokens at which the residual stream changed most (Kolawole and Smith, arXiv:2606.26472).

The score of a token is the change of the hidden state in one band of layers minus the change in another. It
depends only on the tokens up to it, so it is fixed when the token is generated (section 3.3; section 4.4 says
that "the raw key-variance and lag-key variants recompute scores over the whole cache each step": we follow
section 3.3 for every method). An interval does not change scores; it only delays evictions.

Choices that all methods of the paper share here, see docs/decisions/05-epikv.md: windows
restart at the first token of the answer, whose change is relative to the last token of the prompt; tokens of
the prompt are scored by the same formula among themselves, which has no effect if the prompt is preserved;
one score per token means one keep set for all layers and heads; layer numbers refer to a model of `depth`
layers, 32 in the paper. Departs from appendix H, which numbers the tokens after an eviction from the retained length:
here they keep their place in the text.
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
from policies.signals import AttentionSums, HiddenChange, read_signal, refuse_separate_heads, upcast
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "epikv": PolicyFacts(
        "epikv",
        "tokens that changed one layer much and another little, detrended",
        "Kolawole and Smith, arXiv:2606.26472",
        "Tokens that turn one layer much and another little are epiphanies, and are needed.",
    ),
    "hs-variance": PolicyFacts(
        "epikv",
        "as epikv, but changes are averaged and not detrended",
        "Kolawole and Smith, arXiv:2606.26472",
        "Detrending adds nothing to the size of the turns.",
        parent="epikv",
        component="scoring",
    ),
    "band-adaptive": PolicyFacts(
        "epikv",
        "as epikv, but two bands of layers in place of two layers",
        "Kolawole and Smith, arXiv:2606.26472",
        "Bands of layers identify epiphanies better than two layers.",
        parent="epikv",
        component="scoring",
    ),
    "attn-x-hs": PolicyFacts(
        "epikv",
        "as epikv, but scores by received attention and the change of one layer",
        "Kolawole and Smith, arXiv:2606.26472",
        "Attention received adds to how much a layer turns.",
        parent="epikv",
        component="scoring",
    ),
}

EPSILON = 1e-6
"The epsilon of Eq. 3, which the paper does not specify."


def changes(hidden: Tensor) -> Tensor:
    """hidden [..., t, width] -> [..., t], g(t) = ||h(t) - h(t-1)|| (Eq. 1); 0 for the first token."""
    return functional.pad(upcast(hidden).diff(dim=-2).norm(dim=-1), (1, 0))


def rolling_mean(values: Tensor, window: int) -> Tensor:
    """values [..., t] -> [..., t] float64, the mean over the last `window` entries up to each, fewer at the start."""
    return trailing_windows(values, window)[1]


def rolling_z(values: Tensor, window: int) -> Tensor:
    """values [..., t] -> [..., t] float64, Eq. 3: the z-score of each entry within its window.

    The window is that of `rolling_mean`; EPSILON is added to the population's standard deviation. No z-score
    exceeds sqrt(window - 1), and the first is 0.
    """
    rows, mean, counts = trailing_windows(values, window)
    inside = torch.arange(window, device=values.device) >= window - counts[:, None]
    variance = ((rows - mean[..., None]) * inside).square().sum(-1) / counts
    return (values.double() - mean) / (variance.sqrt() + EPSILON)


def trailing_windows(values: Tensor, window: int) -> tuple[Tensor, Tensor, Tensor]:
    """values [..., t] -> the last `window` entries up to each, padded with 0 [..., t, window]; their mean [..., t]; and
    their count [t]. The windows are a float64 view, not differences of cumulative sums, so no precision is lost.
    """
    t = values.shape[-1]
    rows = functional.pad(values.double(), (window, 0)).unfold(-1, window, 1)[..., 1:, :]
    counts = torch.arange(1, t + 1, device=values.device).clamp(max=window)
    return rows, rows.sum(-1) / counts, counts


def channel_variance(vectors: Tensor) -> Tensor:
    """vectors [..., t, d] -> [..., t], the variance over channels that KV-key and KV-val average (section 3.3)."""
    return upcast(vectors).var(-1, correction=0)


def lag_relative(vectors: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """vectors [..., t, d], low and high [..., d] of another chunk -> [..., t], the variance over the channels
    after each is normalised by its range in that chunk (section 3.3, after LagKV, arXiv:2504.04704).

    A range below EPSILON counts as EPSILON. It is the population's variance, where LagKV uses the standard
    deviation and a softmax over the chunk, which makes scores of different chunks incomparable.
    """
    low, high = (upcast(end)[..., None, :] for end in (low, high))
    return channel_variance((upcast(vectors) - low) / (high - low).clamp(min=EPSILON))


def standardise(values: Tensor) -> Tensor:
    """values [..., n] -> [..., n], Eq. 3 over all values at once."""
    centred = values - values.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True).sqrt() + EPSILON)


def score_parts(values: Tensor, prompt: int, score: Callable[[Tensor], Tensor]) -> Tensor:
    """values [..., t] -> [..., t]: apply `score` separately to the tokens of the prompt and of the answer."""
    return torch.cat([score(values[..., :prompt]), score(values[..., prompt:])], -1)


def gather_slots(view: View, tokens: Tensor) -> Tensor:
    """tokens [t] -> [1, 1, n], the entries of the stored tokens; all heads must hold the same ones."""
    refuse_separate_heads(view)
    return tokens[view.positions[:1, :1]]


def band_changes(view: View, band: HiddenChange) -> list[Tensor]:
    """Return the changes [t] in every layer of the band."""
    return [trace.changes for trace in read_signal(view, band) if trace is not None]


@dataclass(frozen=True)
class BandDifference:
    """The change of the hidden state in band A minus that in band B, over the last `window` tokens.

    band_a, band_b: layer numbers from 0 in a model of `depth` layers; HiddenChange maps them to a model of
        another depth. With depth None they are the layers of the model itself.
    window: in tokens.
    """

    band_a: tuple[int, ...] = (10,)
    band_b: tuple[int, ...] = (21,)
    window: int = 64
    depth: int | None = 32

    def __post_init__(self) -> None:
        refuse_window(self.window)
        for band in (self.band_a, self.band_b):
            HiddenChange(band, self.depth)  # raises for an invalid band

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
        """Raise ValueError if, in a model of `layers` layers, one layer is in both bands and would cancel."""
        if shared := sorted(set(self.high.layers_in(layers)) & set(self.low.layers_in(layers))):
            raise ValueError(
                f"scoring.band_a {self.band_a} and scoring.band_b {self.band_b}, counted in "
                f"{'the model itself' if self.depth is None else f'{self.depth} layers'}, both fall on "
                f"layer {shared[0]} of a model of {layers} layers; set scoring.depth, and bands that "
                "differ in it"
            )

    def token_scores(self, changes: Tensor) -> Tensor:
        """changes [t] in one layer -> scores [t], which a band averages over its layers."""
        raise NotImplementedError

    def score(self, view: View) -> Scores:
        self.refuse_depth(view.layers)
        high, low = (
            torch.stack(
                [
                    score_parts(layer_changes, view.prompt, self.token_scores)
                    for layer_changes in band_changes(view, band)
                ]
            ).mean(0)
            for band in (self.high, self.low)
        )
        return Scores(gather_slots(view, high - low))


@dataclass(frozen=True)
class HiddenMean(BandDifference):
    """s(t) of Eq. 2: the mean change in layer 10 minus that in layer 21; no variance, despite its name."""

    def token_scores(self, changes: Tensor) -> Tensor:
        return rolling_mean(changes, self.window)


@dataclass(frozen=True)
class Epiphany(BandDifference):
    """z_10(t) - z_21(t) of Eq. 3, without the drift of Eq. 2 with the position; of bands, their means' difference."""

    def token_scores(self, changes: Tensor) -> Tensor:
        return rolling_z(changes, self.window)


@dataclass(frozen=True)
class Heard:
    """Attention received so far plus z_10(t): "cumul. attn + z10" of Table 1; it is a sum, despite the x.

    The attention is summed over all queries so far and averaged over heads and layers (AttentionSums, as in
    H2O); it keeps growing after the token, z does not. Its scale grows with the answer's length. So that both
    terms have equal weight, it is standardised by Eq. 3, separately over the slots of the answer and of the
    prompt (ours). The literal sum would weight the terms by the number of tokens.

    layer: numbered as in `BandDifference`; window: in tokens.
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
        received = torch.stack(read_signal(view, AttentionSums())).mean((0, 1)).double()
        (layer_changes,) = band_changes(view, self.change)
        change_scores = gather_slots(
            view, score_parts(layer_changes, view.prompt, lambda part: rolling_z(part, self.window))
        )
        prompt_slots = int((view.positions[0, 0] < view.prompt).sum())
        return Scores(score_parts(received, prompt_slots, standardise) + change_scores)


def refuse_window(window: int) -> None:
    if window < 1:
        raise ValueError(f"window must be 1 token or more, not {window}")


def preserving_policy(scoring: Scoring) -> Policy:
    """Build a policy of the paper: keep the prompt and the last min(128, K/4) slots (section 3.3, appendix
    D), and the highest scores of the others, one set for all layers and heads.

    K is the size of the cache, prompt and recent slots included: section 3.1 "caps the cache at a budget of K tokens",
    while in section 3.3 a method "applies its budget to the remaining positions". A registered `preserve` replaces the
    protection set here. The paper evicts at every step; here the cadence sets the interval.
    """
    return Policy(scoring=scoring, protect=Preserve(prompt=True, recent="min(128, K/4)"))


def hidden_states() -> Mapping[str, Policy]:
    """Return by name the methods of Table 1 that read hidden states. Each differs from `epikv` in its scoring alone."""
    return MappingProxyType(
        {"epikv": epikv(), "hs-variance": hs_variance(), "band-adaptive": band_adaptive(), "attn-x-hs": attn_x_hs()}
    )


def epikv() -> Policy:
    """EpiKV, z_10 - z_21 over 64 tokens (section 3.2, Eq. 3): keep the tokens that changed the residual stream most."""
    return preserving_policy(Epiphany())


def hs_variance() -> Policy:
    """HS-variance (section 3.2, Eq. 2): EpiKV with rolling means, without the detrending of Eq. 3."""
    return preserving_policy(HiddenMean())


def band_adaptive() -> Policy:
    """Band-adaptive (Table 1, "Band A/B layers"): the mean z over layers 7-13 minus that over layers 18-25.

    The paper says no more about it, nor what adapts: choosing one layer of each band per trace is an equally
    good reading. Ours adapts nothing, and needs no setting that the paper does not give.
    """
    return preserving_policy(Epiphany(band_a=tuple(range(7, 14)), band_b=tuple(range(18, 26))))


def attn_x_hs() -> Policy:
    """Attn x HS (Table 1, "cumul. attn + z10"): attention received so far plus z_10, both standardised."""
    return preserving_policy(Heard())
