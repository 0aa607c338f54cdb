"""The slot cache: every lane holds its own slots, in tensors no larger than it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


@dataclass(frozen=True)
class Pool:
    """Lanes of equal capacity.

    rows: [lane] rows of the batch.
    keys, values: one tensor a layer, [lane, kv_head, capacity, d]. A head's slots lie in position order from
        0 to its length; beyond are zeros, since a masked NaN would still spoil the sum.
    lengths: [layer, lane, kv_head] int64, on the CPU: asking for them never waits for an accelerator.
    """

    rows: Tensor
    keys: list[Tensor]
    values: list[Tensor]
    lengths: Tensor

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """Append the new slots in place; a new token sees all older slots of its head, and itself."""
        lanes, heads, new, _ = keys.shape
        stored_keys, stored_values = self.keys[layer], self.values[layer]
        before = self.lengths[layer].clone()
        self.lengths[layer] += new
        end = int(self.lengths[layer].max())
        slot = (before[..., None] + torch.arange(new)).to(keys.device)  # [lane, kv_head, new]
        lane = torch.arange(lanes, device=keys.device)[:, None, None]
        head = torch.arange(heads, device=keys.device)[:, None]
        stored_keys[lane, head, slot] = keys
        stored_values[lane, head, slot] = values

        # The query heads of a group become rows of their KV head, so that no key is ever repeated.
        group = queries.shape[1] // heads
        packed = queries.reshape(lanes, heads, group * new, -1)
        visible = None
        if new > 1 or bool((before != before[0, 0]).any()):
            visible = torch.arange(end, device=keys.device) <= slot[..., None]
            visible = visible.repeat(1, 1, group, 1)  # [lane, kv_head, group x new, end]
        output = scaled_dot_product_attention(
            packed, stored_keys[:, :, :end], stored_values[:, :, :end], attn_mask=visible, scale=scale
        )
        return output.reshape(queries.shape)

    def allocated(self) -> list[int]:
        """[lane] bytes of memory behind the tensors; the lanes of a pool have equal parts."""
        total = sum(tensor.untyped_storage().nbytes() for tensor in self.keys + self.values)
        return [total // len(self.rows)] * len(self.rows)


@dataclass(frozen=True)
class Slots:
    """The slots of all lanes of a batch; the passenger of every forward after the event."""

    pools: tuple[Pool, ...]
    lanes: int

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        output = torch.empty_like(queries)
        for pool in self.pools:
            rows = pool.rows
            output[rows] = pool.attend(layer, queries[rows], keys[rows], values[rows], scale)
        return output

    def held(self) -> list[int]:
        """[lane] slots in use, summed over layers and KV heads."""
        return self._by_lane([pool.lengths.sum((0, 2)).tolist() for pool in self.pools])

    def allocated(self) -> list[int]:
        """[lane] bytes allocated for keys and values."""
        return self._by_lane([pool.allocated() for pool in self.pools])

    def _by_lane(self, counts: list[list[int]]) -> list[int]:
        found = [0] * self.lanes
        for pool, values in zip(self.pools, counts, strict=True):
            for row, value in zip(pool.rows.tolist(), values, strict=True):
                found[row] = value
        return found


def fork(keys: Sequence[Tensor], values: Sequence[Tensor], keeps: Sequence[Tensor], room: int) -> Slots:
    """Gather the kept slots of every lane out of one prefill.

    keys, values: one tensor a layer, [kv_head, n, d]. keeps: one tensor a lane, bool [layer, kv_head, n].
    room: tokens that every lane may still append. The capacity of a lane is what its fullest head keeps, plus
    `room`; lanes of equal capacity share a pool, so that none is padded to the capacity of another.
    """
    lengths = [keep.sum(-1).cpu() for keep in keeps]  # [layer, kv_head]
    capacities = [int(count.max()) + room for count in lengths]
    pools = []
    for capacity in sorted(set(capacities)):
        rows = [row for row, size in enumerate(capacities) if size == capacity]
        pool = Pool(
            rows=torch.tensor(rows, device=keys[0].device),
            keys=[layer.new_zeros(len(rows), len(layer), capacity, layer.shape[-1]) for layer in keys],
            values=[layer.new_zeros(len(rows), len(layer), capacity, layer.shape[-1]) for layer in values],
            lengths=torch.stack([lengths[row] for row in rows], dim=1),
        )
        for lane, row in enumerate(rows):
            filled = torch.arange(capacity) < lengths[row][..., None]  # [layer, kv_head, capacity]
            for layer, (kept, place) in enumerate(zip(keeps[row], filled.to(keys[0].device), strict=True)):
                # Both masks are read row by row: head by head, ascending positions into ascending slots.
                pool.keys[layer][lane][place] = keys[layer][kept]
                pool.values[layer][lane][place] = values[layer][kept]
        pools.append(pool)
    return Slots(tuple(pools), len(keeps))
