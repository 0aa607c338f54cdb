"""The slots of a pool as variable-length sequences, one for each lane and KV head, without copying them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from protocol.engine.attention.kernels import Kernel

__all__ = ["Packing", "packings", "through"]


class Packing(NamedTuple):
    """The arguments of a variable-length kernel for one layer; a sequence is number lane x KV heads + head.
    """

    cu_seq_q: Tensor
    """[sequences + 1] int32: the first query row of each sequence."""
    cu_seq_k: Tensor
    """[sequences + 1] int32: the first slot of each sequence, counted through all rows of these lanes."""
    used: Tensor
    """[sequences] int32: slots in use, including the new ones; the slots after them are spare."""
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
    """Return the packing of each layer, with one transfer to the device.

    starts, lengths: [layer, lane, kv_head] on the CPU: the first slot of a head in its row, and the number of
    slots before the `new` ones. flat: whether all heads of a lane share one row of that capacity. Raises
    ValueError if slots exceed 32-bit indices, which would make the kernel read other slots.
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
    """Attend from queries [lane, q_head, t, d] to rows of slots [lane, row, capacity, d]: [lane, q_head, t,
    d].

    A sequence has one KV head and its group of query heads: no key is repeated and none is padded. A single
    new token needs no causal window, and without one the kernel treats the query heads of a group as rows of
    one tile. `num_splits` is 1, so the order of summation in a sequence depends on that sequence alone.
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
