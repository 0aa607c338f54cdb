"""The slots of a pool as variable-length sequences, one for each lane and KV head, without copying them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from protocol.engine.attention.kernels import Kernel


class Packing(NamedTuple):
    """The arguments of a variable-length kernel for one layer; a sequence is number lane x KV heads + head."""

    cu_seq_q: Tensor
    """[sequences + 1] int32: the first query row of each sequence."""
    cu_seq_k: Tensor
    """[sequences + 1] int32: the first slot of each sequence, counted through all rows of these lanes."""
    used: Tensor
    """[sequences] int32: slots in use, including the new ones; the slots after them are spare."""
    max_q: int
    max_k: int


def pack_layers(
    starts: Tensor,
    lengths: Tensor,
    flat: Sequence[bool],
    capacities: Sequence[int],
    new: int,
    update: Callable[..., list[Tensor]],
) -> list[Packing]:
    """Return the packing of each layer.

    starts, lengths: [layer, lane, kv_head] on the CPU: the first slot of a head in its row, and the number of
    slots before the `new` ones. flat: whether all heads of a lane share one row of that capacity. update:
    `DeviceNumbers.update`. Raises ValueError if slots exceed 32-bit indices, which would make the kernel read
    other slots.
    """
    _, lanes, heads = lengths.shape
    rows = torch.tensor([1 if is_flat else heads for is_flat in flat])
    capacity = torch.tensor(capacities)
    n_slots = lanes * rows * capacity
    if int(n_slots.max()) >= 2**31:
        raise ValueError(
            f"slots of a pool: {int(n_slots.max())}, but the kernel can index only 2^31; decode fewer lanes at once"
        )
    lane = torch.arange(lanes)[:, None] * (rows * capacity)[:, None, None]
    head = torch.arange(heads) * torch.where(rows == 1, 0, capacity)[:, None, None]
    first = (lane + head + starts).flatten(1)
    ends, used = torch.cat([first, n_slots[:, None]], 1), (lengths + new).flatten(1)
    (ends_there,) = update("ends", [ends.numpy()])
    (used_there,) = update("used", [used.numpy()], growth=1)
    count = lanes * heads
    queries = torch.arange(0, (count + 1) * new, new, dtype=torch.int32, device=ends_there.device)
    longest = used.max(1).values.tolist()
    layers = zip(ends_there.to(torch.int32), used_there.to(torch.int32), longest, strict=True)
    return [Packing(queries, own_ends, own_used, new, max_k) for own_ends, own_used, max_k in layers]


def attend_packed(
    kernel: Kernel, packing: Packing, queries: Tensor, keys: Tensor, values: Tensor, scale: float
) -> Tensor:
    """Attend from queries [lane, q_head, t, d] to rows of slots [lane, row, capacity, d]: [lane, q_head, t, d].

    A sequence has one KV head and its group of query heads: no key is repeated and none is padded. A single
    new token needs no causal window, and without one the kernel treats the query heads of a group as rows of
    one tile. `num_splits` is 1, so the order of summation in a sequence depends on that sequence alone.
    """
    lanes, query_heads, new, dim = queries.shape
    sequences = len(packing.used)
    groups = lanes, sequences // lanes, query_heads * lanes // sequences
    packed = queries.view(*groups, new, dim).transpose(2, 3).reshape(sequences * new, -1, dim)
    output: Tensor = kernel(
        packed,
        keys.view(-1, 1, dim),
        values.view(-1, 1, dim),
        packing.cu_seq_q,
        packing.cu_seq_k,
        packing.max_q,
        packing.max_k,
        scale=scale,
        window_size=(-1, -1) if new == 1 else (-1, 0),
        enable_gqa=True,
        seqused_k=packing.used,
        num_splits=1,
    )
    return output.view(sequences, new, -1, dim).transpose(1, 2).reshape(queries.shape)
