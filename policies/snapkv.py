"""SnapKV: keep what the end of the prompt attends to (arXiv:2404.14469)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from policies.contract import Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect, from_last
from policies.routing import PerHead
from policies.signals import AttentionSums, PastAttention, group_mean, of_all_layers, refuse_separate

__all__ = ["WindowAttention", "WindowFirst", "snapkv", "snapkv_with_window"]


@dataclass(frozen=True)
class WindowAttention:
    """Attention from the last `window` queries: mean of the group, average-pooled along the sequence.

    Pooling sees the slots before the window only and counts its zero padding, so both ends are divided by
    `kernel` too. The slots of the window itself score 0: they are for the policy to protect. So does every
    slot where there are no more than the window.
    """

    window: int = 32
    kernel: int = 5

    def __post_init__(self) -> None:
        refuse_window(self.window, self.kernel)

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({AttentionSums(window=self.window)})

    def score(self, view: View) -> Scores:
        layers = of_all_layers(view, AttentionSums(window=self.window))
        sums = torch.stack([group_mean(sums, view.kv_heads) for sums in layers])
        outside = from_last(view.filled) < self.window  # the window, and what is beyond a shorter head
        past = sums.masked_fill(outside, 0)
        pooled = functional.avg_pool1d(past, self.kernel, stride=1, padding=self.kernel // 2)
        return Scores(pooled.masked_fill(outside, 0))


@dataclass(frozen=True)
class WindowFirst:
    """The last `window` slots above all others, the latest first; the others by `PastAttention`.

    Its mean over all layers and heads, max-pooled over `kernel` neighbours before the window.
    """

    window: int = 8
    kernel: int = 7

    def __post_init__(self) -> None:
        refuse_window(self.window, self.kernel)

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({PastAttention(self.window)})

    def score(self, view: View) -> Scores:
        refuse_separate(view)
        attention = torch.stack(of_all_layers(view, PastAttention(self.window))).mean((0, 1))
        past = attention[: max(0, len(attention) - self.window)]
        if len(past):
            past = functional.max_pool1d(past[None], self.kernel, stride=1, padding=self.kernel // 2)[0]
        # No sum of attention exceeds the number of its queries.
        above = self.window + 1 + torch.arange(len(attention) - len(past), device=past.device).to(past)
        return Scores(torch.cat([past, above])[None, None])


def refuse_window(window: int, kernel: int) -> None:
    if window < 1 or kernel < 1 or kernel % 2 == 0:
        raise ValueError(f"window must be 1 or more and kernel odd, not window {window} and kernel {kernel}")


def snapkv_with_window(window: int = 8, kernel: int = 7) -> Policy:
    """Keep the last `window` slots and those that they attend to, one set for all layers and heads.

    The comparator `snapkv_with_window` of Sun and Harn (appendix B), of which they give the name alone ("no
    exact parity claimed"). Window, kernel and maximum pooling are those of R-KV's SnapKV (Zefan-Cai/R-KV @
    d15c976). Ours: softmax before the mean over heads, and one set for all heads, so that routing and all
    else is that of `1d`; the window is kept by its scores and not by protection for the same reason, so that
    a budget below the window keeps its latest slots.
    """
    return Policy(scoring=WindowFirst(window, kernel), protect=Protect(sinks=0, recent=0))


def snapkv(window: int = 32, kernel: int = 5) -> Policy:
    """Keep the last `window` slots and, of the others, those with the largest pooled window attention.

    Window and kernel are the authors' `init_snapkv` defaults (FasterDecoding/SnapKV). Departs from their
    code: query heads of a group share their mean instead of each storing a cache of its own.
    """
    return Policy(
        scoring=WindowAttention(window, kernel), routing=PerHead(), protect=Protect(sinks=0, recent=window)
    )
