"""R-KV and the baselines of its repository: importance, less redundancy (arXiv:2505.24133)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from policies.contract import Rows, Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect, from_last
from policies.routing import PerHead
from policies.signals import BLOCK, EveryLayer, of_all_layers, wide
from policies.snapkv import refuse_window
from policies.streaming import streaming

__all__ = [
    "GroupMaxAttention",
    "Importance",
    "Joint",
    "KeyRedundancy",
    "importance",
    "joint",
    "r_kv",
    "r_kv_variants",
    "redundancy",
    "snapkv_rkv",
    "streamingllm_rkv",
]


def importance(logits: Tensor, kv_heads: int) -> Tensor:
    """I before pooling: logits [q_head, row, past] of the last queries -> [kv_head, past], summed over rows.

    The maximum over the query heads of a group comes before the softmax (`compute_attention_scores`), where a
    note of the authors wants it after. A row that sees none of these slots adds nothing.
    """
    grouped = logits.reshape(kv_heads, len(logits) // kv_heads, *logits.shape[1:]).amax(1)
    blind = (grouped == -torch.inf).all(-1, keepdim=True)
    rows: Tensor = grouped.softmax(-1).masked_fill(blind, 0)
    return rows.sum(1)


def redundancy(keys: Tensor, filled: Tensor, threshold: float = 0.5) -> Tensor:
    """R: keys [kv_head, n, d] with RoPE, filled [kv_head, n] bool -> [kv_head, n], a softmax over the slots.

    S holds the cosines of the keys, 0 on its diagonal. Of every row the entry of the last slot above
    `threshold` is set to 0, and where no slot is above it that of slot 0: an artefact of the authors' code
    (`cal_similarity`), which favours slot 0, kept here. A slot's redundancy is the mean of its column.
    Rows are formed BLOCK at a time: [kv_head, BLOCK, n] is the most that is held.
    """
    heads, n, _ = keys.shape
    unit = wide(keys)
    unit = unit / (unit.norm(dim=-1, keepdim=True) + 1e-8)
    unit = unit.masked_fill(~filled[..., None], 0)
    place = torch.arange(n, device=keys.device)
    columns = unit.new_zeros(heads, n)
    for first in range(0, n, BLOCK):
        cosines = unit[:, first : first + BLOCK] @ unit.transpose(1, 2)
        cosines = cosines.masked_fill(place[first : first + BLOCK, None] == place, 0)
        last = torch.where(cosines > threshold, place, 0).amax(-1, keepdim=True)
        columns += cosines.scatter(-1, last, 0).sum(1)
    means = columns / filled.sum(-1, keepdim=True).clamp(min=1)
    redundant: Tensor = means.masked_fill(~filled, -torch.inf).softmax(-1).masked_fill(~filled, 0)
    return redundant


def joint(importance: Tensor, redundancy: Tensor, weight: float) -> Tensor:
    """Z = weight * I - (1 - weight) * R, elementwise; the authors' lambda is the weight."""
    return weight * importance - (1 - weight) * redundancy


@dataclass(frozen=True)
class GroupMaxAttention(EveryLayer):
    """`importance` of the last `window` queries for the slots before the last `window`: [kv_head, n].

    The mean over the queries; 0 in the window. A text with fewer queries has no slot before them.
    """

    window: int
    raw: ClassVar[bool] = True

    def attend(self, rows: Rows, before: Tensor | None) -> Tensor:
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

    The slots of the window score 2, more than any other can: they are kept first where the policy protects
    fewer of them.
    """

    window: int = 8
    kernel: int = 7

    def __post_init__(self) -> None:
        refuse_window(self.window, self.kernel)

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({GroupMaxAttention(self.window)})

    def score(self, view: View) -> Scores:
        received = torch.stack(of_all_layers(view, GroupMaxAttention(self.window)))
        outside = from_last(view.filled) < self.window  # the window, and what is beyond a shorter head
        past = received.masked_fill(outside, -torch.inf)
        pooled = functional.max_pool1d(past, self.kernel, stride=1, padding=self.kernel // 2)
        return Scores(pooled.masked_fill(outside, 2))


@dataclass(frozen=True)
class Joint(Importance):
    """Z, the importance less the redundancy."""

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
        redundant = torch.stack(of_all_layers(view, KeyRedundancy(self.threshold)))
        outside = from_last(view.filled) < self.window
        return Scores(joint(important, redundant, self.weight).masked_fill(outside, 2))


def r_kv(window: int = 8, kernel: int = 7, weight: float = 0.1, threshold: float = 0.5) -> Policy:
    """Keep the last `window` slots and, of the others, the important ones that no later key resembles.

    Follows `R1KV` of Zefan-Cai/R-KV @ d15c976, per layer and KV head, the window inside the budget, the
    prompt competing. Its numbers contradict each other: lambda is 0.07 in the class and on the command line,
    0.1 in the README and in later code; the window is 8 in the class and unset on the command line; budget
    and buffer are 128, the kernel is 7. `retain_ratio` does nothing there and is not a setting here; nor does
    the README's beta, which the code fixes at one retained neighbour a row.
    Departs from their code: slots are stored in the order of their positions, where theirs stay in the order
    of their scores, so that neighbours and "the last similar key" are those of the text from the second event
    on too; importance stays in float32.
    They compress at every 128th token that a process has fed, whatever the sample; here the registered
    interval says when, for every policy alike. Everything since the last event is then judged by the last
    `window` queries alone, whose queries are carried: window * q_heads * d numbers a layer.
    """
    return Policy(
        scoring=Joint(window, kernel, weight, threshold),
        routing=PerHead(),
        protect=Protect(sinks=0, recent=window),
    )


def snapkv_rkv(window: int = 8, kernel: int = 7) -> Policy:
    """Keep the last `window` slots and, of the others, those that they attend to: R-KV without redundancy.

    Follows `SnapKV` of Zefan-Cai/R-KV @ d15c976, which is not the published one (`snapkv`): the maximum over
    a group before the softmax, a softmax over the slots before the window, and maximum pooling. Departures,
    and what an interval does, as for `r_kv`.
    """
    return Policy(
        scoring=Importance(window, kernel), routing=PerHead(), protect=Protect(sinks=0, recent=window)
    )


def streamingllm_rkv() -> Policy:
    """Keep the first 4 slots, which are those of the prompt, and the last budget - 4.

    Follows `StreamingLLM` of Zefan-Cai/R-KV @ d15c976, which keeps original positions: `streaming` by the
    name under which that repository compares with it. It has no scores and carries nothing, so that an
    interval changes only how long a token outlives its turn.
    """
    return streaming(sinks=4)


def r_kv_variants() -> dict[str, Policy]:
    return {"r-kv": r_kv(), "snapkv-rkv": snapkv_rkv(), "streamingllm-rkv": streamingllm_rkv()}
