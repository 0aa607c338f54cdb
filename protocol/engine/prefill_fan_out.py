"""The first eviction: every lane of a problem keeps its slots of the shared prefill."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from policies import (
    Blockwise,
    Cadence,
    Eviction,
    FedSignal,
    Mark,
    Merging,
    Policy,
    Rotation,
    ScoringMemory,
    Signal,
    View,
)
from policies.batched import ignores_seed
from protocol.engine import lane_memory, prefill, sampling
from protocol.engine.lane_memory import Memory
from protocol.engine.native.network import NativeNetwork
from protocol.engine.own_parts import copy_view, refuse_hidden_state
from protocol.engine.prefill import Prefilled
from protocol.engine.rotation import rotation_of
from protocol.engine.run_types import Lane, LaneFailure, Model, Request
from protocol.engine.sliding_windows import Window
from protocol.engine.slots import CachedSlots
from protocol.layers.layer_kinds import evictable
from protocol.presses.pressed import LanePrefill, Pressed


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
    masks: Sequence[Tensor]
    counts: Tensor
    memory: Memory | None
    granted: int
    lane_prefill: LanePrefill | None = None
    merging: Merging | None = None
    stored: Sequence[CachedSlots] | None = None
    parked: Sequence[Tensor] = ()
    windows: Sequence[Window] | None = None


class FedContext(NamedTuple):
    """A context that was fed, for the next request as well if that has the same one.

    inputs: all that `fed` depends on, with the network. press_runs: what presses leave of it.
    """

    inputs: tuple[Any, ...]
    fed: Prefilled
    press_runs: PressRuns


class ForkedRequest(NamedTuple):
    """A prefilled problem. Its keys and values are freed when the last of its lanes is admitted, or the last of the
    next problem with the same context, which gets `fed_context`.

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
    fed_context: FedContext | None = None


def fork_lanes(
    model: Model,
    request: Request,
    chunk: int | None,
    *,
    native: NativeNetwork | None = None,
    previous: FedContext | None = None,
) -> ForkedRequest:
    """Feed the context once for all lanes, and once more for each press, or not at all if `previous` is the same.

    Lanes that differ only in their seeds share the first eviction, unless their policy draws random numbers.
    A ValueError of a policy fails its lane. Non-finite values fail all lanes: otherwise a policy that drops
    the slot would answer where another fails. Lanes that `reads_in_blocks` are left to
    `blockwise.fork_lanes`. native: as in `prefill.feed`. previous: of a request of the same run.
    """
    start = perf_counter()
    context = request.prompt.context
    lanes = {index: lane for index, lane in enumerate(request.lanes) if not reads_in_blocks(lane, len(context))}
    signals = dict.fromkeys(signal for lane in lanes.values() for signal in lane.policy.needs)
    recent = max((lane_memory.n_recent_queries(lane.policy) for lane in lanes.values()), default=0)
    prompt = request.prompt.prompt_tokens
    # How long the prompt is matters to signals of fed tokens alone, if none of the context belongs to the answer.
    reads_length = prompt < len(context) or any(isinstance(signal, FedSignal) for signal in signals)
    inputs = (context, frozenset(signals), recent, prompt if reads_length else None)
    if previous is None or previous.inputs != inputs:
        fed = prefill.feed(model, context, signals, chunk=chunk, recent=recent, prompt=prompt, native=native)
        previous = FedContext(inputs, fed, PressRuns(model, context))
    fed, press_runs = previous.fed, previous.press_runs
    token_ids = torch.tensor(context, device=model.network.device)
    waiting: deque[Fork] = deque()
    failures: dict[int, LaneFailure] = {}
    if reason := explain_non_finite(fed):
        failures = dict.fromkeys(range(len(request.lanes)), LaneFailure(reason))
    rotation = rotation_of(model.network)
    first_forks: dict[tuple[Policy, int | None], Fork] = {}
    stacked: dict[Signal, Any] = {}
    for index, lane in lanes.items() if not failures else ():
        if isinstance(lane.policy, Pressed):
            try:
                budget = granted_budget(lane.policy.cadence, lane.budget or 0, 0)
                lane_prefill = press_runs.run_press(lane.policy, budget, request.problem, lane.seed)
            except ValueError as refusal:
                failures[index] = lane_failure(refusal)
                continue
            waiting.append(
                Fork(index, lane, lane_prefill.full_masks(), lane_prefill.counts(), None, budget, lane_prefill)
            )
            continue
        seedless = ignores_seed(lane.policy)
        if seedless and (equal_fork := first_forks.get((lane.policy, lane.budget))):
            memory = None if equal_fork.memory is None else equal_fork.memory.copy()
            waiting.append(equal_fork._replace(number=index, lane=lane, memory=memory))
            continue
        measured = {signal: fed.signals[signal] for signal in lane.policy.needs & fed.signals.keys()}
        view = build_view(model, request, lane, token_ids, measured, len(fed.keys[0]), rotation)
        try:
            # A policy that never evicts may keep the whole context.
            budget = len(context) if lane.budget is None else granted_budget(lane.policy.cadence, lane.budget, 0)
            event = run_policy(lane.policy, view, budget)
            new_memory = None
            if lane.policy.cadence.interval is not None:
                new_memory = lane_memory.begin_memory(
                    lane.policy,
                    fed.states,
                    stacked,
                    fed.recent,
                    event,
                    len(context),
                    fed.scale,
                    prompt,
                    rotation,
                    fed.sinks,
                )
        except ValueError as refusal:
            failures[index] = lane_failure(refusal)
            continue
        counts = event.retained.sum(-1).cpu()
        waiting.append(Fork(index, lane, tuple(event.retained), counts, new_memory, budget, merging=event.merging))
        if seedless:
            first_forks[lane.policy, lane.budget] = waiting[-1]
    seconds = perf_counter() - start
    return ForkedRequest(request, fed.keys, fed.values, fed.logits, waiting, failures, seconds, fed.windows, previous)


def granted_budget(cadence: Cadence, budget: int, step: int) -> int:
    """Return the slots per KV head and layer that remain after an eviction when `step` new tokens have been fed.

    A schedule declares the budgets of its rounds, whose mean is at most the registered budget, and grants
    them in order. Raises ValueError if it declares more or grants another number, since the lane would then
    store slots that were not registered.
    """
    rounds = cadence.budgets(budget)
    if not rounds or min(rounds) < 1 or sum(rounds) > budget * len(rounds):
        raise ValueError(
            f"{type(cadence).__name__} declares {list(rounds)} slots for its rounds, but the registered "
            f"budget is {budget}; write at least 1 for each round, with a mean of at most the budget"
        )
    round_index = 0 if cadence.interval is None else min(step // cadence.interval, len(rounds) - 1)
    grant = cadence.budget(budget, step)
    if grant != rounds[round_index]:
        raise ValueError(
            f"{type(cadence).__name__} grants {grant} slots at step {step}, but declares "
            f"{rounds[round_index]} there (the registered budget is {budget})"
        )
    return grant


def reads_in_blocks(lane: Lane, context: int) -> bool:
    """Return whether a lane reads a context of this length alone, in blocks with evictions between them."""
    cadence = lane.policy.cadence
    if not isinstance(cadence, Blockwise) or lane.budget is None:
        return False
    return cadence.needs_own_prefill(context, cadence.budget(lane.budget, 0))


class PressRuns:
    """The results of presses on one context; a press without randomness runs once for all problems and seeds."""

    def __init__(self, model: Model, context: Sequence[int]) -> None:
        self.model = model
        self.context = context
        self.results: dict[tuple[int, int, tuple[str, int] | None], LanePrefill] = {}

    def run_press(self, press: Pressed, budget: int, problem: str, seed: int) -> LanePrefill:
        """Return the result of a press. Raises ValueError if it refuses the context or leaves non-finite values."""
        for cache_key in ((id(press), budget, None), (id(press), budget, (problem, seed))):
            if cache_key in self.results:
                return self.results[cache_key]
        key = sampling.derive_key("view", problem, seed, bits=64)
        result = press.prefill(self.model.network, self.context, budget, key)
        if reason := explain_non_finite(result, "in the slots that its press leaves"):
            raise ValueError(reason)
        self.results[id(press), budget, (problem, seed) if result.used_rng else None] = result
        return result


def explain_non_finite(fed: Prefilled | LanePrefill, where: str = "in the prompt that all lanes share") -> str:
    """Return why no lane can start from this prefill; empty if they can."""
    if not sampling.is_usable(fed.logits):
        return f"{sampling.NON_FINITE_LOGITS} at decode step 0, {where}"
    for layer, stored in enumerate(zip(fed.keys, fed.values, strict=True)):
        if not all(tensor.isfinite().all() for tensor in stored):
            return f"keys and values: not finite in layer {layer}, {where}"
    for layer, window in enumerate(fed.windows if isinstance(fed, Prefilled) else ()):
        if not all(tensor.isfinite().all() for tensor in window):
            return f"keys and values: not finite in the window of sliding layer {layer}, {where}"
    return ""


def build_view(
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
    remembered: ScoringMemory | None = None,
    routed: Any = None,
    weights: Tensor | None = None,
) -> View:
    """Build the view of a lane's policy at the eviction of `step`. token_ids: all tokens fed."""
    stream = ("view", request.problem, lane.seed) + ((step,) if step else ())
    prompt = min(len(token_ids), request.prompt.prompt_tokens)
    view = View(
        token_ids=token_ids,
        layers=evictable(model.network.config),
        kv_heads=heads,
        sentence_ends=model.sentence_ends,
        seed=sampling.derive_key(*stream, bits=64),
        signals={**measured, **{signal: model.statistics[signal.name] for signal in lane.policy.calibrated}},
        stored=stored,
        memory=remembered,
        prompt=prompt,
        routing_state=routed,
        rotation=rotation,
        lines={mark: marked_positions(model, token_ids, prompt, mark) for mark in lane.policy.marks},
        weights=weights,
    )
    return copy_view(lane.policy, view)


def marked_positions(model: Model, token_ids: Tensor, prompt: int, mark: Mark) -> tuple[range, ...]:
    """Return positions of the marked stretches of the answer; marks in the prompt do not count."""
    answer = token_ids[prompt:].tolist()
    spans = model.lines(answer, mark) if answer else ()
    return tuple(range(prompt + line.start, prompt + line.stop) for line in spans)


def run_policy(policy: Policy, view: View, budget: int) -> Eviction:
    """Return the event of a policy. Raises ValueError for any exception of the policy, which may be
    third-party code, so that one lane does not end the others; memory errors are passed on.
    """
    try:
        event = policy.evict(view, budget)
        refuse_hidden_state(policy, event)
        return event
    except (ValueError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as broken:
        raise ValueError(f"{type(broken).__name__}: {broken}") from broken


def lane_failure(refusal: ValueError) -> LaneFailure:
    return LaneFailure(" ".join(str(refusal).split()))
