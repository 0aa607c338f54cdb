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
from policies.epicache import EpisodeScoring, Episodic
from protocol.engine import prefill_fan_out, sampling
from protocol.engine.batch import Batch
from protocol.engine.batch_rows import BatchRow, cached_layers
from protocol.engine.eviction import DueEviction
from protocol.engine.native.network import NativeNetwork
from protocol.engine.prefill_fan_out import FedContext, Fork, ForkedRequest
from protocol.engine.run_types import Lane, LaneFailure, Model, Outcome, Prompt, Request
from protocol.engine.slots import Pool
from protocol.engine.storage_formats import StorageFormat
from protocol.presses.pressed import LanePrefill


def fork_lanes(
    model: Model,
    request: Request,
    chunk: int | None,
    storage_formats: Mapping[State, StorageFormat],
    *,
    native: NativeNetwork | None = None,
    previous: FedContext | None = None,
) -> ForkedRequest:
    """Run `prefill_fan_out.fork_lanes`, then feed the context again for each lane that reads it in blocks."""
    start = perf_counter()
    forked = prefill_fan_out.fork_lanes(model, request, chunk, native=native, previous=previous)
    waiting, failures = list(forked.waiting), dict(forked.failures)
    for number, lane in enumerate(request.lanes):
        if number in failures or not prefill_fan_out.reads_in_blocks(lane, len(request.prompt.context)):
            continue
        result = fork_blockwise_lane(model, request, lane, number, chunk, storage_formats)
        if isinstance(result, LaneFailure):
            failures[number] = result
        else:
            waiting.append(result)
    waiting.sort(key=lambda fork: fork.number)
    return forked._replace(waiting=deque(waiting), failures=failures, seconds=perf_counter() - start)


def fork_blockwise_lane(
    model: Model,
    request: Request,
    lane: Lane,
    number: int,
    chunk: int | None,
    storage_formats: Mapping[State, StorageFormat],
) -> Fork | LaneFailure:
    """Feed the context of one lane block by block, once or once for each episode; return its fork."""
    cadence, prompt = lane.policy.cadence, request.prompt
    assert isinstance(cadence, Blockwise)
    assert lane.budget is not None
    budget = cadence.budget(lane.budget, 0)
    lanes, answering = plan_episodes(model, request, lane, budget)
    first = cadence.initial_tokens(len(prompt.context), budget)
    remainder = prompt.context[first:]
    # A policy treats a block of the prompt like an interval of the answer.
    blocks = Cadence(interval=cadence.block, slack=False)
    readers = tuple(
        block_lane._replace(policy=replace(block_lane.policy, cadence=blocks), budget=budget) for block_lane in lanes
    )
    first_prompt = Prompt(prompt.context[:first], remainder + prompt.query, prompt.written)
    block_lane = Request(request.problem, first_prompt, readers)
    forked = prefill_fan_out.fork_lanes(model, block_lane, chunk)
    if forked.failures:
        return forked.failures[min(forked.failures)]
    forks = []
    for reader, fork in zip(lanes, forked.waiting, strict=True):
        reading = BlockwiseBatch(model, cadence.block, len(remainder), chunk, storage_formats)
        reading.logits = forked.logits
        reading.join(forked, [fork])
        if reading.failures:
            return reading.failures[0]
        forks.append(finish_reading(reading, reader, number))
    parked = [tensor for index, fork in enumerate(forks) if index != answering for tensor in owned_tensors(fork)]
    return forks[answering]._replace(parked=parked)


def plan_episodes(model: Model, request: Request, lane: Lane, budget: int) -> tuple[tuple[Lane, ...], int]:
    """Return the lane variants, one for each cache that it fills, and the index of the one that answers."""
    cadence, scoring, (context, query, _) = lane.policy.cadence, lane.policy.scoring, request.prompt
    if not isinstance(cadence, Episodic):
        return (lane,), 0
    assert isinstance(scoring, EpisodeScoring)
    embed, device = model.network.get_input_embeddings(), model.network.device
    token_ids = torch.tensor(context, device=device)
    question = embed(torch.tensor(query, device=device)) if query else None
    prompts, answering = cadence.plan_episodes(token_ids, embed(token_ids), question, model.sentence_ends)
    if budget >= len(context):
        prompts, answering = (prompts[answering],), 0
    policies = (replace(lane.policy, scoring=scoring.with_prompt(prompt)) for prompt in prompts)
    return tuple(lane._replace(policy=policy) for policy in policies), answering


def finish_reading(reading: BlockwiseBatch, lane: Lane, number: int) -> Fork:
    """Return the fork of a lane that has read its context, and release its row."""
    (row,) = reading.rows
    lengths, stored = row.pool.lengths[:, 0].clone(), cached_layers(row)
    device, slots = stored[0].keys.device, stored[0].keys.shape[1]
    masks = tuple((torch.arange(slots) < lengths[..., None]).to(device))
    lane_prefill = LanePrefill([], [], [None] * len(stored), reading.logits, row.n_fed, used_rng=False)
    memory = None if lane.policy.cadence.interval is None else row.memory
    row.pool.members.clear()  # with the next line breaks the reference cycle between row and pool
    row.pool.indices.clear()
    windows = reading.windows.windows_of(row, row.n_fed)
    return Fork(number, lane, masks, lengths, memory, row.granted[-1], lane_prefill, stored=stored, windows=windows)


def owned_tensors(fork: Fork) -> Iterator[Tensor]:
    """Yield the slots of a fork, each in a tensor of its own, and its windows."""
    assert fork.stored is not None
    for stored, mask in zip(fork.stored, fork.masks, strict=True):
        yield from (part[mask] for part in stored if part is not None)
    yield from (part for window in fork.windows or () for part in window)


def collect_failure(failures: list[LaneFailure], row: BatchRow, result: Outcome | LaneFailure) -> None:
    assert isinstance(result, LaneFailure)
    failures.append(result)


class BlockwiseBatch(Batch):
    """A batch of one lane whose query is the rest of its context, fed in blocks with an eviction after each."""

    def __init__(
        self, model: Model, block: int, rest: int, chunk: int | None, storage_formats: Mapping[State, StorageFormat]
    ) -> None:
        """rest: context tokens after those of the first eviction."""
        self.failures: list[LaneFailure] = []
        # Not a method: a batch that references itself would free its slots too late.
        super().__init__(
            model, block, 0.0, 1.0, 0, frozenset(), storage_formats, partial(collect_failure, self.failures)
        )
        self.block = block
        self.rest = rest
        self.chunk = min(block, chunk or block)
        self.is_block_end = False
        self.logits = torch.empty(0)

    def room(self, lane: Lane, counts: Tensor, query: int = 0, wait: int = 0) -> int:
        return self.block

    def feed(self, spans: Sequence[tuple[Pool[BatchRow], int, int]], token_ids: Tensor) -> list[int]:
        """Feed the rest of the context. spans, token_ids: those of the single lane."""
        tokens, chosen = token_ids[:, : self.rest], list[int]()
        for start in range(0, self.rest, self.block):
            stop = min(start + self.block, self.rest)
            for position in range(start, stop, self.chunk):
                end = min(position + self.chunk, stop)
                self.is_block_end = end == stop
                pools = [(pool, 0, 1) for pool in self.slots.pools.values()]
                chosen = super().feed(pools, tokens[:, position:end])
                if self.failures:
                    return chosen
        return chosen

    def choose_tokens(self, rows: Sequence[BatchRow], logits: Tensor, keys: Tensor | None = None) -> list[int]:
        """Keep the logits: no token is chosen."""
        (self.logits,) = logits
        return [0 if is_usable else sampling.UNUSABLE for is_usable in sampling.is_usable(logits).tolist()]

    def refuse_non_finite(self, rows: Sequence[BatchRow], tokens: Sequence[int]) -> None:
        if sampling.UNUSABLE in tokens:
            reason = f"{sampling.NON_FINITE_LOGITS} at decode step 0, in a block of the lane's own prompt"
            self.remove(dict.fromkeys(rows, LaneFailure(reason)))

    def evict_due(self, rows: Sequence[BatchRow]) -> None:
        """Evict at the end of a block down to the budget, if the cache is larger or the context is complete."""
        for row in rows:
            budget, memory = row.lane.budget, row.memory
            assert budget is not None
            assert memory is not None
            (mean_slots,) = (mean for _, mean in row.pool.mean_slots())
            is_last = row.n_fed == len(row.request.prompt.context) + self.rest
            if self.is_block_end and (mean_slots > budget or is_last):
                self.run_evictions({row: DueEviction(row, memory, budget)})

    def add_tokens(self, rows: Sequence[BatchRow], tokens: Sequence[int]) -> None:
        """Do nothing: the lane goes on in a batch of its own."""
