"""Quest: all slots are held, and each query reads some pages of them (Tang and others, arXiv:2406.10774).

Pages, bounds and exceptions are those of the authors' evaluation (mit-han-lab/Quest, evaluation/quest_attention.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from policies.signals import upcast
from policies.state import Verbatim

FEWEST = 3
"""Pages that a query reads at least, however few tokens are set."""


@dataclass(frozen=True)
class Quest(Verbatim):
    """Each query head of a new token reads the tokens / page pages that could give it the largest logits, in all
    layers of full attention but the first `dense_layers`. Prompt and question read all slots.

    A page is `page` neighbouring slots of a head, counted from its first. Its bound is the sum over channels of the
    larger of q times the least and q times the largest key in it. Earlier pages win a tie. The page of the token itself
    is no exception.

    Slots are held as the model computed them. The authors hold the least and the largest key of each page too, a 16th
    more; here they are computed from the keys, and a page's two are counted as one slot read.
    """

    tokens: int = 256
    page: int = 16
    dense_layers: int = 2

    def __post_init__(self) -> None:
        for name, least in (("page", 1), ("tokens", self.page), ("dense_layers", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: {getattr(self, name)} is too small; write {least} or more")

    def count_pages(self, slots: Tensor) -> Tensor:
        return (slots + self.page - 1) // self.page

    def select(self, queries: Tensor, keys: Tensor, lengths: Tensor) -> Tensor:
        """Return the slots that each query head reads, bool [lane, kv_head, group, n].

        queries [lane, kv_head, group, d]; keys [lane, kv_head, n, d], the first lengths [lane, kv_head] of them in use.
        """
        n, size = keys.shape[2], self.page
        in_use = (torch.arange(n, device=keys.device) < lengths[..., None])[..., None]
        least, largest = (
            pad(upcast(keys).where(in_use, fill), (0, 0, 0, -n % size), value=fill).view(
                *keys.shape[:2], -1, size, keys.shape[-1]
            )
            for fill in (torch.inf, -torch.inf)
        )
        is_page = torch.arange(largest.shape[2], device=keys.device) < self.count_pages(lengths)[..., None]
        least, largest = (part.where(is_page[..., None], 0) for part in (least.amin(3), largest.amax(3)))
        exact = upcast(queries)
        bounds = exact.clamp(min=0) @ largest.mT + exact.clamp(max=0) @ least.mT
        bounds = bounds.masked_fill(~is_page[:, :, None], -torch.inf)
        best = bounds.argsort(dim=-1, descending=True, stable=True)[..., : max(FEWEST, self.tokens // size)]
        is_read = torch.zeros_like(bounds, dtype=torch.bool).scatter_(-1, best, True)
        return is_read.repeat_interleave(size, -1)[..., :n] & in_use.mT
