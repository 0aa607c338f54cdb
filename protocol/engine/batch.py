"""The batch: lanes of several problems that decode together, each with slots of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter

import torch
from torch import Tensor

from policies import Rows, State
from protocol.engine import forking, grants, merging, sampling
from protocol.engine.asking import asked
from protocol.engine.attention.kernels import PADDED, Attention
from protocol.engine.forking import Fork, Forked
from protocol.engine.forms import Form
from protocol.engine.lane_memory import Memory, measured
from protocol.engine.lanes import Lane, LaneFailure, Model, Outcome
from protocol.engine.projecting import projected
from protocol.engine.rotation import rotation_of
from protocol.engine.rows import BatchObserver, Row, cached_of, outcome, step_of, weights_of
from protocol.engine.sampling import Draw
from protocol.engine.slots import Cached, Pool, Slots, shapes


class Batch:
    """Rows and their slots. `done` is told of every lane that leaves."""

    def __init__(
        self,
        model: Model,
        max_new_tokens: int,
        temperature: float,
        top_p: float,
        first_event: int,
        marks: frozenset[int],
        forms: Mapping[State, Form],
        done: Callable[[Row, Outcome | LaneFailure], None],
        attention: Attention = PADDED,
    ) -> None:
        self.model = model
        self.max_new_tokens = max_new_tokens
        self.temperature = temperature
        self.top_p = top_p
        self.first_event = first_event
        self.marks = marks
        self.forms = forms
        self.rotation = rotation_of(model.network)
        self.done = done
        self.slots: Slots[Row] = Slots(attention)
        self.forwards = 0
        self.peak_bytes = 0
        self.event_seconds = 0.0

    @property
    def rows(self) -> list[Row]:
        """All lanes that decode, in the order of a forward."""
        return [row for pool in self.slots.pools.values() for row in pool.members]

    def join(self, forked: Forked, forks: Sequence[Fork]) -> None:
        """Give places to lanes of one problem: copy slots, feed the query, choose a first token."""
        request = forked.request
        newcomers: dict[Pool[Row], list[tuple[Row, Fork]]] = {}
        for fork in forks:
            wait = max(0, self.first_event - 1)
            room = self.room(fork.lane, fork.counts, len(request.prompt.query), wait)
            masked = fork.given is not None and fork.given.masks
            form = self.forms[fork.lane.policy.state]
            sizes = form.sizes(forked.keys[0])
            shape = shapes(fork.counts, room, masked=masked, sizes=sizes)
            pool = self.slots.pool(shape, forked.keys, form)
            seen, now = len(request.prompt.context), perf_counter()
            before, after = seen * fork.counts.numel(), int(fork.counts.sum())
            events = [(0, before, after)] if fork.lane.policy.evicts else []
            granted = [fork.granted] * len(events)
            row = Row(
                request, fork.number, fork.lane, fork.memory, pool, seen, self.forwards, now, events, granted
            )
            row.behind = 0 if fork.given is None else seen - fork.given.position
            row.parked = fork.parked
            row.count_state()
            newcomers.setdefault(pool, []).append((row, fork))
        spans = []
        for pool, arrived in newcomers.items():
            places = pool.admit([row for row, _ in arrived])
            for place, (_, fork) in zip(places, arrived, strict=True):
                own = fork.given or forked
                hidden = fork.given.hidden if fork.given else [None] * len(fork.kept)
                for layer, kept in enumerate(fork.kept):
                    if fork.stored is not None:
                        coded = fork.stored[layer]
                    else:
                        fed = Cached(own.keys[layer], own.values[layer])
                        at = torch.arange(kept.shape[-1], device=kept.device).expand(kept.shape)
                        cached = merging.of_layer(fork.merging, layer, fed, at, self.rotation)
                        coded = cached._replace(values=pool.form.encoded(layer, cached.values))
                    pool.fill(place, layer, coded, kept, fork.counts[layer], hidden[layer])
            spans.append((pool, places.start, places.stop))
        rows = [row for pool, first, last in spans for row in pool.members[first:last]]
        self.measure(rows)
        given = {fork.number: fork.given or forked for fork in forks}
        logits = torch.stack([given[row.number].logits for row in rows])
        if request.prompt.query:
            logits = self.feed(spans, [request.prompt.query] * len(rows))
            rows, logits = self.remaining(rows, logits)
        self.accept(rows, logits)

    def step(self) -> None:
        """Feed every lane its last token and choose the next."""
        spans = [(pool, 0, len(pool.members)) for pool in self.slots.pools.values()]
        rows = self.rows
        logits = self.feed(spans, [(row.token_ids[-1],) for row in rows])
        self.accept(*self.remaining(rows, logits))

    def feed(self, spans: Sequence[tuple[Pool[Row], int, int]], token_ids: Sequence[Sequence[int]]) -> Tensor:
        """Logits [lane, vocabulary] after token_ids [lane, t]; events fire, and what is held is noted."""
        network, config = self.model.network, self.model.network.config
        rows = [row for pool, first, last in spans for row in pool.members[first:last]]
        fed = torch.tensor(token_ids, device=network.device)
        new = fed.shape[1]
        starts = torch.tensor([row.seen - row.behind for row in rows], device=network.device)
        observer = BatchObserver([step_of(*span, new, config.num_attention_heads) for span in spans])
        output = network(
            input_ids=fed,
            position_ids=starts[:, None] + torch.arange(new, device=network.device),
            use_cache=False,
            logits_to_keep=1,
            observer=observer,
        )
        self.forwards += 1
        for step in observer.steps:
            step.end()
        self.remember(observer, rows)
        for row in rows:
            row.seen += new
        last: Tensor = output.logits[:, -1]
        self.refuse_non_finite(rows, last)
        self.fire(self.remaining(rows, last)[0])
        self.measure(rows)
        return last

    def refuse_non_finite(self, rows: Sequence[Row], logits: Tensor) -> None:
        """Fail the lanes whose logits name no next token, before a policy sees what they hold."""
        usable = sampling.usable(logits).tolist()
        faulty = (row for row, fine in zip(rows, usable, strict=True) if not fine)
        self.dismiss({row: LaneFailure(f"{sampling.UNUSABLE} at decode step {row.step}") for row in faulty})

    def remember(self, observer: BatchObserver, rows: Sequence[Row]) -> None:
        """Fold what the forward showed into the memories of the lanes."""
        for step in observer.steps:
            members = step.pool.members[step.own]
            for watch in step.watches:
                weights, logits = watch.all_weights(), watch.all_logits()
                for index, lane in enumerate(watch.lanes):
                    memory = members[lane].memory
                    assert memory is not None
                    slots = int(step.pool.lengths[:, step.places[lane]].max())
                    seen = members[lane].seen
                    read = Rows(
                        weights[:, index, ..., :slots],
                        watch.layers[0],
                        seen,
                        seen + step.new,
                        step.pool.heads,
                        seen >= memory.prompt,
                        None if logits is None else logits[:, index, ..., :slots],
                    )
                    memory.add(read, watch.layers)
            if step.shown:
                keys, values, queries = step.all_fed()
                for index, lane in enumerate(step.shown):
                    memory = members[lane].memory
                    assert memory is not None
                    memory.take(keys[:, index], values[:, index], queries[:, index], members[lane].seen)
            if step.noted:
                queries = step.all_queries()
                for index, lane in enumerate(step.noted):
                    memory = members[lane].memory
                    assert memory is not None
                    memory.note(queries[:, index], members[lane].seen + step.new)
        for layer, hidden in observer.hidden.items():
            for row, own in zip(rows, hidden, strict=True):
                if row.memory is not None and row.memory.traces:
                    row.memory.see(layer, own)

    def fire(self, rows: Sequence[Row]) -> None:
        """The events that are due."""
        start = perf_counter()
        held: dict[Row, float] = {}
        for row in rows:
            if row.memory is None or row.lane.budget is None:
                continue
            if row.step and row.token_ids[row.step - 1] in self.marks:
                self.answer(row)
                continue
            if row.step < self.first_event:
                continue
            if row not in held:
                held |= row.pool.means()
            cadence = row.lane.policy.cadence
            try:
                budget = grants.granted(cadence, row.lane.budget, row.step)
                if cadence.due(row.step, held[row], budget):
                    row.count_state()
                    self.evict(row, row.memory, budget)
            except ValueError as refusal:
                self.dismiss({row: forking.failure(refusal)})
        self.event_seconds += perf_counter() - start

    def answer(self, row: Row) -> None:
        """The thinking is over: nothing is evicted any more, so that what the policy carries is dropped and
        the slots get room for all that may still be said.
        """
        row.count_state()
        row.memory = None
        lengths = row.pool.lengths[:, row.place].clone()
        held = torch.arange(int(lengths.max())) < lengths[..., None]
        kept = held.to(self.model.network.device)
        self.move(row, cached_of(row), kept, self.max_new_tokens - row.step)

    def evict(self, row: Row, memory: Memory, budget: int) -> None:
        """One event: the policy sees the slots of today, and those that it keeps are moved together."""
        device = self.model.network.device
        lengths = row.pool.lengths[:, row.place].clone()
        stored = memory.stored(row.seen, int(lengths.max()))
        cached, form = cached_of(row), row.pool.form
        weights = weights_of(cached, stored >= 0)
        prompt, needs = row.request.prompt, row.lane.policy.needs
        seen = torch.tensor((*prompt.context, *prompt.query, *row.token_ids)[: row.seen], device=device)
        decoded = ((own.keys, form.decoded(layer, own.values)) for layer, own in enumerate(cached))
        signals = measured(memory, row.lane.policy, stored, row.seen, cached, form)
        signals |= projected(self.model, needs, decoded, stored >= 0)
        view = forking.view_of(
            self.model,
            row.request,
            row.lane,
            seen,
            signals | asked(self.model, needs, seen, cached, form, stored >= 0),
            row.pool.heads,
            self.rotation,
            step=row.seen,
            stored=stored,
            remembered=memory.remembered,
            routed=memory.routed,
            weights=weights,
        )
        event = forking.compressed(row.lane.policy, view, budget)
        cached = [
            merging.of_layer(event.merging, layer, own, stored[layer], self.rotation)
            for layer, own in enumerate(cached)
        ]
        counts = self.move(row, cached, event.kept, self.room(row.lane, event.kept.sum(-1).cpu()))
        memory.compact(event, stored, row.seen)
        row.events.append((row.step, int(lengths.sum()), int(counts.sum())))
        row.granted.append(budget)

    def move(self, row: Row, cached: Sequence[Cached], kept: Tensor, room: int) -> Tensor:
        """Move the kept slots of a lane together, into a place with so much room; returns their counts.

        cached: as of `cached_of`; kept [layer, kv_head, n].
        """
        pool, place = row.pool, row.place
        counts = kept.sum(-1).cpu()
        shape = shapes(counts, room, sizes=pool.form.sizes(cached[0].keys))
        if shape != pool.shape:
            row.pool = self.slots.pool(shape, [own.keys for own in cached], pool.form)
            (target,) = row.pool.admit([row])
            self.peak_bytes = max(self.peak_bytes, self.slots.bytes())  # of the old pool and the new
        else:
            target = place
        for layer, own in enumerate(cached):
            row.pool.fill(target, layer, own, kept[layer], counts[layer])
        if shape != pool.shape:
            self.slots.vacate(pool, (row,))
        return counts

    def room(self, lane: Lane, counts: Tensor, query: int = 0, wait: int = 0) -> int:
        """Slots that a head of a lane may still append before its next event, if there is any.

        query: tokens fed at once before the first new one. wait: steps by which the first event may be late.
        """
        most, cadence = query + self.max_new_tokens, lane.policy.cadence
        if cadence.interval is None or lane.budget is None:
            return most
        below = max(0, cadence.most(lane.budget) - int(counts.sum()) // counts.numel())
        return min(most, below + query + wait + cadence.interval)

    def measure(self, rows: Sequence[Row]) -> None:
        """Note what the lanes that were fed hold, and what is allocated for them."""
        fed = set(map(id, rows))
        total = 0
        for pool in self.slots.pools.values():
            size = pool.bytes()
            total += size
            for row, held in zip(pool.members, pool.held(), strict=True):
                if id(row) in fed:
                    row.held.append(held)
                    row.allocated.append(size // pool.places)
        self.peak_bytes = max(self.peak_bytes, total)

    def remaining(self, rows: Sequence[Row], logits: Tensor) -> tuple[list[Row], Tensor]:
        """Without the lanes that have just failed."""
        left = [index for index, row in enumerate(rows) if row in row.pool.members]
        return [rows[index] for index in left], logits if len(left) == len(rows) else logits[left]

    def accept(self, rows: Sequence[Row], logits: Tensor) -> None:
        """Choose the next token of every lane; a lane that stops leaves at once."""
        if not rows:
            return
        draws = [Draw(row.request.problem, row.lane.seed, len(row.token_ids)) for row in rows]
        chosen = sampling.choose(logits, draws, self.temperature, self.top_p)
        leaving = {}
        for row, token in zip(rows, chosen, strict=True):
            if token in self.model.stop_ids:
                leaving[row] = outcome(row, "eos")
                continue
            row.token_ids.append(token)
            if len(row.token_ids) == self.max_new_tokens:
                leaving[row] = outcome(row, "length")
        self.dismiss(leaving)

    def dismiss(self, leaving: Mapping[Row, Outcome | LaneFailure]) -> None:
        if leaving:
            self.slots.dismiss(leaving)
            for row, result in leaving.items():
                self.done(row, result)
