"""Batched eviction steps: one policy on several lanes at once, with equal numbers of slots in every head.

A test over the catalogue checks that results equal those of each lane alone, bit for bit.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import torch
from torch import Tensor

from policies.calibration import Calibrated
from policies.contract import (
    AttentionSignal,
    Batchable,
    BatchCounts,
    Protection,
    RescoringRouting,
    Signal,
    TextProtection,
    View,
)
from policies.policy import Policy, is_broken
from policies.signal_protocols import CacheSignal


class NotBatchable(Exception):
    """A part violates, or may violate, its contract in a batch of lanes: process each lane separately."""


def is_batchable(part: object) -> bool:
    """Whether the class of a part, or of a signal, itself declares that it is `Batchable`; a subclass has to
    declare it again. Lanes share a batch if their parts are equal, so a part with a field that equality
    ignores, or without a hash, is not batchable.
    """
    if not ("stacks" in vars(type(part)) and isinstance(part, Batchable) and part.stacks):
        return False
    has_uncompared_fields = is_dataclass(part) and not all(field.compare for field in fields(part))
    return not has_uncompared_fields and type(part).__hash__ is not None


def is_batch_measurable(signal: Signal) -> bool:
    """Whether a signal can be measured for a batch of lanes. A state per token, or one that restarts after
    each eviction step, is no tensor with a column for each slot.
    """
    if isinstance(signal, Calibrated):
        return True
    if isinstance(signal, AttentionSignal):
        return is_batchable(signal) and not (signal.afresh or signal.of_tokens)
    return isinstance(signal, CacheSignal) and is_batchable(signal)


def can_batch(policy: Policy) -> bool:
    """Whether lanes of the policy can be batched: it is a Policy and no subclass, does not depend on the
    text, and all its parts are batchable. Its protection need not be: it can be called lane by lane.
    """
    parts = (policy.scoring, policy.routing, policy.selection, policy.state)
    if (
        type(policy) is not Policy
        or not all(map(is_batchable, parts))
        or not all(map(is_batch_measurable, policy.needs))
    ):
        return False
    is_unsupported = policy.exceeds or policy.routing.bounds or policy.state.merges
    reads_text = isinstance(policy.protect, TextProtection) or policy.decoding.mark is not None
    return not (is_unsupported or reads_text or isinstance(policy.routing, RescoringRouting))


def ignores_seed(policy: Policy) -> bool:
    """Whether lanes that differ only in their seeds keep the same slots: no part draws random numbers."""
    return can_batch(policy) and is_batchable(policy.protect)


def select_batch(policy: Policy, view: View, budget: int) -> Tensor:
    """Return the retained slots of `Policy.evict` for a batch of decoding lanes: bool [lane, layer, kv_head, n].

    view: the view of the batch; every head holds n slots, more than the budget. Requires `can_batch(policy)`.
    Raises NotBatchable if some lane might be refused, and for any other error of a part: processed
    separately, each lane raises its own error. Out-of-memory errors are not converted.
    """
    try:
        return select_batch_unchecked(policy, view, budget)
    except (NotBatchable, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise NotBatchable from error


def select_batch_unchecked(policy: Policy, view: View, budget: int) -> Tensor:
    """`select_batch` without converting errors of the parts."""
    batch = view.batch
    if batch is None or budget >= view.slots:
        raise NotBatchable
    view = view._replace(budget=budget)
    filled, lanes = view.filled, len(batch.tokens)
    protected = protected_slots(policy.protect, view, batch, budget)
    scores = policy.scoring.score(view)
    if not (has_lane_axis(scores.slots, lanes) and has_lane_axis(protected, lanes)):
        raise NotBatchable
    if scores.trunks is not None or scores.memory is not None or scores.segments is not None:
        raise NotBatchable
    short, unsound = (protected.sum(-1) > budget).any(), (~scores.slots.isfinite() & filled).any()
    if budget < 1 or bool((short | unsound).item()):
        raise NotBatchable
    routed = policy.routing.route(scores, view.layers, view.kv_heads)
    routed = routed._replace(slots=routed.slots.masked_fill(~filled, -torch.inf))
    counts, carried = policy.routing.allocate(view, routed, protected, budget)
    retained = policy.selection.select(view, routed, protected, counts)
    if not (has_lane_axis(routed.slots, lanes) and has_lane_axis(retained, lanes)):
        raise NotBatchable
    if policy.state.merge(view, routed, protected, retained) is not None or carried is not None:
        raise NotBatchable
    if retained.dtype != torch.bool or retained.shape != (*counts.shape, view.slots) or (counts != budget).any():
        raise NotBatchable
    if is_broken(retained, filled, protected, counts, 0):
        raise NotBatchable
    return retained.expand(len(retained), view.layers, view.kv_heads, -1)


def has_lane_axis(slots: Tensor, lanes: int) -> bool:
    """Whether it is [lane, layer | 1, kv_head | 1, n]; without the lane axis it would be broadcast."""
    return slots.dim() == 4 and len(slots) == lanes


def protected_slots(protect: Protection, view: View, batch: BatchCounts, budget: int) -> Tensor:
    """Return the protected slots [lane, layer | 1, kv_head | 1, n] at an eviction step while decoding."""
    filled = view.filled
    prompt = filled & (view.positions < batch.prompt)
    if is_batchable(protect):
        return protect.slots(filled, budget, decoding=True, prompt=prompt)
    # Expand to all heads, as for a single lane: the protection may depend on the head.
    expanded = (part.expand(-1, view.layers, view.kv_heads, -1) for part in (filled, prompt))
    lanes = zip(*expanded, strict=True)
    return torch.stack(
        [protect.slots(lane_filled, budget, decoding=True, prompt=lane_prompt) for lane_filled, lane_prompt in lanes]
    )
