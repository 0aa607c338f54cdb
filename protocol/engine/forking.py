"""The first eviction: every lane of a problem keeps its slots of the shared prefill."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from policies import Blockwise, Cadence, Event, Mark, Merging, Policy, Remembered, Rotation, Signal, View
from policies.together import one_for_all_seeds
from protocol.engine import lane_memory, prefill, sampling
from protocol.engine.lane_memory import Memory
from protocol.engine.lanes import Lane, LaneFailure, Model, Request
from protocol.engine.prefill import Prefilled
from protocol.engine.rotation import rotation_of
from protocol.engine.slots import Cached
from protocol.engine.windows import Window
from protocol.layers.kinds import evictable
from protocol.presses.pressed import Given, Pressed


class Fork(NamedTuple):
    """A lane that waits for a place in the batch.

    number: index among the lanes of its request. masks: one for each layer, bool [kv_head, n]; counts: their
    sums, [layer, kv_head] on the CPU. granted: budget of the first eviction, per KV head and layer.
    lane_prefill: slots of this lane alone, all kept; otherwise the slots are those of the shared prefill.
    merging: which slots are merged into the kept ones. stored: the slots of this lane in their storage
    format, if they are already encoded. parked: tensors of other caches that the lane holds besides its
    slots. windows: those of this lane if it read the context alone; otherwise those of the prefill.
    """

    number: int
    lane: Lane
    kept: Sequence[Tensor]
    counts: Tensor
    memory: Memory | None
    granted: int
    given: Given | None = None
    merging: Merging | None = None
    stored: Sequence[Cached] | None = None
    parked: Sequence[Tensor] = ()
    windows: Sequence[Window] | None = None


class Forked(NamedTuple):
    """A prefilled problem. Its keys and values are freed when the last of its lanes is admitted.

    keys, values: one tensor for each layer, [kv_head, n, d]. logits: [vocabulary] after the last context
    token. windows: one for each sliding layer. failures: by index of the lane.
    """

    request: Request
    keys: list[Tensor]
    values: list[Tensor]
    logits: Tensor
    waiting: deque[Fork]
    failures: dict[int, LaneFailure]
    seconds: float
    windows: Sequence[Window] = ()


def fork(model: Model, request: Request, chunk: int | None) -> Forked:
    """Feed the context once for all lanes, and once more for each press.

    Lanes that differ only in their seeds share the first eviction, unless their policy draws random numbers.
    A ValueError of a policy fails its lane. Non-finite values fail all lanes: otherwise a policy that drops
    the slot would answer where another fails. Lanes that `reads_in_blocks` are left to
    `blockwise.fork_lanes`.
    """
    start = perf_counter()
    context = request.prompt.context
    lanes = {index: lane for index, lane in enumerate(request.lanes) if not in_blocks(lane, len(context))}
    signals = dict.fromkeys(signal for lane in lanes.values() for signal in lane.policy.needs)
    recent = max((lane_memory.queries_kept(lane.policy) for lane in lanes.values()), default=0)
    prompt = request.prompt.asked
    fed = prefill.feed(model, context, signals, chunk=chunk, recent=recent, prompt=prompt)
    token_ids = torch.tensor(context, device=model.network.device)
    waiting: deque[Fork] = deque()
    failures: dict[int, LaneFailure] = {}
    if reason := not_finite(fed):
        failures = dict.fromkeys(range(len(request.lanes)), LaneFailure(reason))
    pressed, rotation = Pressings(model, request), rotation_of(model.network)
    begun: dict[tuple[Policy, int | None], Fork] = {}
    for index, lane in lanes.items() if not failures else ():
        if isinstance(lane.policy, Pressed):
            try:
                budget = granted(lane.policy.cadence, lane.budget or 0, 0)
                given = pressed.given(lane.policy, budget, lane.seed)
            except ValueError as refusal:
                failures[index] = failure(refusal)
                continue
            waiting.append(Fork(index, lane, given.whole(), given.counts(), None, budget, given))
            continue
        seedless = one_for_all_seeds(lane.policy)
        if seedless and (before := begun.get((lane.policy, lane.budget))):
            memory = None if before.memory is None else before.memory.again()
            waiting.append(before._replace(number=index, lane=lane, memory=memory))
            continue
        measured = {signal: fed.signals[signal] for signal in lane.policy.needs & fed.signals.keys()}
        view = view_of(model, request, lane, token_ids, measured, len(fed.keys[0]), rotation)
        try:
            # A policy that never evicts may keep the whole context.
            budget = len(context) if lane.budget is None else granted(lane.policy.cadence, lane.budget, 0)
            event = compressed(lane.policy, view, budget)
            carried = None
            if lane.policy.cadence.interval is not None:
                carried = lane_memory.begin(
                    lane.policy,
                    fed.states,
                    fed.recent,
                    event,
                    len(context),
                    fed.scale,
                    prompt,
                    rotation,
                    fed.sinks,
                )
        except ValueError as refusal:
            failures[index] = failure(refusal)
            continue
        counts = event.kept.sum(-1).cpu()
        waiting.append(Fork(index, lane, tuple(event.kept), counts, carried, budget, merging=event.merging))
        if seedless:
            begun[lane.policy, lane.budget] = waiting[-1]
    seconds = perf_counter() - start
    return Forked(request, fed.keys, fed.values, fed.logits, waiting, failures, seconds, fed.windows)


def granted(cadence: Cadence, budget: int, step: int) -> int:
    """Return the slots per KV head and layer that remain after an eviction when `step` new tokens have been
    fed.

    A schedule declares the budgets of its rounds, whose mean is at most the registered budget, and grants
    them in order. Raises ValueError if it declares more or grants another number, since the lane would then
    store slots that were not registered.
    """
    rounds = cadence.budgets(budget)
    if not rounds or min(rounds) < 1 or sum(rounds) > budget * len(rounds):
        raise ValueError(
            f"{type(cadence).__name__} declares {list(rounds)} slots for its rounds, where {budget} are "
            "registered: each is at least 1, and their mean at most that"
        )
    place = 0 if cadence.interval is None else min(step // cadence.interval, len(rounds) - 1)
    found = cadence.budget(budget, step)
    if found != rounds[place]:
        raise ValueError(
            f"{type(cadence).__name__} grants {found} slots at step {step}, where it declares "
            f"{rounds[place]} of the registered {budget}"
        )
    return found


def in_blocks(lane: Lane, context: int) -> bool:
    """Return whether a lane reads a context of this length alone, in blocks with evictions between them."""
    cadence = lane.policy.cadence
    if not isinstance(cadence, Blockwise) or lane.budget is None:
        return False
    return cadence.apart(context, cadence.budget(lane.budget, 0))


class Pressings:
    """The results of presses on one context; a press without randomness runs once for all seeds."""

    def __init__(self, model: Model, request: Request) -> None:
        self.model = model
        self.request = request
        self.left: dict[tuple[int, int, int | None], Given] = {}

    def given(self, press: Pressed, budget: int, seed: int) -> Given:
        """Return the result of a press. Raises ValueError if it refuses the context or leaves non-finite
        values.
        """
        for place in ((id(press), budget, None), (id(press), budget, seed)):
            if place in self.left:
                return self.left[place]
        key = sampling.key("view", self.request.problem, seed, bits=64)
        given = press.left(self.model.network, self.request.prompt.context, budget, key)
        if reason := not_finite(given, "in what its press leaves"):
            raise ValueError(reason)
        self.left[id(press), budget, seed if given.drew else None] = given
        return given


def not_finite(fed: Prefilled | Given, where: str = "in the prompt that all lanes share") -> str:
    """Return why no lane can start from this prefill; empty if they can."""
    if not sampling.usable(fed.logits):
        return f"{sampling.UNUSABLE} at decode step 0, {where}"
    for layer, stored in enumerate(zip(fed.keys, fed.values, strict=True)):
        if not all(tensor.isfinite().all() for tensor in stored):
            return f"keys and values: not finite in layer {layer}, {where}"
    for layer, window in enumerate(fed.windows if isinstance(fed, Prefilled) else ()):
        if not all(tensor.isfinite().all() for tensor in window):
            return f"keys and values: not finite in the window of sliding layer {layer}, {where}"
    return ""


def view_of(
    model: Model,
    request: Request,
    lane: Lane,
    token_ids: Tensor,
    measured: Mapping[Signal, Any],
    heads: int,
    rotation: Rotation | None,
    *,
    step: int = 0,
    stored: Tensor | None = None,
    remembered: Remembered | None = None,
    routed: Any = None,
    weights: Tensor | None = None,
) -> View:
    """Build the view of a lane's policy at the eviction of `step`. token_ids: all tokens fed."""
    stream = ("view", request.problem, lane.seed) + ((step,) if step else ())
    prompt = min(len(token_ids), request.prompt.asked)
    return View(
        token_ids=token_ids,
        layers=evictable(model.network.config),
        kv_heads=heads,
        sentence_ends=model.sentence_ends,
        seed=sampling.key(*stream, bits=64),
        signals={**measured, **{signal: model.statistics[signal.name] for signal in lane.policy.calibrated}},
        stored=stored,
        memory=remembered,
        prompt=prompt,
        routed=routed,
        rotation=rotation,
        lines={mark: marked(model, token_ids, prompt, mark) for mark in lane.policy.marks},
        weights=weights,
    )


def marked(model: Model, token_ids: Tensor, prompt: int, mark: Mark) -> tuple[range, ...]:
    """Return positions of the marked stretches of the answer; marks in the prompt do not count."""
    answer = token_ids[prompt:].tolist()
    found = model.lines(answer, mark) if answer else ()
    return tuple(range(prompt + line.start, prompt + line.stop) for line in found)


def compressed(policy: Policy, view: View, budget: int) -> Event:
    """Return the event of a policy. Raises ValueError for any exception of the policy, which may be
    third-party code, so that one lane does not end the others; memory errors are passed on.
    """
    try:
        return policy.event(view, budget)
    except (ValueError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as broken:
        raise ValueError(f"{type(broken).__name__}: {broken}") from broken


def failure(refusal: ValueError) -> LaneFailure:
    return LaneFailure(" ".join(str(refusal).split()))
