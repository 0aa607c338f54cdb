"""SlipKV and CrystalKV of a trace: the tokens of its thought that the answer attends to least and most; no model.

Wang et al., "Crystal-KV" (arXiv:2601.16986), section 3: the tokens of the thought are ranked by the attention that the
tokens of the answer pay to them; the lowest 30 % are SlipKV, the highest 30 % CrystalKV. Departs from the paper, which
ranks the entries of each attention map: a token has the mean over layers and heads, so that one set is held against
labels and exact needs, and one set is dropped.
"""

import hashlib
from collections.abc import Mapping, Sequence
from decimal import Decimal

DROPS = SLIP, RANDOM, TOP = ("bottom", "random", "top")
SLIP_SIGNALS = ANSWER_ATTENTION, _, _ = ("answer_attention", "attention_gap", "attention_last")


def thought_sets(
    problem: str, attention: Sequence[float], start: int, stop: int, share: Decimal
) -> Mapping[str, frozenset[int]]:
    """Return the positions of each set of DROPS: `share` of the thought [start, stop), rounded down.

    attention: by position, what the answer pays to it; of equals the earlier is lower. random: by the SHA-256 of the
    problem and the position, so that it is the same wherever it is computed.
    """
    count = int(share * (stop - start))
    by_attention = sorted(range(start, stop), key=attention.__getitem__)
    by_chance = sorted(range(start, stop), key=lambda at: hashlib.sha256(f"{problem}/{at}".encode()).digest())
    ends = by_attention[:count], by_chance[:count], by_attention[len(by_attention) - count :]
    return dict(zip(DROPS, map(frozenset, ends), strict=True))
