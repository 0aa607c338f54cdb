"""The slots of a pool as sequences of different lengths: one a lane and KV head, where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from protocol.engine.attention.kernels import Kernel

__all__ = ["Packing", "packings", "through"]


class Packing(NamedTuple):
    """The arguments of a kernel of variable lengths for one layer; sequence number lane x KV heads + head."""

    cu_seq_q: Tensor
    """[sequences + 1] int32: the first row of queries of each."""
    cu_seq_k: Tensor
    """[sequences + 1] int32: the first slot of each, counted through all rows of these lanes."""
    used: Tensor
    """[sequences] int32: slots in use, the new ones among them; what lies behind them is spare room."""
    max_q: int
    max_k: int


def packings(
    starts: Tensor,
    lengths: Tensor,
    flat: Sequence[bool],
    capacities: Sequence[int],
    new: int,
    at: torch.device,
) -> list[Packing]:
    """One for each layer, in one transfer to the device.

    starts, lengths: [layer, lane, kv_head] on the CPU: the first slot of a head in its row, and the slots
    before the `new` ones. flat: whether all heads of a lane lie in one row of so many slots. Raises
    ValueError for more slots than 32 bits count, which the kernel would take for others.
    """
    _, lanes, heads = lengths.shape
    rows = torch.tensor([1 if one else heads for one in flat])
    capacity = torch.tensor(capacities)
    every = lanes * rows * capacity
    if int(every.max()) >= 2**31:
        raise ValueError(
            f"slots of a pool: {int(every.max())}, and a kernel counts to 2^31; decode fewer lanes"
        )
    lane = torch.arange(lanes)[:, None] * (rows * capacity)[:, None, None]
    head = torch.arange(heads) * torch.where(rows == 1, 0, capacity)[:, None, None]
    first = (lane + head + starts).flatten(1)
    ends = torch.cat([first, every[:, None], (lengths + new).flatten(1)], 1).to(at, torch.int32)
    count = lanes * heads
    queries = torch.arange(count + 1, dtype=torch.int32, device=at) * new
    longest = (lengths + new).flatten(1).max(1).values.tolist()
    return [
        Packing(queries, own[: count + 1], own[count + 1 :], new, most)
        for own, most in zip(ends, longest, strict=True)
    ]


def through(
    kernel: Kernel, made: Packing, queries: Tensor, keys: Tensor, values: Tensor, scale: float
) -> Tensor:
    """queries [lane, q_head, t, d] over rows of slots [lane, row, capacity, d]: [lane, q_head, t, d].

    A sequence has one KV head, whose query heads are read beside it: no key is repeated, none is padded. One
    new token needs no causal window, and without one the kernel takes the query heads of a group as the rows
    of one tile. `num_splits` of 1: the sum over a sequence runs in an order that depends on it alone.
    """
    lanes, query_heads, new, dim = queries.shape
    sequences = len(made.used)
    groups = lanes, sequences // lanes, query_heads * lanes // sequences
    packed = queries.view(*groups, new, dim).transpose(2, 3).reshape(sequences * new, -1, dim)
    output: Tensor = kernel(
        packed,
        keys.view(-1, 1, dim),
        values.view(-1, 1, dim),
        made.cu_seq_q,
        made.cu_seq_k,
        made.max_q,
        made.max_k,
        scale=scale,
        window_size=(-1, -1) if new == 1 else (-1, 0),
        enable_gqa=True,
        seqused_k=made.used,
        num_splits=1,
    )
    return output.view(sequences, new, -1, dim).transpose(1, 2).reshape(queries.shape)
