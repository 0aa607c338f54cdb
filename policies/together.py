"""Several lanes that are asked at once: one policy, one number of slots in every head, one tensor operation.

A law over the catalogue holds what is found here equal, bit for bit, to what each lane finds alone.
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
    """What was found for several lanes breaks a promise of a part, or may: each of them is asked alone."""


def stacks(part: object) -> bool:
    """Whether the very class of a part, or of a signal, says that it `Stacks`: a subclass that overrides what
    it inherits says it again. Lanes are taken for alike where their parts are equal, so that one with a field
    that equality passes over, or without a hash, stacks with none.
    """
    if not ("stacks" in vars(type(part)) and isinstance(part, Stacks) and part.stacks):
        return False
    blind = is_dataclass(part) and not all(field.compare for field in fields(part))
    return not blind and type(part).__hash__ is not None


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
    `together`. Raises Asunder where some lane might be refused, and for whatever else a part raises: asked
    alone, each lane is refused in the words that are its own. What the machine lacks is nobody's fault.
    """
    try:
        return found(policy, view, budget)
    except (Asunder, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as broken:
        raise Asunder from broken


def found(policy: Policy, view: View, budget: int) -> Tensor:
    """`kept`, as far as no part is broken."""
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
    """Whether it is [lane, layer | 1, kv_head | 1, n]: what lacks lanes would be spread over all of them."""
    return slots.dim() == 4 and len(slots) == lanes


def protected_slots(protect: Protection, view: View, several: Several, budget: int) -> Tensor:
    """[lane, layer | 1, kv_head | 1, n], at an event while decoding."""
    filled = view.filled
    prompt = filled & (view.positions < several.prompt)
    if stacks(protect):
        return protect.slots(filled, budget, decoding=True, prompt=prompt)
    # Of every head, as it is given them alone: it may tell them apart.
    whole = (part.expand(-1, view.layers, view.kv_heads, -1) for part in (filled, prompt))
    each = zip(*whole, strict=True)
    return torch.stack([protect.slots(own, budget, decoding=True, prompt=its) for own, its in each])
