"""A policy: six small values and what it protects."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from policies.cadence import Cadence, Fires
from policies.calibration import Calibrated
from policies.contract import (
    AttentionSignal,
    BudgetError,
    Decoding,
    FedSignal,
    HiddenSignal,
    LayerBands,
    Mark,
    Merging,
    Protection,
    RescoringRouting,
    Routing,
    Scores,
    Scoring,
    ScoringMemory,
    Selection,
    Signal,
    State,
    TextProtection,
    UnitScoring,
    UnitSelection,
    View,
)
from policies.decoding import Plain
from policies.protect import Pinned, PinnedSeen, Protect, protected_slots
from policies.routing import Shared
from policies.selection import TopK
from policies.signal_protocols import Additive
from policies.state import CompressedState, RecentState, Verbatim


class Promises(NamedTuple):
    """What the parts of a policy promise of its eviction steps: the lock has it by arm, and evidence is held to it."""

    fires: Fires
    """As `Cadence.fires`."""
    interval: int | None
    """Decode steps between eviction steps; None for none while decoding."""
    grants_budget: bool
    """As `Cadence.grants_budget`."""
    leaves_at_most: bool
    """Whether an eviction step leaves no more slots than it is granted."""
    leaves_exactly: bool
    "Whether it leaves exactly the slots that it is granted, if the cache has more."
    may_leave_less: bool
    "Whether it may leave fewer slots than it is granted even if the cache has no more."
    parked_caches: int
    """As `Cadence.parked_caches`."""
    stores_as_computed: bool
    """Whether a slot takes the bytes of the key and value that the model computes."""
    is_press: bool = False
    "Whether a press of kvpress decides which slots it leaves."


class Eviction(NamedTuple):
    """The result of one eviction step."""

    retained: Tensor
    """bool [layer, kv_head, n], not a view of other memory."""
    memory: ScoringMemory | None
    """The memory of the scoring for the retained slots."""
    routing_state: Any = None
    """The state of the routing for the next eviction step."""
    merging: Merging | None = None
    """Which slots are merged into the retained ones; None if all others are dropped."""


@dataclass(frozen=True)
class Policy:
    """The five intervention surfaces on a KV cache, and the protected set.

    Scoring (with the selection that reads its scores), routing, cadence, state and decoding: Figure 1 of
    Sun and Harn, "Minimal-Intervention KV Retention via Set-Conditioned Diversity". An ablation differs
    from its parent in exactly one component.
    """

    scoring: Scoring
    selection: Selection = field(default_factory=TopK)
    routing: Routing = field(default_factory=Shared)
    cadence: Cadence = field(default_factory=Cadence)
    state: State = field(default_factory=Verbatim)
    decoding: Decoding = field(default_factory=Plain)
    protect: Protection = field(default_factory=Protect)

    def __post_init__(self) -> None:
        if self.state.merges:
            refuse_unmergeable(self)

    @property
    def evicts(self) -> bool:
        return self.cadence.at_prefill

    @property
    def is_full(self) -> bool:
        """Whether it is the full cache: it never evicts, and every step reads all slots as the model computed them."""
        return not self.evicts and type(self.state) is Verbatim

    @property
    def needs(self) -> frozenset[Signal]:
        """What the engine must measure before `keep` is called."""
        if not self.evicts:
            return self.state.needs
        routed = self.routing.needs if isinstance(self.routing, RescoringRouting) else frozenset()
        return self.scoring.needs | self.selection.needs | routed | self.state.needs

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The marks that it looks for in the answer."""
        if not self.evicts:
            return ()
        parts = (self.decoding, self.protect) if isinstance(self.protect, TextProtection) else (self.decoding,)
        return tuple(dict.fromkeys(part.mark for part in parts if part.mark is not None))

    @property
    def calibrated(self) -> tuple[Calibrated, ...]:
        """The statistics of the model that it reads, by name."""
        wanted = (signal for signal in self.needs if isinstance(signal, Calibrated))
        return tuple(sorted(wanted, key=lambda signal: signal.name))

    @property
    def prefill_only_signals(self) -> tuple[Signal, ...]:
        """The signals that cannot be measured while decoding; with one, no event can fire there."""
        return tuple(signal for signal in self.needs if isinstance(signal, AttentionSignal) and not signal.carried)

    @property
    def exceeds(self) -> bool:
        """Whether an eviction step may exceed its budget if the protected slots do not fit into it."""
        return isinstance(self.selection, UnitSelection) and self.selection.exceeds

    @property
    def promises(self) -> Promises:
        """What evidence about this policy is held to."""
        bounds, exceeds = self.routing.bounds, self.exceeds
        return Promises(
            fires=self.cadence.fires,
            interval=self.cadence.interval,
            grants_budget=self.cadence.grants_budget,
            leaves_at_most=not exceeds,
            leaves_exactly=not (exceeds or bounds or self.selection.unused) and self.state.keeps_counts,
            may_leave_less=bounds,
            parked_caches=self.cadence.parked_caches,
            stores_as_computed=type(self.state).slot_bytes is Verbatim.slot_bytes,
        )

    def reach(self, protected: Tensor) -> int:
        """Return the maximum number of slots that the `protected` ones [n] can force it to keep.

        This is more than their own number if complete units are kept: a unit of `longest` slots that contains
        a protected one ends at most longest - 1 slots away from it.
        """
        if not (isinstance(self.selection, UnitSelection) and isinstance(self.scoring, UnitScoring)):
            return int(protected.sum())
        away = self.scoring.longest - 1
        flags = protected.float()[None]
        return int(functional.max_pool1d(flags, 2 * away + 1, stride=1, padding=away).sum())

    def refuse_depth(self, layers: int) -> None:
        """Raise ValueError if a model of `layers` layers lacks a layer that is read, or if bands overlap."""
        for signal in sorted(self.needs, key=repr):
            if isinstance(signal, HiddenSignal):
                signal.layers_in(layers)
        if self.evicts and isinstance(self.scoring, LayerBands):
            self.scoring.refuse_depth(layers)

    def refuse_width(self, width: int) -> None:
        """Raise ValueError if the state does not fit heads of this width."""
        if isinstance(self.state, CompressedState):
            self.state.refuse_width(width)

    def recent_bytes(self, width: int) -> int:
        """Return the bytes of one head in one layer that its state takes however many slots there are."""
        return self.state.recent_bytes(width) if isinstance(self.state, RecentState) else 0

    def keep(self, view: View, budget: int) -> Tensor:
        """Return the retained slots of `evict`, bool [layer, kv_head, n]."""
        return self.evict(view, budget).retained

    def evict(self, view: View, budget: int) -> Eviction:
        """Select the retained slots, and return them with the memory of the scoring.

        budget: slots per KV head per layer, protected ones included. Retained slots summed over layers and
        heads are layers * kv_heads * budget, minus at most `selection.unused` in each head; with a routing
        that `bounds`, this is an upper bound. A budget of n or more, unless the routing bounds, and a policy
        that never evicts keep everything. A policy that `exceeds` keeps the complete units of protected slots
        even if they are larger than the budget.

        Raises BudgetError for a budget below the protected set, ValueError for a score that is not finite and
        for a part that violates its contract.
        """
        fits = not self.evicts or (budget >= view.slots and not self.routing.bounds)
        carries = self.evicts and self.cadence.interval is not None
        if fits and not carries:
            return Eviction(keep_all(view), None)
        view = view._replace(budget=budget)
        filled = view.filled
        protected = self.protected(view, budget)
        if not fits:
            refuse_below(budget, int(protected.sum(-1).max()), self.protect)
        scores = self.scoring.score(view)
        refuse_non_finite(scores.slots, filled)
        eviction = Eviction(keep_all(view), None, view.routing_state)
        if not fits:
            eviction = self.evict_slots(view, scores, protected, budget)
        if not carries:
            return eviction._replace(routing_state=None)
        return eviction._replace(memory=None if scores.memory is None else scores.memory.retain(eviction.retained))

    def protected(self, view: View, budget: int) -> Tensor:
        """Return the protected and pinned slots, bool [layer | 1, kv_head | 1, n]."""
        base_slots = protected_slots(self.protect, view, budget)
        if self.decoding.mark is None:
            return base_slots
        return base_slots | self.decoding.pins(view, max(0, budget - int(base_slots.sum(-1).max())))

    def evict_slots(self, view: View, scores: Scores, protected: Tensor, budget: int) -> Eviction:
        """Evict some slots; the result does not yet have the memory of the scoring.

        protected [layer | 1, kv_head | 1, n].
        """
        filled = view.filled
        if isinstance(self.routing, RescoringRouting):
            scores = self.routing.rescore(view, scores)
            refuse_non_finite(scores.slots, filled)
        routed = self.routing.route(scores, view.layers, view.kv_heads)
        routed = routed._replace(slots=routed.slots.masked_fill(~filled, -torch.inf))
        allocation = self.routing.allocate(view, routed, protected, budget)
        refuse_overspent(allocation.counts, budget, bounds=self.routing.bounds)
        retained = self.selection.select(view, routed, protected, allocation.counts)
        merging = self.state.merge(view, routed, protected, retained)
        if merging is not None:
            refuse_units(scores)
            retained = merging.retained
        exceeding = max(map(self.reach, protected.flatten(0, 1))) if self.exceeds else 0
        unused = self.selection.unused if merging is None else int(allocation.counts.max())
        refuse_broken(retained, filled, protected, allocation.counts, unused, exceeding)
        retained = retained.expand(view.layers, view.kv_heads, -1).clone()
        if merging is not None:
            merging = Merging(*(tensor.expand(view.layers, view.kv_heads, -1) for tensor in merging))
            refuse_mismerged(merging, filled, merges=self.state.merges)
        return Eviction(retained, None, allocation.routing_state, merging)


def pin_prompt(policy: Policy) -> Policy:
    """Return the policy with a pinned prompt, which is never evicted; budgets below it are refused."""
    if not policy.evicts or isinstance(policy.protect, Pinned):
        return policy
    protect = policy.protect
    return replace(policy, protect=PinnedSeen(protect) if isinstance(protect, TextProtection) else Pinned(protect))


def keep_all(view: View) -> Tensor:
    return view.filled.expand(view.layers, view.kv_heads, -1).clone()


def refuse_below(budget: int, least: int, protect: Protection) -> None:
    if budget < max(1, least):
        raise BudgetError(
            f"budget of {budget} slots is below the {least} protected slots of {protect}; raise the budget "
            f"to at least {max(1, least)} or protect fewer"
        )


def refuse_non_finite(slots: Tensor, filled: Tensor) -> None:
    """Refuse scores that are not [layer | 1, kv_head | 1, n], or not finite: a NaN would rank above every score."""
    if slots.dim() != filled.dim() or slots.shape[-1] != filled.shape[-1]:
        raise ValueError(
            f"scores must have the shape [layer, kv_head, {filled.shape[-1]}], one number for each slot, "
            f"not {list(slots.shape)}"
        )
    is_faulty = ~slots.isfinite() & filled
    if is_faulty.any():
        layer, head, slot = is_faulty.nonzero()[0].tolist()
        score = slots.expand(is_faulty.shape)[layer, head, slot]
        raise ValueError(f"scores must be finite: layer {layer}, head {head}, slot {slot} is {score}")


def refuse_unmergeable(policy: Policy) -> None:
    """Refuse a state that merges slots together with parts that need single tokens or complete units."""
    state = type(policy.state).__name__
    for signal in sorted(policy.needs, key=repr):
        name = type(signal).__name__
        if isinstance(signal, HiddenSignal | FedSignal) or (isinstance(signal, AttentionSignal) and signal.of_tokens):
            raise ValueError(
                f"state: a slot of {state} represents several tokens, but {name} is defined for single "
                "tokens; choose another state, or a scoring of slots"
            )
        sums = isinstance(signal, Additive) and signal.additive
        if isinstance(signal, AttentionSignal) and signal.window is None and not sums:
            raise ValueError(
                f"state: {name} of slots that {state} merges do not add up to that of their mean; choose "
                "another state, or a scoring of the last queries"
            )
    for part in (policy.scoring, policy.selection):
        if isinstance(part, UnitScoring | UnitSelection):
            raise ValueError(
                f"state: {state} merges single slots, but {type(part).__name__} keeps units of several "
                "slots together; choose another state, or TopK with a scoring of slots"
            )


def refuse_units(scores: Scores) -> None:
    """Refuse scores with trunks, memory or segments if slots are merged."""
    for name in ("trunks", "memory", "segments"):
        if getattr(scores, name) is not None:
            raise ValueError(
                f"state: merges slots, but the scores have {name}; choose the state Verbatim, or a scoring of slots"
            )


def refuse_mismerged(merging: Merging, filled: Tensor, *, merges: bool) -> None:
    """Raise ValueError for a merging that violates the contract of `Merging`. All [layer, kv_head, n].

    merges: whether the state declares that slots may represent several tokens.
    """
    retained, targets, shares = merging
    filled = filled.expand(retained.shape)
    slot_index = torch.arange(retained.shape[-1], device=retained.device).expand(retained.shape)
    has_target = targets >= 0
    index = targets.clamp(min=0)
    if (
        (targets >= retained.shape[-1]).any()
        or (has_target & ~retained.gather(-1, index)).any()
        or (has_target & ~filled).any()
    ):
        raise ValueError("state merged a slot into one that is not kept, or that its head does not contain")
    if (retained & (targets != slot_index)).any():
        raise ValueError("state merged a kept slot into another one")
    if not merges and (has_target & ~retained).any():
        raise ValueError("state merged slots although its `merges` is False; set it to True")
    share_sums = torch.zeros_like(shares).scatter_add(-1, index, shares.masked_fill(~has_target, 0))
    if not ((share_sums - 1).abs() < 1e-4)[retained].all() or (shares[has_target] < 0).any():
        raise ValueError("state merged slots by shares that do not sum to 1")


def refuse_overspent(counts: Tensor, budget: int, *, bounds: bool) -> None:
    """Refuse counts [layer, kv_head] whose mean is not the budget. bounds: whether it may be lower."""
    total, expected = int(counts.sum()), budget * counts.numel()
    if total > expected or (total < expected and not bounds):
        side = "above" if bounds else "not"
        raise ValueError(f"routing allocated {counts.tolist()} slots, whose mean is {side} {budget}")


def is_broken(
    retained: Tensor, filled: Tensor, protected: Tensor, allocation: Tensor, unused: int, exceeding: int = 0
) -> bool:
    """Whether `refuse_broken` would refuse a mask of the right shape; needs a single device sync."""
    counts = retained.sum(-1)
    is_miscounted = (counts > allocation.clamp(min=exceeding)) | (counts < allocation - unused)
    return bool((is_miscounted.any() | ((retained & ~filled) | (protected & ~retained)).any()).item())


def refuse_broken(
    retained: Tensor, filled: Tensor, protected: Tensor, allocation: Tensor, unused: int, exceeding: int = 0
) -> None:
    """Check retained, filled and protected [layer, kv_head, n] against the allocation [layer, kv_head].

    exceeding: slots that a head may keep even if its allocation is lower.
    """
    expected = (*allocation.shape, filled.shape[-1])
    if retained.dtype != torch.bool or retained.shape != expected:
        # A mask cannot name a slot twice, out of order or outside the cache.
        raise ValueError(
            f"selection must return a bool mask of shape {list(expected)}, "
            f"not {str(retained.dtype).removeprefix('torch.')} of shape {list(retained.shape)}"
        )
    if not is_broken(retained, filled, protected, allocation, unused, exceeding):
        return
    counts = retained.sum(-1)
    if ((counts > allocation.clamp(min=exceeding)) | (counts < allocation - unused)).any():
        raise ValueError(
            f"selection kept {counts.tolist()} slots, but {allocation.tolist()} were allocated, of which "
            f"it may leave {unused} unused"
        )
    if (retained & ~filled).any():
        raise ValueError("selection kept a slot that its head does not contain")
    if (protected & ~retained).any():
        raise ValueError("selection dropped a protected slot")
