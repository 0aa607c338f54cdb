"""Policies that read a prompt block by block under their budget, as their papers do."""

from __future__ import annotations

from dataclasses import replace

from policies.blockwise import Blockwise
from policies.caote import caote
from policies.keydiff import keydiff
from policies.lagkv import lagkv
from policies.policy import Policy
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "keydiff-blocks": PolicyFacts(
        "stored",
        "as keydiff, but evicts after each block of 128 prompt tokens",
        "arXiv:2504.15364",
        "A prompt can be processed block by block within its budget at little loss.",
        parent="keydiff",
        component="cadence",
    ),
    "lagkv-blocks": PolicyFacts(
        "stored",
        "as lagkv, but evicts after each block of 128 prompt tokens",
        "arXiv:2504.04704",
        "A prompt can be processed block by block within its budget at little loss.",
        parent="lagkv",
        component="cadence",
    ),
    "caote-blocks": PolicyFacts(
        "attention",
        "as caote, but evicts after each block of 128 prompt tokens",
        "arXiv:2504.14051",
        "A prompt can be processed block by block within its budget at little loss.",
        parent="caote",
        component="cadence",
    ),
}


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
