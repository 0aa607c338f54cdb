"""A prompt that is fed block by block under its budget, so that later blocks attend to what is left."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from policies.cadence import Cadence
from policies.caote import caote
from policies.keydiff import keydiff
from policies.lagkv import lagkv
from policies.policy import Policy

__all__ = ["Blockwise", "caote_blocks", "keydiff_blocks", "lagkv_blocks"]


@dataclass(frozen=True)
class Blockwise(Cadence):
    """An event after each block of `block` tokens that leaves a head more than the budget, on average, and
    one after the last token of the context, in the place of the one event of a plain cadence.

    A block attends to the slots that the event before it left, so keys and values of later tokens are not
    those of a full prefill: a cache of budget + block slots is all that a reader of this kind ever needs. No
    event before the first block that exceeds the budget would drop anything, so the tokens up to its end are
    fed at once. With a block as long as the context this is the plain cadence. The last block is whatever is
    left. `interval` and `slack`: as for a plain cadence, once the answer begins.

    block: tokens; 128 is that of KeyDiff (arXiv:2504.15364) and CAOTE (arXiv:2504.14051).
    """

    block: int = 128
    in_blocks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.block < 1:
            raise ValueError(f"block must be 1 token or more, not {self.block}")
        if not self.at_prefill:
            raise ValueError("block needs at_prefill: a policy that never evicts has no events")

    def first(self, context: int, budget: int) -> int:
        """Tokens of the context that are fed before its first event: whole blocks, or all of it."""
        return min(context, self.block * (budget // self.block + 1))

    def apart(self, context: int, budget: int) -> bool:
        """Whether a lane reads a context of so many tokens for itself: there are events before its end."""
        return self.first(context, budget) < context


def keydiff_blocks(block: int = 128) -> Policy:
    """`keydiff` as it is published: after each block, among the survivors and the block (arXiv:2504.15364).

    Ours: the first event comes when the budget is exceeded, and none while decoding unless an interval is
    given, where the paper evicts at every step. BlockPress of NVIDIA/kvpress 0.5.5 ranks the keys of a full
    prefill in blocks, so that its later keys have seen everything; these have not.
    """
    return replace(keydiff(), cadence=Blockwise(block=block))


def lagkv_blocks(block: int = 128) -> Policy:
    """`lagkv` after each block of one lag, as the prefill helper in the authors' README feeds it.

    Ours, as in `lagkv`: a budget in the place of a share, so that every event ranks the survivors and the
    block anew, in chunks of what is left, where the authors never look at a survivor again. Their helper
    begins with the sinks and two lags; here the budget says when.
    """
    return replace(lagkv(), cadence=Blockwise(block=block))


def caote_blocks(block: int = 128) -> Policy:
    """`caote` as it is published: after each block, by the attention of its last token (arXiv:2504.14051).

    Ours, as in `keydiff_blocks`: the budget says when the first event comes, and an interval whether any
    comes in the answer; the paper evicts at every step.
    """
    return replace(caote(), cadence=Blockwise(block=block))
