"""R-KV and the baselines of its repository: importance minus redundancy (arXiv:2505.24133)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from policies.contract import AttentionRows, Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect, slots_after
from policies.routing import PerHead
from policies.signals import BLOCK, EveryLayer, read_signal, upcast
from policies.snapkv import refuse_window
from policies.streaming import streaming
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "streamingllm-rkv": PolicyFacts(
        "positions",
        "the first and the latest slots, as in R-KV's repository",
        "arXiv:2505.24133",
        "The first and the latest slots are sufficient.",
        parent="streaming",
    ),
    "r-kv": PolicyFacts(
        "attention",
        "what recent queries attend to, less the similarity to other keys",
        "arXiv:2505.24133",
        "Reasoning repeats itself, so that attention is discounted by the similarity to other keys.",
    ),
    "snapkv-rkv": PolicyFacts(
        "attention",
        "what recent queries attend to, as in R-KV's repository",
        "arXiv:2505.24133",
        "R-KV without the redundancy term is equally good.",
        parent="r-kv",
        component="scoring",
    ),
}


def importance(logits: Tensor, kv_heads: int) -> Tensor:
    """Return I before pooling: logits [q_head, row, past] of the last queries -> [kv_head, past], summed over rows.

    The maximum over the query heads of a group is taken before the softmax (`compute_attention_scores`),
    where a note of the authors takes it after. A row that sees none of these slots adds nothing.
    """
    grouped = logits.reshape(kv_heads, len(logits) // kv_heads, *logits.shape[1:]).amax(1)
    blind = (grouped == -torch.inf).all(-1, keepdim=True)
    rows: Tensor = grouped.softmax(-1).masked_fill(blind, 0)
    return rows.sum(1)


def redundancy(keys: Tensor, filled: Tensor, threshold: float = 0.5) -> Tensor:
    """Return R: keys [kv_head, n, d] with RoPE, filled bool [kv_head, n] -> softmax over slots [kv_head, n].

    S holds the cosines of the keys, 0 on its diagonal. In every row the entry of the last slot above
    `threshold` is set to 0, or that of slot 0 if no slot is above it: an artefact of the authors' code
    (`cal_similarity`), which favours slot 0, reproduced here. A slot's redundancy is the mean of its column.
    Rows are computed in blocks: the largest tensor is [kv_head, BLOCK, n].
    """
    heads, n, _ = keys.shape
    unit = upcast(keys)
    unit = unit / (unit.norm(dim=-1, keepdim=True) + 1e-8)
    unit = unit.masked_fill(~filled[..., None], 0)
    index = torch.arange(n, device=keys.device)
    columns = unit.new_zeros(heads, n)
    for first in range(0, n, BLOCK):
        cosines = unit[:, first : first + BLOCK] @ unit.transpose(1, 2)
        cosines = cosines.masked_fill(index[first : first + BLOCK, None] == index, 0)
        last = torch.where(cosines > threshold, index, 0).amax(-1, keepdim=True)
        columns += cosines.scatter(-1, last, 0).sum(1)
    means = columns / filled.sum(-1, keepdim=True).clamp(min=1)
    redundant: Tensor = means.masked_fill(~filled, -torch.inf).softmax(-1).masked_fill(~filled, 0)
    return redundant


def joint_score(importance: Tensor, redundancy: Tensor, weight: float) -> Tensor:
    """Return Z = weight * I - (1 - weight) * R, elementwise; the authors call the weight lambda."""
    return weight * importance - (1 - weight) * redundancy


@dataclass(frozen=True)
class GroupMaxAttention(EveryLayer):
    """`importance` of the last `window` queries for the slots before the last `window`: [kv_head, n].

    The mean over the queries; 0 in the window. A text with fewer queries has no earlier slots.
    """

    window: int
    raw: ClassVar[bool] = True

    def attend(self, rows: AttentionRows, before: Tensor | None) -> Tensor:
        assert rows.logits is not None
        skipped = max(0, rows.total - self.window - rows.start)
        logits = rows.logits[..., skipped:, :]
        slots = logits.shape[-1] + rows.total - rows.start - rows.logits.shape[-2]  # after the last row
        past = max(0, slots - self.window)
        received = importance(logits[..., :past], rows.kv_heads) / self.window
        received = functional.pad(received, (0, slots - past))
        return received if before is None else before + received


@dataclass(frozen=True)
class KeyRedundancy:
    """`redundancy` of the stored keys."""

    threshold: float = 0.5

    def summarise(self, layer: int, keys: Tensor, values: Tensor, filled: Tensor) -> Tensor:
        return redundancy(keys, filled, self.threshold)


@dataclass(frozen=True)
class Importance:
    """I', the importance, max-pooled over `kernel` neighbours before the window.

    The slots of the window score 2, above all others: they are kept first even if the policy does not protect
    all of them.
    """

    window: int = 8
    kernel: int = 7

    def __post_init__(self) -> None:
        refuse_window(self.window, self.kernel)

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({GroupMaxAttention(self.window)})

    def score(self, view: View) -> Scores:
        received = torch.stack(read_signal(view, GroupMaxAttention(self.window)))
        outside = slots_after(view.filled) < self.window  # the window, and padding of a shorter head
        past = received.masked_fill(outside, -torch.inf)
        pooled = functional.max_pool1d(past, self.kernel, stride=1, padding=self.kernel // 2)
        return Scores(pooled.masked_fill(outside, 2))


@dataclass(frozen=True)
class Joint(Importance):
    """Z, the importance minus the redundancy."""

    weight: float = 0.1
    threshold: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.weight <= 1:
            raise ValueError(f"weight must be between 0 (redundancy) and 1 (importance), not {self.weight}")

    @property
    def needs(self) -> frozenset[Signal]:
        return super().needs | {KeyRedundancy(self.threshold)}

    def score(self, view: View) -> Scores:
        important = super().score(view).slots
        redundant = torch.stack(read_signal(view, KeyRedundancy(self.threshold)))
        outside = slots_after(view.filled) < self.window
        return Scores(joint_score(important, redundant, self.weight).masked_fill(outside, 2))


def r_kv(window: int = 8, kernel: int = 7, weight: float = 0.1, threshold: float = 0.5) -> Policy:
    """Keep the last `window` slots and, of the others, the important ones that no later key resembles.

    Follows `R1KV` of Zefan-Cai/R-KV @ d15c976, per layer and KV head, with the window inside the budget and
    the prompt competing. Its numbers contradict each other: lambda is 0.07 in the class and on the command
    line, 0.1 in the README and in later code; the window is 8 in the class and unset on the command line;
    budget and buffer are 128, the kernel is 7. `retain_ratio` has no effect there and is no setting here,
    and neither is the README's beta, which the code fixes at one retained neighbour per row.
    Departs from their code: slots are stored in the order of their positions, where theirs stay in the order
    of their scores, so neighbours and "the last similar key" are those of the text also after the first
    eviction; importance stays in float32.
    They compress at every 128th token that a process has fed, across samples; here the registered interval
    applies to every policy alike. All slots since the last eviction step are scored by the last `window`
    queries alone, which are carried: window * q_heads * d numbers per layer.
    """
    return Policy(
        scoring=Joint(window, kernel, weight, threshold), routing=PerHead(), protect=Protect(sinks=0, recent=window)
    )


def snapkv_rkv(window: int = 8, kernel: int = 7) -> Policy:
    """Keep the last `window` slots and, of the others, those that they attend to: R-KV without redundancy.

    Follows `SnapKV` of Zefan-Cai/R-KV @ d15c976, which differs from the published one (`snapkv`): the maximum
    over a group before the softmax, a softmax over the slots before the window, and maximum pooling.
    Departures and the effect of an interval are those of `r_kv`.
    """
    return Policy(scoring=Importance(window, kernel), routing=PerHead(), protect=Protect(sinks=0, recent=window))


def streamingllm_rkv() -> Policy:
    """Keep the first 4 slots, which are those of the prompt, and the last budget - 4.

    Follows `StreamingLLM` of Zefan-Cai/R-KV @ d15c976, which keeps original positions: it is `streaming` under the name
    of that repository's baseline. It has no scores and carries nothing, so an interval only delays evictions.
    """
    return streaming(sinks=4)


def r_kv_variants() -> dict[str, Policy]:
    return {"r-kv": r_kv(), "snapkv-rkv": snapkv_rkv(), "streamingllm-rkv": streamingllm_rkv()}
