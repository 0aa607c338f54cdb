"""Attention statistics from the log-sum-exp of a fused kernel: weights of some rows, column sums of all.

lse_i = log sum_j exp(s q_i k_j), so a weight is exp(s q_i k_j - lse_i). No softmax is computed, and no weight
is formed before it is read.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from policies.signals import upcast
from protocol.engine.attention.kernels import MAX_HEAD_DIM, Kernel

EXTRA_DIMS = 8
"""Dimensions by which `column_sums` widens a head, since kernels need multiples of it."""


def attend_with_lse(
    kernel: Kernel, queries: Tensor, keys: Tensor, values: Tensor, scale: float, *, causal: bool = True
) -> tuple[Tensor, Tensor]:
    """Attention of the last t of n tokens: queries [q_head, t, d], keys and values [kv_head, n, d].

    Returns the output [q_head, t, d] and the log-sum-exp [q_head, t] in float32 or better.
    """
    from torch.nn.attention.varlen import AuxRequest

    t, n = queries.shape[1], keys.shape[1]
    ends = torch.tensor([[0, t], [0, n]], dtype=torch.int32, device=queries.device)
    output, lse = kernel(
        queries.transpose(0, 1),
        keys.transpose(0, 1),
        values.transpose(0, 1),
        ends[0],
        ends[1],
        t,
        n,
        return_aux=AuxRequest(lse=True),
        scale=scale,
        window_size=(-1, 0) if causal else (-1, -1),
        enable_gqa=True,
        seqused_k=ends[1, 1:],
        num_splits=1,
    )
    return output.transpose(0, 1), upcast(lse)


def weights_from_lse(logits: Tensor, lse: Tensor) -> Tensor:
    """Return the attention weights of some rows in place of their logits [q_head, t, n]; lse [q_head, t]."""
    return logits.sub_(lse[..., None]).exp_()


def can_sum_columns(dim: int) -> bool:
    """Return whether `column_sums` supports heads of this dimension."""
    return dim + EXTRA_DIMS <= MAX_HEAD_DIM


def column_sums(kernel: Kernel, queries: Tensor, keys: Tensor, lse: Tensor, scale: float) -> Tensor:
    """Return the attention that each slot receives, summed over the last t of n tokens: [q_head, n].

    The sum of column j is sum_i exp(s k_j q_i - lse_i): the exponential of the log-sum-exp of an attention with slots
    as queries and rows as keys. -lse_i / s is an extra dimension of a row's vector, multiplied by 1 in a slot's vector.
    It is split into three parts, each with the remainder of the previous ones in the precision of the queries. A slot
    is attended to by its own and later rows, which is causal once both orders are reversed.
    """
    heads, t, _ = queries.shape
    n = keys.shape[1]
    parts, remainder = [], -lse / scale
    for _ in range(3):
        parts.append(remainder.to(queries.dtype))
        remainder = remainder - parts[-1].to(remainder.dtype)
    rows = torch.cat([queries, pad(torch.stack(parts, -1), (0, EXTRA_DIMS - 3))], -1).flip(1)
    slots = pad(keys, (0, 3), value=1.0)
    slots = pad(slots, (0, EXTRA_DIMS - 3)).repeat_interleave(heads // len(keys), 0)
    older, newer = slots[:, : n - t], slots[:, n - t :].flip(1)
    sums = attend_with_lse(kernel, newer, rows, rows, scale)[1].flip(1)
    if n > t:
        sums = torch.cat([attend_with_lse(kernel, older, rows, rows, scale, causal=False)[1], sums], 1)
    return sums.exp_()
