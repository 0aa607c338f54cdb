"""SnapKV: keep what the end of the prompt attends to (arXiv:2404.14469)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn import functional

from policies.contract import Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect, slots_after
from policies.routing import PerHead
from policies.signals import AttentionSums, group_mean, read_signal
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "snapkv": PolicyFacts(
        "attention",
        "the last window, and what its queries attend to",
        "arXiv:2404.14469",
        "What the end of the prompt attends to is what the answer will attend to.",
    )
}

WIDEST = 4095
"""Maximum pooling kernel: torch's pooling does not accept larger ones."""


@dataclass(frozen=True)
class WindowAttention:
    """Attention from the last `window` queries: mean of the group, average-pooled along the sequence.

    Pooling covers only the slots before the window and includes its zero padding, so both ends are divided by
    `kernel` too. The slots of the window itself score 0: the policy has to protect them. If there are no
    slots before the window, all score 0.
    """

    window: int = 32
    kernel: int = 5
    stacks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_window(self.window, self.kernel)

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({AttentionSums(window=self.window)})

    def score(self, view: View) -> Scores:
        layers = read_signal(view, AttentionSums(window=self.window))
        sums = torch.stack([group_mean(sums, view.kv_heads) for sums in layers], -3)
        outside = slots_after(view.filled) < self.window  # the window, and padding of a shorter head
        past = sums.masked_fill(outside, 0)
        rows = past.flatten(0, -3) if past.dim() > 3 else past
        pooled = functional.avg_pool1d(rows, self.kernel, stride=1, padding=self.kernel // 2)
        return Scores(pooled.view(past.shape).masked_fill(outside, 0))


def refuse_window(window: int, kernel: int) -> None:
    if window < 1 or kernel < 1 or kernel % 2 == 0:
        raise ValueError(f"window must be 1 or more and kernel odd, not window {window} and kernel {kernel}")
    if kernel > WIDEST:
        raise ValueError(f"kernel must be at most {WIDEST}, not {kernel}")


def snapkv(window: int = 32, kernel: int = 5) -> Policy:
    """Keep the last `window` slots and, of the others, those with the largest pooled window attention.

    Window and kernel are the authors' `init_snapkv` defaults (FasterDecoding/SnapKV). Departs from their
    code: query heads of a group share their mean instead of storing a cache per query head.
    """
    return Policy(scoring=WindowAttention(window, kernel), routing=PerHead(), protect=Protect(sinks=0, recent=window))
