"""The attention of six tokens in two query heads, small enough to follow by hand."""

import torch
from torch import Tensor

ROWS = (
    "1; .6 .4; .5 .1 .4; .4 .3 .1 .2; .3 .1 .05 .35 .2; .2 .05 .3 .1 .05 .3",
    "1; .7 .3; .6 .3 .1; .5 .1 .2 .2; .4 .2 .1 .1 .2; .3 .1 .1 .2 .1 .2",
)
SIX_TOKENS = torch.tensor(
    [[[float(x) for x in (row + " 0" * 6).split()[:6]] for row in head.split(";")] for head in ROWS]
)
"""[q_head, row, slot]"""


def slots_of(mask: Tensor) -> list[list[int]]:
    """Kept slots of each head, of a mask [head, slot]."""
    return [row.nonzero().flatten().tolist() for row in mask]
