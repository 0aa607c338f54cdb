"""What becomes of slots that go on in others: keys turned to one position, means, sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from policies import Merging, Rotation
from policies.signals import wide
from protocol.engine.slots import Cached

__all__ = ["merged", "of_layer", "sums_of"]


class Groups(NamedTuple):
    """Slots of which several go on in one, counted through all rows: [..., n] as one line.

    members: those that do, group by group, each group in the order of its slots. sizes: of the groups.
    targets: the slot in which each group goes on.
    """

    members: Tensor
    sizes: Tensor
    targets: Tensor

    def sums(self, rows: Tensor) -> Tensor:
        """rows [member, ...], in float32 or better -> [group, ...], one addend after the other."""
        return torch.segment_reduce(rows, "sum", lengths=self.sizes, axis=0, unsafe=True)

    def of_each(self) -> Tensor:
        """[member], the slot in which each member goes on."""
        return self.targets.repeat_interleave(self.sizes)


def groups_of(into: Tensor) -> Groups:
    """into [..., n] int64: the slot of its own row in which each goes on, -1 for none. One that goes on alone
    is in no group, so that it stays as it is, bit for bit.
    """
    n = into.shape[-1]
    rows = torch.arange(into[..., 0].numel(), device=into.device).view(*into.shape[:-1], 1)
    target = (into + rows * n).flatten()
    members = (into.flatten() >= 0).nonzero()[:, 0]
    members = members[target[members].argsort(stable=True)]
    targets, sizes = torch.unique_consecutive(target[members], return_counts=True)
    several = sizes > 1
    return Groups(members[several.repeat_interleave(sizes)], sizes[several], targets[several])


def merged(cached: Cached, positions: Tensor, into: Tensor, shares: Tensor, rotation: Rotation) -> Cached:
    """The slots of one layer after a merging, for `kept` to drop those that went on in others.

    positions, into, shares [kv_head, n]. A slot j becomes the mean, by the shares, of the keys of its
    members, each turned from its own position to that of j, and of their values as stored. Its weight is the
    sum of theirs, 1 for one that has none.
    """
    groups = groups_of(into)
    weights = cached.weights
    if weights is None:
        weights = torch.ones(into.shape, dtype=torch.float32, device=into.device)
    own, at = groups.members, positions.flatten()
    share = shares.flatten()[own, None]
    keys, values = wide(cached.keys).flatten(0, 1)[own], wide(cached.values).flatten(0, 1)[own]
    keys = turned(keys, at[groups.of_each()] - at[own], rotation)
    return Cached(
        replaced(cached.keys, groups.targets, groups.sums(share.to(keys.dtype) * keys)),
        replaced(cached.values, groups.targets, groups.sums(share.to(values.dtype) * values)),
        replaced(weights, groups.targets, groups.sums(weights.flatten()[own])),
    )


def replaced(tensor: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
    """A copy of tensor [kv_head, n, ...] with these rows in the place of those of the targets."""
    copy = tensor.clone(memory_format=torch.contiguous_format)
    copy.view(-1, *tensor.shape[2:])[targets] = rows.to(tensor.dtype)
    return copy


def turned(keys: Tensor, steps: Tensor, rotation: Rotation) -> Tensor:
    """Keys [m, d] with their RoPE rotation, turned on by `steps` [m] positions. Pairs of the half layout."""
    angles = steps.double()[:, None] * rotation.frequencies
    cos, sin = angles.cos().to(keys.dtype), angles.sin().to(keys.dtype)
    first, second = keys.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def of_layer(
    merging: Merging | None, layer: int, cached: Cached, positions: Tensor, rotation: Rotation | None
) -> Cached:
    """The slots of one layer after an event, but for those that it drops.

    positions [kv_head, n]. rotation: of the model; one without it has no state that merges.
    """
    if merging is None:
        return cached
    assert rotation is not None
    return merged(cached, positions, merging.into[layer], merging.shares[layer], rotation)


def sums_of(into: Tensor) -> Callable[[Tensor], Tensor]:
    """What a tensor [layer, head, n] of sums over queries becomes: a slot gets those of its members, added
    up.

    into [layer, kv_head, n]. Raises ValueError for a tensor of one head where heads merge otherwise.
    """

    def summed(tensor: Tensor) -> Tensor:
        heads, own = tensor.shape[1], into
        if heads < into.shape[1]:
            if (into != into[:, :1]).any():
                raise ValueError("one state for all heads of a layer, but they merge different slots")
            own = into[:, :1]
        groups = groups_of(own.repeat_interleave(heads // own.shape[1], 1))
        sums = groups.sums(wide(tensor).flatten()[groups.members])
        return replaced(tensor.flatten(0, 1), groups.targets, sums).view(tensor.shape)

    return summed
