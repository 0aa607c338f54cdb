"""Merging of slots: keys are rotated to one position, and keys, values and weights are averaged or summed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from policies import Merging, Rotation
from policies.signals import upcast
from protocol.engine.slots import CachedSlots


class Groups(NamedTuple):
    """Groups of slots that merge into one slot, indexed through the flattened rows [..., n].

    members: slots of the groups, group by group, in slot order. sizes: of the groups. targets: the slot into
    which each group is merged.
    """

    members: Tensor
    sizes: Tensor
    targets: Tensor

    def sums(self, rows: Tensor) -> Tensor:
        """Sum rows [member, ...] by group in float32 or better -> [group, ...], one addend after the other."""
        return torch.segment_reduce(rows, "sum", lengths=self.sizes, axis=0, unsafe=True)

    def member_targets(self) -> Tensor:
        """Return [member], the target slot of each member."""
        return self.targets.repeat_interleave(self.sizes)


def groups_of(into: Tensor) -> Groups:
    """Return the groups of into [..., n] int64: the slot of the same row into which each slot is merged, -1
    for none. A slot that is merged with no other is in no group, so it stays bit for bit.
    """
    n = into.shape[-1]
    rows = torch.arange(into[..., 0].numel(), device=into.device).view(*into.shape[:-1], 1)
    target = (into + rows * n).flatten()
    members = (into.flatten() >= 0).nonzero()[:, 0]
    members = members[target[members].argsort(stable=True)]
    targets, sizes = torch.unique_consecutive(target[members], return_counts=True)
    several = sizes > 1
    return Groups(members[several.repeat_interleave(sizes)], sizes[several], targets[several])


def merge_slots(
    cached: CachedSlots, positions: Tensor, into: Tensor, shares: Tensor, rotation: Rotation
) -> CachedSlots:
    """Return the slots of one layer after a merging, before the masks drop the merged ones.

    positions, into, shares [kv_head, n]. A target slot becomes the mean, weighted by the shares, of the keys
    of its members, each rotated to the target's position, and of their values as stored. Its weight is the
    sum of their weights, 1 where none is stored.
    """
    groups = groups_of(into)
    weights = cached.weights
    if weights is None:
        weights = torch.ones(into.shape, dtype=torch.float32, device=into.device)
    members, flat_positions = groups.members, positions.flatten()
    share = shares.flatten()[members, None]
    keys, values = upcast(cached.keys).flatten(0, 1)[members], upcast(cached.values).flatten(0, 1)[members]
    keys = rotate_keys(keys, flat_positions[groups.member_targets()] - flat_positions[members], rotation)
    return CachedSlots(
        replace_rows(cached.keys, groups.targets, groups.sums(share.to(keys.dtype) * keys)),
        replace_rows(cached.values, groups.targets, groups.sums(share.to(values.dtype) * values)),
        replace_rows(weights, groups.targets, groups.sums(weights.flatten()[members])),
    )


def replace_rows(tensor: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
    """Return a copy of tensor [kv_head, n, ...] with these rows in place of the target rows."""
    copy = tensor.clone(memory_format=torch.contiguous_format)
    copy.view(-1, *tensor.shape[2:])[targets] = rows.to(tensor.dtype)
    return copy


def rotate_keys(keys: Tensor, steps: Tensor, rotation: Rotation) -> Tensor:
    """Rotate keys [m, d], which have RoPE applied, by `steps` [m] positions. Pairs are i and i + d/2."""
    angles = steps.double()[:, None] * rotation.frequencies
    cos, sin = angles.cos().to(keys.dtype), angles.sin().to(keys.dtype)
    first, second = keys.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def merge_layer(
    merging: Merging | None, layer: int, cached: CachedSlots, positions: Tensor, rotation: Rotation | None
) -> CachedSlots:
    """Return the slots of one layer after an eviction, before the masks drop any.

    positions [kv_head, n]. rotation: of the model; a model without one supports no merging state.
    """
    if merging is None:
        return cached
    assert rotation is not None
    return merge_slots(cached, positions, merging.targets[layer], merging.shares[layer], rotation)


def sum_merger(into: Tensor) -> Callable[[Tensor], Tensor]:
    """Return a function that merges a tensor [layer, head, n] of sums over queries: a target gets the sum of
    its members.

    into [layer, kv_head, n]. Raises ValueError for a tensor with one head if heads merge different slots.
    """

    def merge_sums(tensor: Tensor) -> Tensor:
        heads, head_into = tensor.shape[1], into
        if heads < into.shape[1]:
            if (into != into[:, :1]).any():
                raise ValueError(
                    "one state for all heads of a layer needs the same merged slots in each head, but they differ"
                )
            head_into = into[:, :1]
        groups = groups_of(head_into.repeat_interleave(heads // head_into.shape[1], 1))
        sums = groups.sums(upcast(tensor).flatten()[groups.members])
        return replace_rows(tensor.flatten(0, 1), groups.targets, sums).view(tensor.shape)

    return merge_sums
