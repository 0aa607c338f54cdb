"""Several lanes that are asked at once: one policy, one number of slots in every head, one tensor operation.

A law over the catalogue holds what is found here equal, bit for bit, to what each lane finds alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from policies.calibrated import Calibrated
from policies.contract import AttentionSignal, Protection, Rescores, Sees, Signal, Stacks, View
from policies.measured import CacheSignal
from policies.policy import Policy, faulty

__all__ = ["Asunder", "kept", "measurable", "one_for_all_seeds", "stacks", "together"]


class Asunder(Exception):
    """What was found for several lanes breaks a promise of a part, or may: each of them is asked alone."""


def stacks(part: object) -> bool:
    """Whether the very class of a part, or of a signal, says that it `Stacks`: a subclass that overrides what
    it inherits says it again.
    """
    return "stacks" in vars(type(part)) and isinstance(part, Stacks) and bool(part.stacks)


def measurable(signal: Signal) -> bool:
    """Whether it is measured for several lanes at once. A state of tokens, or one that begins afresh after
    each event, is no tensor with a column for each slot.
    """
    if isinstance(signal, Calibrated):
        return True
    if isinstance(signal, AttentionSignal):
        return stacks(signal) and not (signal.afresh or signal.of_tokens)
    return isinstance(signal, CacheSignal) and stacks(signal)


def together(policy: Policy) -> bool:
    """Whether its lanes may be asked together: it is a Policy and no class of its own, looks at no text, and
    every part of it stacks but for its protection, which is asked lane by lane where it does not.
    """
    parts = (policy.scoring, policy.routing, policy.selection, policy.state)
    if type(policy) is not Policy or not all(map(stacks, parts)) or not all(map(measurable, policy.needs)):
        return False
    apart = policy.exceeds or policy.routing.bounds or policy.state.merges
    sees = isinstance(policy.protect, Sees) or policy.decoding.mark is not None
    return not (apart or sees or isinstance(policy.routing, Rescores))


def one_for_all_seeds(policy: Policy) -> bool:
    """Whether lanes that differ in their seeds alone keep the same slots: no part of it draws."""
    return together(policy) and stacks(policy.protect)


def kept(policy: Policy, view: View, budget: int) -> Tensor:
    """bool [lane, layer, kv_head, n]: what `Policy.event` keeps of each of several lanes that decode.

    view: of all of them; every head of theirs holds n slots, more than the budget. The policy is asked
    `together`. Raises Asunder where some lane might be refused, and whatever a part raises: asked alone, each
    lane is refused in the words that are its own.
    """
    several = view.several
    if several is None or budget >= view.slots:
        raise Asunder
    view = view._replace(budget=budget)
    filled = view.filled
    protected = protected_slots(policy.protect, filled, filled & (view.positions < several.prompt), budget)
    scores = policy.scoring.score(view)
    if scores.trunks is not None or scores.memory is not None or scores.segments is not None:
        raise Asunder
    short, unsound = (protected.sum(-1) > budget).any(), (~scores.slots.isfinite() & filled).any()
    if budget < 1 or bool((short | unsound).item()):
        raise Asunder
    routed = policy.routing.route(scores, view.layers, view.kv_heads)
    routed = routed._replace(slots=routed.slots.masked_fill(~filled, -torch.inf))
    counts, carried = policy.routing.allocate(view, routed, protected, budget)
    mask = policy.selection.select(view, routed, protected, counts)
    if policy.state.merge(view, routed, protected, mask) is not None or carried is not None:
        raise Asunder
    if mask.dtype != torch.bool or mask.shape != (*counts.shape, view.slots) or (counts != budget).any():
        raise Asunder
    if faulty(mask, filled, protected, counts, 0):
        raise Asunder
    return mask.expand(len(mask), view.layers, view.kv_heads, -1)


def protected_slots(protect: Protection, filled: Tensor, prompt: Tensor, budget: int) -> Tensor:
    """As `filled` [lane, layer | 1, kv_head | 1, n], at an event while decoding. prompt: as `filled`."""
    if stacks(protect):
        return protect.slots(filled, budget, decoding=True, prompt=prompt)
    each = zip(filled, prompt, strict=True)
    return torch.stack([protect.slots(own, budget, decoding=True, prompt=its) for own, its in each])
