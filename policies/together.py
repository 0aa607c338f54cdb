"""Batched eviction steps: one policy on several lanes at once, with equal numbers of slots in every head.

A test over the catalogue checks that results equal those of each lane alone, bit for bit.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import torch
from torch import Tensor

from policies.calibrated import Calibrated
from policies.contract import AttentionSignal, Protection, Rescores, Sees, Several, Signal, Stacks, View
from policies.measured import CacheSignal
from policies.policy import Policy, faulty

__all__ = ["Asunder", "kept", "measurable", "one_for_all_seeds", "stacks", "together"]


class Asunder(Exception):
    """A part violates, or may violate, its contract in a batch of lanes: process each lane separately."""


def stacks(part: object) -> bool:
    """Whether the class of a part, or of a signal, itself declares that it is `Batchable`; a subclass has to
    declare it again. Lanes share a batch if their parts are equal, so a part with a field that equality
    ignores, or without a hash, is not batchable.
    """
    if not ("stacks" in vars(type(part)) and isinstance(part, Stacks) and part.stacks):
        return False
    blind = is_dataclass(part) and not all(field.compare for field in fields(part))
    return not blind and type(part).__hash__ is not None


def measurable(signal: Signal) -> bool:
    """Whether a signal can be measured for a batch of lanes. A state per token, or one that restarts after
    each eviction step, is no tensor with a column for each slot.
    """
    if isinstance(signal, Calibrated):
        return True
    if isinstance(signal, AttentionSignal):
        return stacks(signal) and not (signal.afresh or signal.of_tokens)
    return isinstance(signal, CacheSignal) and stacks(signal)


def together(policy: Policy) -> bool:
    """Whether lanes of the policy can be batched: it is a Policy and no subclass, does not depend on the
    text, and all its parts are batchable. Its protection need not be: it can be called lane by lane.
    """
    parts = (policy.scoring, policy.routing, policy.selection, policy.state)
    if type(policy) is not Policy or not all(map(stacks, parts)) or not all(map(measurable, policy.needs)):
        return False
    apart = policy.exceeds or policy.routing.bounds or policy.state.merges
    sees = isinstance(policy.protect, Sees) or policy.decoding.mark is not None
    return not (apart or sees or isinstance(policy.routing, Rescores))


def one_for_all_seeds(policy: Policy) -> bool:
    """Whether lanes that differ only in their seeds keep the same slots: no part draws random numbers."""
    return together(policy) and stacks(policy.protect)


def kept(policy: Policy, view: View, budget: int) -> Tensor:
    """Return the retained slots of `Policy.evict` for a batch of decoding lanes: bool [lane, layer, kv_head,
    n].

    view: the view of the batch; every head holds n slots, more than the budget. Requires `can_batch(policy)`.
    Raises NotBatchable if some lane might be refused, and for any other error of a part: processed
    separately, each lane raises its own error. Out-of-memory errors are not converted.
    """
    try:
        return found(policy, view, budget)
    except (Asunder, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as broken:
        raise Asunder from broken


def found(policy: Policy, view: View, budget: int) -> Tensor:
    """`select_batch` without converting errors of the parts."""
    several = view.several
    if several is None or budget >= view.slots:
        raise Asunder
    view = view._replace(budget=budget)
    filled, lanes = view.filled, len(several.seen)
    protected = protected_slots(policy.protect, view, several, budget)
    scores = policy.scoring.score(view)
    if not (of_lanes(scores.slots, lanes) and of_lanes(protected, lanes)):
        raise Asunder
    if scores.trunks is not None or scores.memory is not None or scores.segments is not None:
        raise Asunder
    short, unsound = (protected.sum(-1) > budget).any(), (~scores.slots.isfinite() & filled).any()
    if budget < 1 or bool((short | unsound).item()):
        raise Asunder
    routed = policy.routing.route(scores, view.layers, view.kv_heads)
    routed = routed._replace(slots=routed.slots.masked_fill(~filled, -torch.inf))
    counts, carried = policy.routing.allocate(view, routed, protected, budget)
    mask = policy.selection.select(view, routed, protected, counts)
    if not (of_lanes(routed.slots, lanes) and of_lanes(mask, lanes)):
        raise Asunder
    if policy.state.merge(view, routed, protected, mask) is not None or carried is not None:
        raise Asunder
    if mask.dtype != torch.bool or mask.shape != (*counts.shape, view.slots) or (counts != budget).any():
        raise Asunder
    if faulty(mask, filled, protected, counts, 0):
        raise Asunder
    return mask.expand(len(mask), view.layers, view.kv_heads, -1)


def of_lanes(slots: Tensor, lanes: int) -> bool:
    """Whether it is [lane, layer | 1, kv_head | 1, n]; without the lane axis it would be broadcast."""
    return slots.dim() == 4 and len(slots) == lanes


def protected_slots(protect: Protection, view: View, several: Several, budget: int) -> Tensor:
    """Return the protected slots [lane, layer | 1, kv_head | 1, n] at an eviction step while decoding."""
    filled = view.filled
    prompt = filled & (view.positions < several.prompt)
    if stacks(protect):
        return protect.slots(filled, budget, decoding=True, prompt=prompt)
    # Expand to all heads, as for a single lane: the protection may depend on the head.
    whole = (part.expand(-1, view.layers, view.kv_heads, -1) for part in (filled, prompt))
    each = zip(*whole, strict=True)
    return torch.stack([protect.slots(own, budget, decoding=True, prompt=its) for own, its in each])
