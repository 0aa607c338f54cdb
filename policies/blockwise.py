"""Blockwise prefill under a budget: later blocks attend to the slots that earlier evictions left."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from policies.cadence import Cadence
from policies.caote import caote
from policies.keydiff import keydiff
from policies.lagkv import lagkv
from policies.policy import Policy
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "keydiff-blocks": PolicyFacts(
        "stored",
        "as keydiff, after each block of 128 of the prompt",
        "arXiv:2504.15364",
        "A prompt can be read block by block under its budget and lose little.",
        parent="keydiff",
        component="cadence",
    ),
    "lagkv-blocks": PolicyFacts(
        "stored",
        "as lagkv, after each block of 128 of the prompt",
        "arXiv:2504.04704",
        "A prompt can be read block by block under its budget and lose little.",
        parent="lagkv",
        component="cadence",
    ),
    "caote-blocks": PolicyFacts(
        "attention",
        "as caote, after each block of 128 of the prompt",
        "arXiv:2504.14051",
        "A prompt can be read block by block under its budget and lose little.",
        parent="caote",
        component="cadence",
    ),
}


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
            raise ValueError("block needs at_prefill: a policy that never evicts has no events")

    def initial_tokens(self, context: int, budget: int) -> int:
        """Return the context tokens fed before the first eviction step: complete blocks, or all of them."""
        return min(context, self.block * (budget // self.block + 1))

    def needs_own_prefill(self, context: int, budget: int) -> bool:
        """Whether a lane needs its own prefill of this context: it evicts before the end of the context."""
        return self.initial_tokens(context, budget) < context


def keydiff_blocks(block: int = 128) -> Policy:
    """`keydiff` as published: after each block, rank the survivors and the block (arXiv:2504.15364).

    Ours: the first eviction happens when the budget is exceeded, and none happens while decoding unless an
    interval is set, where the paper evicts at every step. BlockPress of NVIDIA/kvpress 0.5.5 ranks the keys
    of a full prefill in blocks, so its later keys attended to everything; these did not.
    """
    return replace(keydiff(), cadence=Blockwise(block=block))


def lagkv_blocks(block: int = 128) -> Policy:
    """`lagkv` after each block of one lag, as in the prefill helper of the authors' README.

    Ours, as in `lagkv`: a budget instead of a fraction, so every eviction step ranks the survivors and the
    block again, in chunks of the remaining slots, where the authors never rank a survivor again. Their helper
    begins with the sinks and two lags; here the budget determines the first eviction.
    """
    return replace(lagkv(), cadence=Blockwise(block=block))


def caote_blocks(block: int = 128) -> Policy:
    """`caote` as published: after each block, score by the attention of its last token (arXiv:2504.14051).

    Ours, as in `keydiff_blocks`: the budget determines the first eviction, and the answer has eviction steps
    only if an interval is set; the paper evicts at every step.
    """
    return replace(caote(), cadence=Blockwise(block=block))
