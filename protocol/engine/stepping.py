"""One forward over the slots of a pool: new tokens are appended, attend, and show what policies read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from policies.signals import shares, wide
from protocol.engine.attention.packing import packings, through
from protocol.engine.slots import Pool

Member = TypeVar("Member")

FEW = 64
"""Query rows of a KV head, over lanes' groups and new tokens, up to which the logits are formed whole."""


class Watched(NamedTuple):
    """What of the attention a policy reads: which layers, and whether the raw logits beside the weights."""

    layers: tuple[int, ...]
    raw: bool


class Watch(NamedTuple):
    """What policies that read the same see of the attention of the new tokens.

    weights: one tensor for each of the layers, [lane, q_head, t, n] in float32 or better, n the slots of the
        fullest head of the layer; 0 where a head holds fewer.
    logits: as `weights`, before the softmax, -inf where a row sees nothing; empty unless `raw`.
    """

    layers: tuple[int, ...]
    raw: bool
    lanes: list[int]
    weights: list[Tensor]
    logits: list[Tensor]

    def all_weights(self) -> Tensor:
        """[layer, lane, q_head, t, n], n the slots of the fullest head of these layers."""
        return widened(self.weights, 0)

    def all_logits(self) -> Tensor | None:
        """As `all_weights`."""
        return widened(self.logits, -torch.inf) if self.raw else None


def widened(layers: Sequence[Tensor], value: float) -> Tensor:
    """Tensors [..., n] of several n, stacked and filled up with a value."""
    n = max(tensor.shape[-1] for tensor in layers)
    return torch.stack([pad(tensor, (0, n - tensor.shape[-1]), value=value) for tensor in layers])


class Step(Generic[Member]):
    """One forward of the lanes at some places of a pool, `new` tokens each.

    watches: the attention of the new tokens, for those of these lanes whose policies read it.
    noted: the ones whose policies read it later, over the slots of then, and need the queries.
    queries: of the new tokens, one tensor per layer, [noted, q_head, t, d].
    shown: the ones whose policies fold queries, keys and values of the new tokens.
    fed: these, keys, values and queries of each layer, [shown, head, t, d].
    """

    def __init__(
        self,
        pool: Pool[Member],
        places: range,
        new: int,
        queries: int,
        watched: Mapping[Watched, Sequence[int]],
        noted: Sequence[int],
        shown: Sequence[int],
    ) -> None:
        """watched: lanes by what they read."""
        self.pool, self.places, self.new = pool, places, new
        self.own = slice(places.start, places.stop)
        self.plans = pool.plans(self.own, new, queries, seen=pool.kernel is None or bool(watched))
        self.packings = []
        if pool.kernel is not None:
            layout = pool.starts[:, self.own], pool.lengths[:, self.own]
            flat, capacities = zip(*((own.flat, own.capacity) for own in pool.shape), strict=True)
            self.packings = packings(*layout, flat, capacities, new, pool.keys[0].device)
        self.watches = [Watch(*what, list(lanes), [], []) for what, lanes in watched.items()]
        self.noted = list(noted)
        self.queries: list[Tensor] = []
        self.shown = list(shown)
        self.fed: list[tuple[Tensor, Tensor, Tensor]] = []

    def attend(
        self,
        layer: int,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        scale: float,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Append the new slots in place; a new token sees all older slots of its head, and itself."""
        pool, made, form = self.pool, self.plans[layer], self.pool.form
        lanes, heads, _, dim = keys.shape
        flat = pool.shape[layer].flat
        stored_keys = pool.keys[layer][self.own]
        stored_values = pool.values[layer][self.own]
        width = stored_values.shape[-1]
        stored_keys.view(-1, dim).index_copy_(0, made.at, keys.reshape(-1, dim))
        coded = form.encoded(layer, values)
        stored_values.view(-1, width).index_copy_(0, made.at, coded.reshape(-1, width))

        # The query heads that read a row become rows of one product, so that no key is ever repeated.
        packed = queries.reshape(lanes, 1 if flat else heads, -1, dim)
        if sinks is not None:  # one of each packed row
            sinks = sinks.repeat_interleave(self.new).view(packed.shape[1], -1, 1)
        used_keys, used_values = stored_keys[:, :, : made.end], stored_values[:, :, : made.end]
        if self.noted:
            self.queries.append(queries[self.noted])
        if self.shown:
            self.fed.append((keys[self.shown], values[self.shown], queries[self.shown]))
        for watch in self.watches:
            if layer in watch.layers:
                self.watch(layer, watch, packed[watch.lanes], used_keys[watch.lanes], scale, sinks)
        if pool.kernel is not None:
            return through(pool.kernel, self.packings[layer], queries, stored_keys, stored_values, scale)
        output = attended(packed, used_keys, used_values, made.mask, scale, sinks)
        return form.expanded(layer, output.reshape(*queries.shape[:-1], width))

    def watch(
        self, layer: int, watch: Watch, packed: Tensor, keys: Tensor, scale: float, sinks: Tensor | None
    ) -> None:
        """Add what is read of a layer, from the packed queries and the keys of its lanes."""
        visible, bias = self.plans[layer].visible, self.plans[layer].bias
        logits = (wide(packed) * scale) @ wide(keys).transpose(-1, -2)
        if bias is not None:
            logits += bias[watch.lanes]
        if visible is not None:
            logits.masked_fill_(~visible[watch.lanes], -torch.inf)
        watch.weights.append(self.by_head(layer, watch.lanes, shares(logits, sinks), 0))
        if watch.raw:
            watch.logits.append(self.by_head(layer, watch.lanes, logits, -torch.inf))

    def by_head(self, layer: int, lanes: Sequence[int], rows: Tensor, value: float) -> Tensor:
        """rows [lane, row, query rows, slot of the row] -> [lane, q_head, t, slot of the head], `value` where
        a head holds fewer.
        """
        weights = rows.reshape(len(rows), -1, self.new, rows.shape[-1])
        if not self.pool.shape[layer].flat:
            return weights
        places = [self.places[lane] for lane in lanes]
        starts, lengths = self.pool.starts[layer, places], self.pool.lengths[layer, places] + self.new
        group = weights.shape[1] // starts.shape[1]
        at = torch.arange(int(lengths.max()))
        inside = (at < lengths[..., None]).repeat_interleave(group, 1)[:, :, None].to(weights.device)
        slot = (starts[..., None] + at).clamp_(max=weights.shape[-1] - 1)
        slot = slot.repeat_interleave(group, 1)[:, :, None].to(weights.device)
        return weights.gather(-1, slot.expand(-1, -1, self.new, -1)).masked_fill(~inside, value)

    def all_queries(self) -> Tensor:
        """[layer, noted, q_head, t, d]"""
        return torch.stack(self.queries)

    def all_fed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Keys, values and queries, [layer, shown, head, t, d] each."""
        keys, values, queries = zip(*self.fed, strict=True)
        return torch.stack(keys), torch.stack(values), torch.stack(queries)

    def end(self) -> None:
        """Count the new slots."""
        self.pool.lengths[:, self.own] += self.new


def attended(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    scale: float,
    sinks: Tensor | None = None,
) -> Tensor:
    """[lane, row, query rows, d] over [lane, row, n, d] and values of `width` numbers: [..., width].

    mask: what is added to the logits. Values narrower than keys: no fused kernel of
    a CPU takes them. For a few query rows two products are faster than what is used in its place, as long as
    float32 is the precision; else the values are filled up with zeros. sinks [row, query rows, 1]: no fused
    kernel knows them.
    """
    width, dim = values.shape[-1], keys.shape[-1]
    if sinks is not None:
        logits = wide(queries * scale) @ wide(keys).transpose(-1, -2)
        if mask is not None:
            logits = logits.masked_fill_(~mask, -torch.inf) if mask.dtype == torch.bool else logits.add_(mask)
        return (shares(logits, sinks) @ wide(values)).to(values.dtype)
    if width >= dim or values.device.type != "cpu":
        return scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale)
    if values.dtype.itemsize < 4 or queries.shape[-2] > FEW:
        values = pad(values, (0, dim - width))
        return scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale)[..., :width]
    logits = (queries * scale) @ keys.transpose(-1, -2)
    if mask is not None:
        logits += mask
    return logits.softmax(-1) @ values
