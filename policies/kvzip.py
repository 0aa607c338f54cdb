"""KVzip: keep the slots that the model attends to while it repeats the text (arXiv:2505.23416)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from policies.contract import AttentionRows, Scores, Signal, View
from policies.defensivekv import AcrossLayers
from policies.policy import Policy
from policies.protect import Protect
from policies.signals import read_signal
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "kvzip": PolicyFacts(
        "attention",
        "what a repetition of the text attends to, with heads and layers competing",
        "arXiv:2505.23416",
        "The slots needed to repeat the context include all that any question can need.",
    )
}


@dataclass(frozen=True)
class RepeatAttention:
    """The maximum attention that each slot receives while the text is fed again after itself: [kv_head, n],
    over all tokens and the query heads of a group.

    chunk: tokens that are repeated at once, after the last `overlap` tokens of the previous chunk.
    """

    chunk: int = 2048
    overlap: int = 8

    def __post_init__(self) -> None:
        if self.chunk < 1 or self.overlap < 0:
            raise ValueError(
                f"chunk must be 1 token or more and overlap 0 or more, not {self.chunk} and {self.overlap}"
            )

    def passages(self, token_ids: Tensor, sentence_ends: frozenset[int]) -> tuple[Tensor, ...]:
        starts = range(0, len(token_ids), self.chunk)
        return tuple(token_ids[max(0, start - self.overlap) : start + self.chunk] for start in starts)

    def attend(self, rows: AttentionRows, before: Tensor | None) -> Tensor:
        largest = group_max(rows.attention, rows.kv_heads)
        return largest if before is None else largest.maximum(before)

    def result(self, state: Tensor) -> Tensor:
        return state


def group_max(attention: Tensor, kv_heads: int) -> Tensor:
    """attention [q_head, row, n] -> [kv_head, n], the maximum over the rows and the heads of a group."""
    largest = attention.amax(-2)
    return largest.view(kv_heads, -1, largest.shape[-1]).amax(1)


@dataclass(frozen=True)
class Reconstruction:
    """The maximum attention from the repeated text."""

    chunk: int = 2048
    overlap: int = 8

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({RepeatAttention(self.chunk, self.overlap)})

    def score(self, view: View) -> Scores:
        return Scores(torch.stack(read_signal(view, RepeatAttention(self.chunk, self.overlap))))


def kvzip(chunk: int = 2048) -> Policy:
    """Keep the first four slots and, of all others in the model, those that a repetition of the text attends
    to most. The repetition costs a second prefill.

    chunk, sinks, the overlap and the maximum over rows and heads are those of KVzipPress of NVIDIA/kvpress 0.5.5; for a
    text of one chunk, repeated with the same tokens, the retained slots are equal too. Ours: the instruction "Repeat
    the previous context exactly." and the chat turn are omitted, since a policy has no tokenizer: the text directly
    follows itself. In a longer text all slots compete in the softmax of every chunk, as in the model, where the press
    includes only the chunk's own slots, the sinks and the repetition; the score of a slot is its maximum over chunks.
    An eviction step while decoding repeats prompt and answer, over the slots stored at that time.
    """
    return Policy(scoring=Reconstruction(chunk), routing=AcrossLayers(), protect=Protect(sinks=4, recent=0))
