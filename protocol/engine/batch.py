"""The batch: lanes of several problems that decode together, each with its slots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from policies import AttentionRows, State
from protocol.engine import batch_rows, merging, sampling
from protocol.engine.attention.kernels import PADDED, Attention
from protocol.engine.batch_rows import (
    BatchObserver,
    BatchRow,
    RecentQueries,
    build_outcome,
    build_step,
)
from protocol.engine.device_numbers import upload
from protocol.engine.eviction import EvictingBatch
from protocol.engine.forward_step import ForwardStep, Step
from protocol.engine.lane_memory import Memory
from protocol.engine.native.network import NativeNetwork
from protocol.engine.native_step import NativeStep, feed_rows
from protocol.engine.prefill_fan_out import Fork, ForkedRequest
from protocol.engine.run_types import MAX_NATS, Divergence, Lane, LaneFailure, Model, Outcome
from protocol.engine.sampling import Draw
from protocol.engine.slots import CachedSlots, Pool, lane_shapes
from protocol.engine.storage_formats import StorageFormat


class Batch(EvictingBatch):
    """The rows and their slots. `on_done` is called for every lane that leaves. native: the network, packed for the
    native kernel; None for its own forward. follows_full: lanes are fed the tokens of the lane of the full
    cache of their problem and seed, which joins with them.
    """

    def __init__(
        self,
        model: Model,
        max_new_tokens: int,
        temperature: float,
        top_p: float,
        first_event: int,
        marks: frozenset[int],
        storage_formats: Mapping[State, StorageFormat],
        on_done: Callable[[BatchRow, Outcome | LaneFailure], None],
        attention: Attention = PADDED,
        native: NativeNetwork | None = None,
        *,
        follows_full: bool = False,
    ) -> None:
        super().__init__(model, max_new_tokens, first_event, marks, attention)
        self.native = native
        self.follows_full = follows_full
        self.temperature = temperature
        self.top_p = top_p
        self.storage_formats = storage_formats
        self.on_done = on_done
        self.recent_queries: dict[int, RecentQueries] = {}
        self.forwards = 0

    @property
    def rows(self) -> list[BatchRow]:
        """All decoding lanes, in the order of a forward pass."""
        return [row for pool in self.slots.pools.values() for row in pool.members]

    def join(self, forked: ForkedRequest, forks: Sequence[Fork]) -> None:
        """Add lanes of one problem: copy their slots, feed the query, choose the first token."""
        request = forked.request
        newcomers: dict[Pool[BatchRow], list[tuple[BatchRow, Fork]]] = {}
        for fork in forks:
            wait = max(0, self.first_event - 1)
            room = self.room(fork.lane, fork.counts, len(request.prompt.query), wait)
            has_masked = fork.lane_prefill is not None and fork.lane_prefill.has_masked
            storage = self.storage_formats[fork.lane.policy.state]
            sizes = storage.sizes(forked.keys[0])
            shape = lane_shapes(fork.counts, room, masked=has_masked, sizes=sizes)
            pool = self.slots.pool(shape, forked.keys, storage)
            n_fed, now = len(request.prompt.context), perf_counter()
            slots_before, slots_after = n_fed * fork.counts.numel(), int(fork.counts.sum())
            events = [(0, slots_before, slots_after)] if fork.lane.policy.evicts else []
            budgets = [fork.granted] * len(events)
            row = BatchRow(
                request, fork.number, fork.lane, fork.memory, pool, n_fed, self.forwards, now, events, budgets
            )
            row.position_lag = 0 if fork.lane_prefill is None else n_fed - fork.lane_prefill.position
            row.parked = fork.parked
            row.reads = None if storage.quest is None else 0
            row.has_all_tokens = fork.lane_prefill is None and fork.stored is None
            row.count_state()
            windows = forked.windows if fork.windows is None else fork.windows
            tokens = n_fed + len(request.prompt.query) + self.max_new_tokens
            row.window_bytes = self.windows.join(row, windows, n_fed, tokens)
            newcomers.setdefault(pool, []).append((row, fork))
        spans = []
        for pool, additions in newcomers.items():
            indices = pool.admit([row for row, _ in additions])
            for index, (_, fork) in zip(indices, additions, strict=True):
                source = fork.lane_prefill or forked
                hidden = fork.lane_prefill.hidden if fork.lane_prefill else [None] * len(fork.masks)
                for layer, mask in enumerate(fork.masks):
                    if fork.stored is not None:
                        coded = fork.stored[layer]
                    else:
                        computed = CachedSlots(source.keys[layer], source.values[layer])
                        positions = torch.arange(mask.shape[-1], device=mask.device).expand(mask.shape)
                        cached = merging.merge_layer(fork.merging, layer, computed, positions, self.rotation)
                        stored = pool.storage.encode(layer, cached.keys, cached.values)
                        coded = CachedSlots(*stored, cached.weights)
                    pool.fill(index, layer, coded, mask, fork.counts[layer], hidden[layer])
            spans.append((pool, indices.start, indices.stop))
        rows = [row for pool, first, last in spans for row in pool.members[first:last]]
        leaders = {row.lane.seed: row for row in rows if self.follows_full and row.lane.policy.is_full}
        for row in rows:
            row.leader = None if row.lane.policy.is_full else leaders.get(row.lane.seed)
        self.regroup_recent_queries()
        self.record_usage(rows)
        sources = {fork.number: fork.lane_prefill or forked for fork in forks}
        if request.prompt.query:
            chosen = self.feed(spans, torch.tensor(request.prompt.query).expand(len(rows), -1))
        else:
            logits = torch.stack([sources[row.number].logits for row in rows])
            chosen = self.follow_leaders(rows, self.choose_tokens(rows, logits), logits, np.arange(len(rows)))
        self.add_tokens(rows, chosen)

    def regroup_recent_queries(self) -> None:
        """Regroup the buffers of recent queries after lanes joined or left: one buffer for each window width."""
        owners: dict[int, dict[BatchRow, Memory]] = {}
        for row in self.rows:
            if row.memory is not None and row.memory.recent is not None:
                owners.setdefault(row.memory.recent.shape[2], {})[row] = row.memory
        recent_queries = {}
        for width, memories in owners.items():
            like = next(iter(memories.values())).recent
            assert like is not None
            recent_queries[width] = self.recent_queries.get(width) or RecentQueries(like)
            recent_queries[width].assign(memories)
        self.recent_queries = recent_queries

    def step(self) -> None:
        """Feed every lane its last token and choose the next one."""
        spans = [(pool, 0, len(pool.members)) for pool in self.slots.pools.values()]
        rows = self.rows
        self.add_tokens(rows, self.feed(spans, torch.tensor([row.token_ids[-1] for row in rows])[:, None]))

    def feed(self, spans: Sequence[tuple[Pool[BatchRow], int, int]], token_ids: Tensor) -> list[int]:
        """Return the next token of every lane after token_ids [lane, t]; evicts where due and records cache sizes.

        The tokens are read before the evictions, which do not change them: from a device one time for all.
        """
        new, heads = token_ids.shape[1], self.model.network.config.num_attention_heads
        rows = [row for pool, first, last in spans for row in pool.members[first:last]]
        starts = torch.tensor([row.n_fed - row.position_lag for row in rows])
        steps: Sequence[Step[BatchRow]]
        choosing, places, summed = rows, np.arange(len(rows)), dict[BatchRow, BatchRow]()
        if self.native is None:
            steps = eager_steps = [build_step(ForwardStep, *span, new, heads) for span in spans]
            last, hidden, keys = self.feed_network(eager_steps, rows, token_ids, starts)
        else:
            owners, places = batch_rows.find_equal_lanes(rows, is_sampled=self.temperature > 0)
            summed = batch_rows.find_equal_sums(rows, places)
            steps = native_steps = [build_step(NativeStep, *span, new, heads, summed) for span in spans]
            memories = [row.memory for row in rows if row.memory is not None and row.memory.traces]
            layers = sorted({layer for memory in memories for layer in memory.hidden_layers})
            last, hidden = feed_rows(self.native, native_steps, token_ids, starts, layers, owners, places)
            choosing, keys = [rows[owner] for owner in owners.tolist()], None
        self.forwards += 1
        for step in steps:
            step.commit()
        self.update_memories(steps, hidden, rows, summed)
        for row in rows:
            row.n_fed += new
        for step in steps:
            reads = [] if step.reads is None else step.reads.tolist()
            for row, slots in zip(step.pool.members[step.pool_slice] if reads else (), reads, strict=True):
                row.reads = (row.reads or 0) + slots * (row.step > 0)
        chosen = self.choose_tokens(choosing, last, keys)
        tokens = self.follow_leaders(rows, [chosen[place] for place in places.tolist()], last, places)
        self.refuse_non_finite(rows, tokens)
        self.evict_due([row for row in rows if not row.has_left])
        self.record_usage(rows)
        return tokens

    def feed_network(
        self, steps: Sequence[ForwardStep[BatchRow]], rows: Sequence[BatchRow], token_ids: Tensor, starts: Tensor
    ) -> tuple[Tensor, Mapping[int, Tensor], Tensor | None]:
        """Feed token_ids [lane, t] by the network's own forward, the first at the positions `starts` [lane].

        Returns logits [lane, vocabulary] after the last token, the output [lane, t, width] of observed layers, and
        what a device needs to choose the next tokens, which travels with token_ids.
        """
        network, new = self.model.network, token_ids.shape[1]
        observer = BatchObserver(steps, self.windows.build_forward(rows, [row.n_fed for row in rows], new))
        numbers = [token_ids.numpy(), (starts[:, None] + torch.arange(new)).numpy()]
        if network.device.type != "cpu" and self.temperature > 0:
            numbers.append(sampling.noise_keys(draws_of(rows)))
        input_ids, position_ids, *keys = upload(network.device, numbers)
        output = network(
            input_ids=input_ids,
            position_ids=position_ids,
            use_cache=False,
            logits_to_keep=1,
            observer=observer,
        )
        return output.logits[:, -1], observer.hidden, next(iter(keys), None)

    def choose_tokens(self, rows: Sequence[BatchRow], logits: Tensor, keys: Tensor | None = None) -> list[int]:
        """Choose the next token of every lane."""
        return sampling.choose(logits, draws_of(rows), self.temperature, self.top_p, keys, self.native)

    def follow_leaders(
        self, rows: Sequence[BatchRow], tokens: Sequence[int], logits: Tensor, places: NDArray[np.int64]
    ) -> list[int]:
        """Return the next token of every lane, of a follower that of its leader, and note how its own differs.

        tokens: what each lane has chosen itself. logits [place, vocabulary]; places [lane].
        """
        fed, followers = list(tokens), [index for index, row in enumerate(rows) if row.leader is not None]
        if not followers:
            return fed
        indices = {row: index for index, row in enumerate(rows)}
        pairs = [(index, indices[lead]) for index in followers if (lead := rows[index].leader) is not None]
        log_shares = logits.double().log_softmax(-1)
        own, led = (log_shares[places[list(side)]] for side in zip(*pairs, strict=True))
        # A token that the leader never says adds nothing: 0 times infinity.
        terms = (led.exp() * (led - own)).nan_to_num(nan=0.0, posinf=torch.inf)
        stop_ids = self.model.stop_ids
        for (index, leader), nats in zip(pairs, terms.sum(-1).clamp(0, MAX_NATS).tolist(), strict=True):
            token, expected = tokens[index], tokens[leader]
            agrees = token == expected or (token in stop_ids and expected in stop_ids)
            rows[index].divergences.append(Divergence(agrees, nats))
            fed[index] = token if token == sampling.UNUSABLE else expected
        return fed

    def refuse_non_finite(self, rows: Sequence[BatchRow], tokens: Sequence[int]) -> None:
        """Fail lanes without a usable next token, before a policy sees their cache."""
        if sampling.UNUSABLE in tokens:
            faulty = (row for row, token in zip(rows, tokens, strict=True) if token == sampling.UNUSABLE)
            self.remove({row: LaneFailure(f"{sampling.NON_FINITE_LOGITS} at decode step {row.step}") for row in faulty})

    def update_memories(
        self,
        steps: Sequence[Step[BatchRow]],
        hidden: Mapping[int, Tensor],
        rows: Sequence[BatchRow],
        summed: Mapping[BatchRow, BatchRow],
    ) -> None:
        """Fold the observations of a forward pass into the memories of the lanes; attention first, since the others
        measure all of a memory. summed: as `find_equal_sums` returns it.
        """
        for step in steps:
            members = step.pool.members[step.pool_slice]
            for lane, layers, weights, logits in step.watched_attention():
                memory, n_fed = members[lane].memory, members[lane].n_fed
                assert memory is not None
                span, decoded = (n_fed, n_fed + step.new), n_fed >= memory.prompt
                attention = AttentionRows(weights, layers[0], *span, step.pool.heads, decoded, logits)
                memory.add_attention(attention, layers)
        for row, source in summed.items():
            if row.memory is not None and source.memory is not None:
                row.memory.sums.update(source.memory.sums)
        for step in steps:
            members = step.pool.members[step.pool_slice]
            if step.fed_lanes:
                keys, values, queries = step.stack_fed()
                for index, lane in enumerate(step.fed_lanes):
                    memory = members[lane].memory
                    assert memory is not None
                    memory.add_fed(keys[:, index], values[:, index], queries[:, index], members[lane].n_fed)
            if step.query_lanes:
                queries, owners = step.stack_queries(), [members[lane] for lane in step.query_lanes]
                for recent in self.recent_queries.values():
                    recent.add(owners, queries, step.pool.numbers)
        for layer, outputs in hidden.items():
            for row, selected in zip(rows, outputs, strict=True):
                if row.memory is not None and row.memory.traces:
                    row.memory.add_hidden(layer, selected)

    def room(self, lane: Lane, counts: Tensor, query: int = 0, wait: int = 0) -> int:
        """Return the number of slots that each head of a lane may append before its next eviction step, if any.

        query: tokens fed at once before the first new one. wait: steps by which the first eviction may be delayed.
        """
        limit, cadence = query + self.max_new_tokens, lane.policy.cadence
        if cadence.interval is None or lane.budget is None:
            return limit
        free = max(0, cadence.largest_budget(lane.budget) - int(counts.sum()) // counts.numel())
        return min(limit, free + query + wait + cadence.interval)

    def record_usage(self, rows: Sequence[BatchRow]) -> None:
        """Record the slots in use and the allocated bytes of the lanes that were fed."""
        fed_rows = set(rows)
        total = self.windows.bytes()
        for pool in self.slots.pools.values():
            size = pool.bytes()
            total += size
            share, heads = size // pool.size, len(pool.shape) * pool.heads
            for row, n_slots in zip(pool.members, pool.slot_counts(), strict=True):
                if row in fed_rows:
                    row.slots.append(n_slots)
                    row.allocated.append(share + row.window_bytes)
                    row.has_all_tokens &= n_slots == row.n_fed * heads
        self.peak_bytes = max(self.peak_bytes, total)

    def add_tokens(self, rows: Sequence[BatchRow], tokens: Sequence[int]) -> None:
        """Append the next token of every lane; one that stops leaves at once."""
        leaving, stop_ids = {}, self.model.stop_ids
        for row, token in zip(rows, tokens, strict=True):
            if row.has_left:
                continue
            if token in stop_ids:
                leaving[row] = build_outcome(row, "eos")
                continue
            row.token_ids.append(token)
            if len(row.token_ids) == self.max_new_tokens:
                leaving[row] = build_outcome(row, "length")
        self.remove(leaving)

    def remove(self, leaving: Mapping[BatchRow, Outcome | LaneFailure]) -> None:
        if leaving:
            self.slots.remove(leaving)
            self.windows.remove(leaving)
            for row, result in leaving.items():
                row.has_left = True
                self.on_done(row, result)
            self.regroup_recent_queries()


def draws_of(rows: Sequence[BatchRow]) -> list[Draw]:
    """Return the draw of the next token of every lane. Its step counts from the beginning of the answer, so that a text
    that continues where it was cut draws the noise that its tokens had.
    """
    return [Draw(row.request.problem, row.lane.seed, row.request.prompt.written + len(row.token_ids)) for row in rows]
