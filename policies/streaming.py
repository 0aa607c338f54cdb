"""StreamingLLM: the attention sinks and the most recent slots (arXiv:2309.17453)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from policies.contract import Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "streaming": PolicyFacts(
        "positions",
        "the first and the latest slots: StreamingLLM",
        "arXiv:2309.17453",
        "The first and the latest slots are sufficient.",
        aliases=("streamingllm", "attention-sinks", "sinks", "sink"),
    )
}


@dataclass(frozen=True)
class Recency:
    """The position of the slot: later slots score higher."""

    needs: ClassVar[frozenset[Signal]] = frozenset()
    stacks: ClassVar[bool] = True

    def score(self, view: View) -> Scores:
        return Scores(view.positions.float())


def streaming(sinks: int = 4) -> Policy:
    """Keep slots 0..sinks-1 and the last budget - sinks.

    Departs from the authors' code (mit-han-lab/streaming-llm, StartRecentKVCache): eviction at the end of the
    prefill and, with an interval, every `interval` tokens instead of at every token; keys keep their original
    RoPE positions instead of being rotated by cache slot at every step. A budget below the sinks is refused.
    """
    return Policy(scoring=Recency(), protect=Protect(sinks=sinks, recent=0))
