"""Blockwise prefill under a budget: later blocks attend to the slots that earlier evictions left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from policies.cadence import Cadence


@dataclass(frozen=True)
class Blockwise(Cadence):
    """Evict after each block of `block` tokens that leaves heads above the budget on average, and after the
    last token of the context, where a plain cadence evicts only once.

    A block attends to the slots that the previous eviction step left, so keys and values of later tokens
    differ from those of a full prefill, and the cache never needs more than budget + block slots. Nothing can
    be dropped before the first block that exceeds the budget, so the tokens up to its end are fed at once.
    The last block holds the remaining tokens. With a block as long as the context this is the plain cadence.
    `interval` and `slack` work as in a plain cadence, once the answer begins.

    block: in tokens; 128 is the block size of KeyDiff (arXiv:2504.15364) and CAOTE (arXiv:2504.14051).
    """

    block: int = 128
    in_blocks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.block < 1:
            raise ValueError(f"block must be 1 token or more, not {self.block}")
        if not self.at_prefill:
            raise ValueError(
                "block needs at_prefill, because a policy that never evicts has no eviction steps; set "
                "at_prefill to true"
            )

    def initial_tokens(self, context: int, budget: int) -> int:
        """Return the context tokens fed before the first eviction step: complete blocks, or all of them."""
        return min(context, self.block * (budget // self.block + 1))

    def needs_own_prefill(self, context: int, budget: int) -> bool:
        """Whether a lane needs its own prefill of this context: it evicts before the end of the context."""
        return self.initial_tokens(context, budget) < context
