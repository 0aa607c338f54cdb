"""Slots that are packed in groups, with the latest of each head apart in float16 (KIVI): how a pool holds them.

Of a head with n slots, keys before `n - n mod R` are packed, values before `n - R`; the others are in a ring of R
places, slot i in place i mod R. Every value has a packed row too, since it is packed alone; it is read once the ring
has let it go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from policies import Packing
from policies.quantised.blocks import BLOCK
from protocol.engine.storage_formats import StorageFormat


class Rows(Protocol):
    """What a pool of grouped slots has, in the words of `slots.Pool`."""

    keys: list[Tensor]
    values: list[Tensor]
    rings: list[Tensor]
    like: list[Tensor]
    starts: Tensor
    lengths: Tensor
    storage: StorageFormat

    @property
    def shape(self) -> Sequence[Any]: ...


def packing_of(pool: Rows) -> Packing:
    assert pool.storage.packing is not None
    return pool.storage.packing


def head_slots(pool: Rows, layer: int, lanes: slice, n: int) -> Tensor:
    """Return the index [lane, kv_head, n] of the first n slots of each head, in its row of a flat shape."""
    return (pool.starts[layer, lanes, :, None] + torch.arange(n)).to(pool.like[layer].device, non_blocking=True)


def read_slots(pool: Rows, layer: int, lanes: slice, n: int) -> tuple[Tensor, Tensor]:
    """Return keys and values [lane, kv_head, n, d] of the first n slots; beyond those in use, anything."""
    packing, ring, dtype = packing_of(pool), pool.rings[layer][lanes], pool.like[layer].dtype
    rows = pool.keys[layer][lanes], pool.values[layer][lanes]
    if pool.shape[layer].flat:
        index = head_slots(pool, layer, lanes, n).clamp_(max=pool.shape[layer].capacity - 1)
        keys, values = (part[:, 0][torch.arange(len(part), device=part.device)[:, None, None], index] for part in rows)
    else:
        keys, values = (part[:, :, :n] for part in rows)
    lengths = pool.lengths[layer, lanes, :, None].to(ring.device, non_blocking=True)
    slot, whole = torch.arange(n, device=ring.device), n // BLOCK * BLOCK
    packed_keys = pad(packing.keys.decode(keys[..., :whole, :]), (0, 0, 0, n - whole))
    latest_keys, latest_values = ring.index_select(-2, slot % packing.recent).to(dtype).chunk(2, -1)
    return (
        torch.where((slot >= lengths - lengths % packing.recent)[..., None], latest_keys, packed_keys.to(dtype)),
        torch.where(
            (slot >= lengths - packing.recent)[..., None], latest_values, packing.values.decode(values).to(dtype)
        ),
    )


def append_slots(
    pool: Rows, layer: int, lanes: slice, keys: Tensor, values: Tensor, targets: Tensor | None, end: int
) -> tuple[Tensor, Tensor]:
    """Store keys and values [lane, kv_head, t, d] of new tokens. Return those that the tokens attend to, in the rows
    [lane, row, end, d] of the pool, as a plan says them: older ones as they were stored before, new ones in float16.
    """
    packing, before, new = packing_of(pool), pool.lengths[layer, lanes], keys.shape[2]
    after, recent, flat = before + new, packing.recent, pool.shape[layer].flat
    keys, values = keys.half(), values.half()
    used_keys, used_values = read_slots(pool, layer, lanes, int(after.max()))
    fed = before[..., None] + torch.arange(new)
    place = fed.to(keys.device, non_blocking=True)[..., None].expand(keys.shape)
    used_keys.scatter_(2, place, keys.to(used_keys.dtype))
    used_values.scatter_(2, place, values.to(used_values.dtype))

    write_rows(pool.values[layer][lanes], packing.values.encode(values), targets, end)
    latest = torch.cat([keys, values], -1)[:, :, -recent:]
    place = (place[:, :, -recent:, :1] % recent).expand(latest.shape)
    pool.rings[layer][lanes].scatter_(2, place, latest)
    first, last = before - before % recent, after - after % recent
    for lane, head in (first < last).nonzero().tolist():  # every R tokens of a head
        row, start, stop = 0 if flat else head, int(first[lane, head]), int(last[lane, head])
        packed = pool.keys[layer][lanes][lane, row, int(pool.starts[layer, lanes][lane, head]) :]
        packed[start:stop] = packing.keys.encode(used_keys[lane, head, start:stop])
    if not flat:
        return used_keys, used_values
    index = head_slots(pool, layer, lanes, used_keys.shape[2])
    in_use = torch.arange(used_keys.shape[2]) < after[..., None]
    index = torch.where(in_use.to(index.device), index, end).flatten(1)[..., None]
    by_row = (part.new_zeros(len(part), end + 1, part.shape[-1]) for part in (used_keys, used_values))
    used_keys, used_values = (
        rows.scatter_(1, index.expand(-1, -1, rows.shape[-1]), part.flatten(1, 2))[:, None, :end]
        for rows, part in zip(by_row, (used_keys, used_values), strict=True)
    )
    return used_keys, used_values


def write_rows(rows: Tensor, coded: Tensor, targets: Tensor | None, end: int) -> None:
    """Store new slots [lane, kv_head, t, _] in rows [lane, row, capacity, _], in place, as a plan says."""
    width = rows.shape[-1]
    if targets is None:
        rows[:, :, end - coded.shape[2] : end] = coded
    else:
        rows.view(-1, width).index_copy_(0, targets, coded.reshape(-1, width))


def store_slots(
    pool: Rows, index: int, layer: int, keys: Sequence[Tensor], values: Sequence[Tensor], starts: Sequence[int]
) -> None:
    """Pack the slots of a lane anew. keys, values: by head, [n, d], as read; starts: of the heads in their rows."""
    packing = packing_of(pool)
    for head, (head_keys, head_values, start) in enumerate(zip(keys, values, starts, strict=True)):
        n, row = len(head_keys), 0 if pool.shape[layer].flat else head
        packed = n - n % packing.recent
        pool.keys[layer][index, row, start : start + packed] = packing.keys.encode(head_keys[:packed])
        pool.values[layer][index, row, start : start + n] = packing.values.encode(head_values)
        latest = torch.cat([head_keys, head_values], -1)[max(0, n - packing.recent) :].half()
        place = torch.arange(n - len(latest), n, device=latest.device) % packing.recent
        pool.rings[layer][index, head, place] = latest
