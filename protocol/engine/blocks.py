"""Block-wise prefill: contexts read block by block, with the lane's budget enforced throughout the prompt."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter

import torch
from torch import Tensor

from policies import Blockwise, Cadence, State
from policies.epicache import AsksAbout, Episodic
from protocol.engine import forking, sampling
from protocol.engine.batch import Batch
from protocol.engine.events import Due
from protocol.engine.forking import Fork, Forked
from protocol.engine.forms import Form
from protocol.engine.lanes import Lane, LaneFailure, Model, Outcome, Prompt, Request
from protocol.engine.rows import Row, cached_of
from protocol.engine.slots import Pool
from protocol.presses.pressed import Given

__all__ = ["fork"]


def fork(model: Model, request: Request, chunk: int | None, forms: Mapping[State, Form]) -> Forked:
    """Run `prefill_fan_out.fork_lanes`, then feed the context again for each lane that reads it in blocks."""
    start = perf_counter()
    forked = forking.fork(model, request, chunk)
    waiting, failures = list(forked.waiting), dict(forked.failures)
    for number, lane in enumerate(request.lanes):
        if number in failures or not forking.in_blocks(lane, len(request.prompt.context)):
            continue
        found = read(model, request, lane, number, chunk, forms)
        if isinstance(found, LaneFailure):
            failures[number] = found
        else:
            waiting.append(found)
    waiting.sort(key=lambda fork: fork.number)
    return forked._replace(waiting=deque(waiting), failures=failures, seconds=perf_counter() - start)


def read(
    model: Model, request: Request, lane: Lane, number: int, chunk: int | None, forms: Mapping[State, Form]
) -> Fork | LaneFailure:
    """Feed the context of one lane block by block, once or once for each episode; return its fork."""
    cadence, prompt = lane.policy.cadence, request.prompt
    assert isinstance(cadence, Blockwise)
    assert lane.budget is not None
    budget = cadence.budget(lane.budget, 0)
    lanes, chosen = episodes_of(model, request, lane, budget)
    first = cadence.first(len(prompt.context), budget)
    rest = prompt.context[first:]
    # A policy treats a block of the prompt like an interval of the answer.
    blocks = Cadence(interval=cadence.block, slack=False)
    readers = tuple(own._replace(policy=replace(own.policy, cadence=blocks), budget=budget) for own in lanes)
    fed = Prompt(prompt.context[:first], rest + prompt.query, prompt.written)
    own = Request(request.problem, fed, readers)
    begun = forking.fork(model, own, chunk)
    if begun.failures:
        return begun.failures[min(begun.failures)]
    forks = []
    for reader, fork in zip(lanes, begun.waiting, strict=True):
        reading = Reading(model, cadence.block, len(rest), chunk, forms)
        reading.logits = begun.logits
        reading.join(begun, [fork])
        if reading.failures:
            return reading.failures[0]
        forks.append(held(reading, reader, number))
    parked = [tensor for place, fork in enumerate(forks) if place != chosen for tensor in slots_of(fork)]
    return forks[chosen]._replace(parked=parked)


def episodes_of(model: Model, request: Request, lane: Lane, budget: int) -> tuple[tuple[Lane, ...], int]:
    """Return the lane variants, one for each cache that it fills, and the index of the one that answers."""
    cadence, scoring, (context, query, _) = lane.policy.cadence, lane.policy.scoring, request.prompt
    if not isinstance(cadence, Episodic):
        return (lane,), 0
    assert isinstance(scoring, AsksAbout)
    embed, device = model.network.get_input_embeddings(), model.network.device
    token_ids = torch.tensor(context, device=device)
    question = embed(torch.tensor(query, device=device)) if query else None
    prompts, chosen = cadence.plan(token_ids, embed(token_ids), question, model.sentence_ends)
    if budget >= len(context):
        prompts, chosen = (prompts[chosen],), 0
    policies = (replace(lane.policy, scoring=scoring.about(prompt)) for prompt in prompts)
    return tuple(lane._replace(policy=policy) for policy in policies), chosen


def held(reading: Reading, lane: Lane, number: int) -> Fork:
    """Return the fork of a lane that has read its context, and release its row."""
    (row,) = reading.rows
    lengths, stored = row.pool.lengths[:, 0].clone(), cached_of(row)
    device, slots = stored[0].keys.device, stored[0].keys.shape[1]
    kept = tuple((torch.arange(slots) < lengths[..., None]).to(device))
    given = Given([], [], [None] * len(stored), reading.logits, row.seen, drew=False)
    memory = None if lane.policy.cadence.interval is None else row.memory
    row.pool.members.clear()  # breaks the reference cycle between row and pool
    windows = reading.windows.of(row, row.seen)
    return Fork(number, lane, kept, lengths, memory, row.granted[-1], given, stored=stored, windows=windows)


def slots_of(fork: Fork) -> Iterator[Tensor]:
    """Yield the slots of a fork, each in a tensor of its own, and its windows."""
    assert fork.stored is not None
    for stored, kept in zip(fork.stored, fork.kept, strict=True):
        yield from (part[kept] for part in stored if part is not None)
    yield from (part for window in fork.windows or () for part in window)


def note(failures: list[LaneFailure], row: Row, result: Outcome | LaneFailure) -> None:
    assert isinstance(result, LaneFailure)
    failures.append(result)


class Reading(Batch):
    """A batch of one lane whose query is the rest of its context, fed in blocks with an eviction after each.
    """

    def __init__(
        self, model: Model, block: int, rest: int, chunk: int | None, forms: Mapping[State, Form]
    ) -> None:
        """rest: context tokens after those of the first eviction."""
        self.failures: list[LaneFailure] = []
        # Not a method: a batch that references itself would free its slots too late.
        super().__init__(model, block, 0.0, 1.0, 0, frozenset(), forms, partial(note, self.failures))
        self.block = block
        self.rest = rest
        self.chunk = min(block, chunk or block)
        self.due = False
        self.logits = torch.empty(0)

    def room(self, lane: Lane, counts: Tensor, query: int = 0, wait: int = 0) -> int:
        return self.block

    def feed(self, spans: Sequence[tuple[Pool[Row], int, int]], token_ids: Tensor) -> Tensor:
        """Return logits after the rest of the context. spans, token_ids: those of the single lane."""
        tokens = token_ids[:, : self.rest]
        for start in range(0, self.rest, self.block):
            stop = min(start + self.block, self.rest)
            for at in range(start, stop, self.chunk):
                end = min(at + self.chunk, stop)
                self.due = end == stop
                pools = [(pool, 0, 1) for pool in self.slots.pools.values()]
                self.logits = super().feed(pools, tokens[:, at:end])[0]
                if self.failures:
                    return self.logits[None]
        return self.logits[None]

    def refuse_non_finite(self, rows: Sequence[Row], logits: Tensor) -> None:
        if not sampling.usable(logits).all():
            reason = f"{sampling.UNUSABLE} at decode step 0, in a block of its own prompt"
            self.dismiss(dict.fromkeys(rows, LaneFailure(reason)))

    def fire(self, rows: Sequence[Row]) -> None:
        """Evict at the end of a block down to the budget, if the cache is larger or the context is complete.
        """
        for row in rows:
            budget, memory = row.lane.budget, row.memory
            assert budget is not None
            assert memory is not None
            (held,) = (mean for _, mean in row.pool.means())
            last = row.seen == len(row.request.prompt.context) + self.rest
            if self.due and (held > budget or last):
                self.act({row: Due(row, memory, budget)})

    def accept(self, rows: Sequence[Row], logits: Tensor) -> None:
        """Do nothing: no token is chosen."""
