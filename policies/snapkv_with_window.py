"""`snapkv_with_window`, the comparator of Sun and Harn: SnapKV with one keep set for all layers and heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn import functional

from policies.contract import Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect
from policies.signals import PastAttention, read_signal, refuse_separate_heads
from policies.snapkv import refuse_window
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "snapkv_with_window": PolicyFacts(
        "attention",
        "as snapkv, but one set for all layers and heads; used as a comparator",
        "Sun and Harn, arXiv:2605.14292",
        "The attention of the last queries, with one set for all heads, selects slots better than query statistics.",
        parent="1d",
        component="scoring",
        is_control=True,
    )
}


@dataclass(frozen=True)
class WindowFirst:
    """The last `window` slots rank above all others, the latest first; the others rank by `PastAttention`.

    `PastAttention` is averaged over all layers and heads and max-pooled over `kernel` neighbours before the window.
    """

    window: int = 8
    kernel: int = 7
    stacks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_window(self.window, self.kernel)

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({PastAttention(self.window)})

    def score(self, view: View) -> Scores:
        refuse_separate_heads(view)
        attention = torch.stack(read_signal(view, PastAttention(self.window)), -3).mean((-3, -2))
        n, past_slots = view.slots, max(0, view.slots - self.window)
        past = attention[..., None, :past_slots]
        if past_slots:
            past = functional.max_pool1d(past, self.kernel, stride=1, padding=self.kernel // 2)
        # No sum of attention exceeds the number of its queries.
        window_scores = self.window + 1 + torch.arange(n - past_slots, device=past.device).to(past)
        return Scores(torch.cat([past, window_scores.expand(*past.shape[:-1], -1)], -1)[..., None, :])


def snapkv_with_window(window: int = 8, kernel: int = 7) -> Policy:
    """Keep the last `window` slots and those that they attend to, one set for all layers and heads.

    The comparator `snapkv_with_window` of Sun and Harn (appendix B), who give only its name ("no exact parity
    claimed"). Window, kernel and maximum pooling are those of R-KV's SnapKV (Zefan-Cai/R-KV @ d15c976). Ours: softmax
    before the mean over heads, and one set for all heads, so that only the scoring differs from `1d`; for the same
    reason the window is kept by its scores, not by protection, so a budget below the window keeps its latest slots.
    """
    return Policy(scoring=WindowFirst(window, kernel), protect=Protect(sinks=0, recent=0))
