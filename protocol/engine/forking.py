"""The first event: every lane of a problem keeps its slots of the one prefill."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from policies import Remembered, Signal, View
from protocol.engine import lane_memory, prefill, sampling
from protocol.engine.grants import granted
from protocol.engine.lane_memory import Memory
from protocol.engine.lanes import Lane, LaneFailure, Model, Request
from protocol.engine.prefill import Prefilled


class Fork(NamedTuple):
    """A lane that waits for a place.

    number: among the lanes of its request. kept: bool [layer, kv_head, n]; counts: its sums, on the CPU.
    granted: what its cadence gave the first event, per KV head and layer.
    """

    number: int
    lane: Lane
    kept: Tensor
    counts: Tensor
    memory: Memory | None
    granted: int


class Forked(NamedTuple):
    """A prefilled problem. Its keys and values live until the last of its lanes has a place.

    keys, values: one tensor per layer, [kv_head, n, d]. logits: [vocabulary] after the last context token.
    failures: by index of the lane.
    """

    request: Request
    keys: list[Tensor]
    values: list[Tensor]
    logits: Tensor
    waiting: deque[Fork]
    failures: dict[int, LaneFailure]
    seconds: float


def fork(model: Model, request: Request, chunk: int | None) -> Forked:
    """Feed the context once, whatever the number of lanes. A ValueError of a policy fails its own lane; what
    is not finite fails all of them: a policy that drops the slot would answer where another one fails.
    """
    start = perf_counter()
    context = request.prompt.context
    signals = dict.fromkeys(signal for lane in request.lanes for signal in lane.policy.needs)
    recent = max(lane_memory.queries_kept(lane.policy) for lane in request.lanes)
    query = len(request.prompt.query)
    fed = prefill.feed(model, context, signals, chunk=chunk, recent=recent, query=query)
    token_ids = torch.tensor(context, device=model.network.device)
    waiting: deque[Fork] = deque()
    failures: dict[int, LaneFailure] = {}
    if reason := not_finite(fed):
        failures = dict.fromkeys(range(len(request.lanes)), LaneFailure(reason))
    for index, lane in enumerate(request.lanes if not failures else ()):
        measured = {signal: fed.signals[signal] for signal in lane.policy.needs & fed.signals.keys()}
        view = view_of(model, request, lane, token_ids, measured, len(fed.keys[0]))
        try:
            # All of the context may stay for a policy that never evicts.
            budget = len(context) if lane.budget is None else granted(lane.policy.cadence, lane.budget, 0)
            event = lane.policy.event(view, budget)
            carried = None
            if lane.policy.cadence.interval is not None:
                carried = lane_memory.begin(
                    lane.policy, fed.states, fed.recent, event, len(context), fed.scale, len(context) + query
                )
        except ValueError as refusal:
            failures[index] = failure(refusal)
            continue
        waiting.append(Fork(index, lane, event.kept, event.kept.sum(-1).cpu(), carried, budget))
    seconds = perf_counter() - start
    return Forked(request, fed.keys, fed.values, fed.logits, waiting, failures, seconds)


def not_finite(fed: Prefilled) -> str:
    """Why no lane can begin here; empty where they can."""
    if not sampling.usable(fed.logits):
        return f"{sampling.UNUSABLE} at decode step 0, in the prompt that all lanes share"
    for layer, stored in enumerate(zip(fed.keys, fed.values, strict=True)):
        if not all(tensor.isfinite().all() for tensor in stored):
            return f"keys and values: not finite in layer {layer}, in the prompt that all lanes share"
    return ""


def view_of(
    model: Model,
    request: Request,
    lane: Lane,
    token_ids: Tensor,
    measured: Mapping[Signal, Any],
    heads: int,
    *,
    step: int = 0,
    stored: Tensor | None = None,
    remembered: Remembered | None = None,
    routed: Any = None,
) -> View:
    """What the policy of a lane sees at the event of `step`. token_ids: every token seen."""
    stream = ("view", request.problem, lane.seed) + ((step,) if step else ())
    return View(
        token_ids=token_ids,
        layers=model.network.config.num_hidden_layers,
        kv_heads=heads,
        sentence_ends=model.sentence_ends,
        seed=sampling.key(*stream, bits=64),
        signals={**measured, **{signal: model.statistics[signal.name] for signal in lane.policy.calibrated}},
        stored=stored,
        memory=remembered,
        prompt=min(len(token_ids), len(request.prompt.context) + len(request.prompt.query)),
        routed=routed,
    )


def failure(refusal: ValueError) -> LaneFailure:
    return LaneFailure(" ".join(str(refusal).split()))
