"""Signals of policies, measured in blocks of query rows in the prefill and row by row while decoding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from policies.calibration import Calibrated
from policies.contract import AttentionRows, Signal, View

Kind = TypeVar("Kind")

BLOCK = 128
"""Query rows processed at once: [q_head, BLOCK, n] is the largest block of attention in memory."""


def attention_rows(
    queries: Tensor,
    keys: Tensor,
    scale: float,
    first: int,
    workspace: Tensor | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Return the causal softmax of t query rows over their visible keys: [q_head, t, n]. Arguments as in
    `attention_logits`.

    sinks: the sink logits [q_head] of a model with attention sinks.
    """
    logits = attention_logits(queries, keys, scale, first, workspace)
    if sinks is not None:
        return softmax_with_sink(logits, sinks[:, None, None])
    return torch.softmax(logits, -1, out=logits)


def softmax_with_sink(logits: Tensor, sinks: Tensor | None) -> Tensor:
    """Return the softmax of logits [..., n] over n slots and one sink, without the sink: rows sum to below 1.

    sinks: shaped like logits with one slot, or broadcastable to that; None for a model without attention
    sinks (gpt-oss has them).
    """
    if sinks is None:
        return logits.softmax(-1)
    sinks = sinks.to(logits.dtype)
    largest = logits.amax(-1, keepdim=True).maximum(sinks)
    weights = (logits - largest).exp_()
    return weights.div_(weights.sum(-1, keepdim=True) + (sinks - largest).exp())


def attention_logits(
    queries: Tensor, keys: Tensor, scale: float, first: int, workspace: Tensor | None = None
) -> Tensor:
    """Return the logits of t query rows over their visible keys, -inf at the others: [q_head, t, n].

    queries [q_head, t, d] and keys [kv_head, n, d], both with RoPE; query head h reads KV head h // group. If
    keys repeat each head c times, c dividing group * t, each copy serves its part of the group's rows. Row i
    sees keys 0..first+i. float32 or better for any inputs. workspace: a flat tensor of at least the result's
    size, in which the result is stored; allocating memory for every block costs more than the product.
    """
    heads, n, dim = keys.shape
    rows = queries.shape[1]
    # The query heads of a group become rows of their KV head, so that no key is repeated.
    packed = upcast(queries).mul(scale).reshape(heads, -1, dim)
    shape = (heads, packed.shape[1], n)
    out = None if workspace is None else workspace[: math.prod(shape)].view(shape)
    logits = torch.bmm(packed, upcast(keys).transpose(-1, -2), out=out).view(-1, rows, n)
    if first + 1 < n:
        tail = torch.arange(first + 1, n, device=queries.device)
        last_key = torch.arange(first, first + rows, device=queries.device)[:, None]
        logits[..., first + 1 :].masked_fill_(tail > last_key, -torch.inf)
    return logits


def running_sums(values: Tensor) -> Tensor:
    """Return the running sums [..., n], on the CPU: CUDA's order of summation is not deterministic."""
    return values.cpu().cumsum(-1).to(values.device)


def add_earlier(sums: Tensor, before: Tensor | None) -> Tensor:
    """Add to the sums [..., n] of the new rows those of the earlier rows, which saw fewer slots."""
    return sums if before is None else sums + functional.pad(before, (0, sums.shape[-1] - before.shape[-1]))


class EveryLayer:
    """Base of attention signals that read every layer and whose state is the result; carried by default."""

    carried: ClassVar[bool] = True
    afresh: ClassVar[bool] = False
    raw: ClassVar[bool] = False
    of_tokens: ClassVar[bool] = False

    def reads(self, layer: int) -> bool:
        return True

    def result(self, state: Any) -> Any:
        return state


@dataclass(frozen=True)
class AttentionSums(EveryLayer):
    """Attention that each slot receives, summed over query rows: [q_head, n] of every layer.

    window: the number of last query rows (SnapKV); None sums all of them (H2O), which is n - i addends for slot i.
    """

    window: int | None = None
    additive: ClassVar[bool] = True
    stacks: ClassVar[bool] = True

    def attend(self, rows: AttentionRows, before: Tensor | None) -> Tensor:
        skipped = 0 if self.window is None else max(0, rows.total - self.window - rows.start)
        return self.add(rows.attention[..., skipped:, :].sum(-2), before)

    def add(self, sums: Tensor, before: Tensor | None) -> Tensor:
        """Add the sums [q_head, n] of further rows."""
        return add_earlier(sums, before)


@dataclass(frozen=True)
class PastAttention(EveryLayer):
    """Attention of the last `window` queries to the slots before them, summed over queries: [q_head, n].

    The softmax runs over those slots alone, so a query that attends mostly to the window has full weight; it
    is computed by dividing by the attention to the slots before the window. 0 in the window.
    """

    window: int
    stacks: ClassVar[bool] = True

    def attend(self, rows: AttentionRows, before: Tensor | None) -> Tensor:
        count, n = rows.attention.shape[-2:]
        slots = n + rows.total - rows.start - count  # after the last row
        past = rows.attention[..., max(0, rows.total - self.window - rows.start) :, :].clone()
        past[..., max(0, slots - self.window) :] = 0
        least = torch.finfo(past.dtype).tiny
        sums = (past / past.sum(-1, keepdim=True).clamp(min=least)).sum(-2)
        return add_earlier(sums, before)


@dataclass(frozen=True)
class Norms:
    """Euclidean norm of each stored key and value: KeyAndValue of [kv_head, n] each, in float32 or better."""

    stacks: ClassVar[bool] = True

    def summarise(self, layer: int, keys: Tensor, values: Tensor, filled: Tensor) -> KeyAndValue:
        return KeyAndValue(*(upcast(part).norm(dim=-1) for part in (keys, values)))


@dataclass(frozen=True)
class Keys:
    """The stored keys: [kv_head, n, d] with their rotation, available during the eviction step only."""

    stacks: ClassVar[bool] = True

    def summarise(self, layer: int, keys: Tensor, values: Tensor, filled: Tensor) -> Tensor:
        return keys


@dataclass(frozen=True)
class Values:
    """The stored values: [kv_head, n, d], available during the eviction step only."""

    stacks: ClassVar[bool] = True

    def summarise(self, layer: int, keys: Tensor, values: Tensor, filled: Tensor) -> Tensor:
        return values


@dataclass(frozen=True)
class MeanValues:
    """Mean over the KV heads of the stored values: [n, d], in float32 or better."""

    stacks: ClassVar[bool] = True

    def summarise(self, layer: int, keys: Tensor, values: Tensor, filled: Tensor) -> Tensor:
        return upcast(values).mean(-3)


class KeyAndValue(NamedTuple):
    key: Tensor
    value: Tensor


class Trace(NamedTuple):
    """State of a HiddenChange."""

    changes: Tensor
    """[t], one entry per token fed; 0 for the first token."""
    last: Tensor
    """[width], hidden state of the last token fed."""


@dataclass(frozen=True)
class HiddenChange:
    """||h(t) - h(t-1)|| of the output of a decoder layer, for every token fed: a Trace of each layer.

    EpiKV (arXiv:2606.26472), Eq. 1.

    layers: layer numbers from 0 in a model of `depth` layers. depth: a model of L layers reads layer
        l (L - 1) / (depth - 1), halves rounded up, instead of layer l, so that the first and last layers
        correspond; None reads layer l itself.
    """

    layers: tuple[int, ...]
    depth: int | None = 32

    def __post_init__(self) -> None:
        if not self.layers or min(self.layers) < 0:
            raise ValueError(f"layers must be one or more numbers, 0 or more, not {self.layers}")
        if self.depth is not None and self.depth <= max(1, *self.layers):
            raise ValueError(f"depth must be above 1 and above every layer of {self.layers}, not {self.depth}")

    def layers_in(self, layers: int) -> tuple[int, ...]:
        if self.depth is not None:
            steps = 2 * (self.depth - 1)
            return tuple(sorted({(2 * layer * (layers - 1) + steps // 2) // steps for layer in self.layers}))
        if max(self.layers) >= layers:
            raise ValueError(
                f"the policy reads the output of layer {max(self.layers)}, but the model has {layers} "
                "layers; set the depth of the model to which its layer numbers refer"
            )
        return tuple(sorted(set(self.layers)))

    def change(self, hidden: Tensor, before: Trace | None) -> Trace:
        hidden = upcast(hidden)
        earlier = hidden[:1] if before is None else before.last[None]
        changes = torch.cat([earlier, hidden]).diff(dim=0).norm(dim=-1)
        return Trace(changes if before is None else torch.cat([before.changes, changes]), hidden[-1].clone())


def read_signal(view: View, signal: Signal) -> tuple[Any, ...]:
    """Return one entry per layer; raises ValueError for a signal that is missing in the view."""
    entries: tuple[Any, ...] = view.signals.get(signal, ())
    if len(entries) != view.layers:
        raise ValueError(f"view.signals must contain {signal} with one entry for each of {view.layers} layers")
    return entries


def read_calibration(view: View, name: str, kind: type[Kind]) -> Kind:
    """Return the calibration result of the model under this name; raises ValueError if it is missing."""
    value = view.signals.get(Calibrated(name, kind))
    if not isinstance(value, kind):
        raise ValueError(
            f"view.signals must contain {kind.__name__} that were Calibrated as {name!r}; calibrate the "
            "model under that name"
        )
    return value


def refuse_separate_heads(view: View) -> None:
    """Refuse heads that hold different tokens, for a scoring that has one score per token."""
    positions = view.positions
    if (positions != positions[..., :1, :1, :]).any():
        raise ValueError(
            "heads contain different slots, but this scoring has one score per token; choose the routing Shared"
        )


def lane_matmul(a: Tensor, b: Tensor, axes: int) -> Tensor:
    """Return a @ b, matrices with `axes` leading axes; with one more axis, lane by lane, because the rounding
    of a matrix product may depend on the batch size.
    """
    if a.dim() == axes + 2:
        return a @ b
    return torch.stack([x @ y for x, y in zip(a, b, strict=True)])


def group_mean(values: Tensor, kv_heads: int) -> Tensor:
    """[..., q_head, n] -> [..., kv_head, n], the mean over the query heads of a group."""
    return values.reshape(*values.shape[:-2], kv_heads, -1, values.shape[-1]).mean(-2)


def upcast(tensor: Tensor) -> Tensor:
    """Return the tensor in float32 or better."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
