"""The batch: lanes of several problems that decode together, each with its slots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter

import torch
from torch import Tensor

from policies import Rows, State
from protocol.engine import merging, sampling
from protocol.engine.attention.kernels import PADDED, Attention
from protocol.engine.events import Events
from protocol.engine.forking import Fork, Forked
from protocol.engine.forms import Form
from protocol.engine.lane_memory import Memory
from protocol.engine.lanes import Lane, LaneFailure, Model, Outcome
from protocol.engine.rows import BatchObserver, Recent, Row, outcome, step_of
from protocol.engine.sampling import Draw
from protocol.engine.slots import Cached, Pool, shapes


class Batch(Events):
    """The rows and their slots. `on_done` is called for every lane that leaves."""

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
        super().__init__(model, max_new_tokens, first_event, marks, attention)
        self.temperature = temperature
        self.top_p = top_p
        self.forms = forms
        self.done = done
        self.recents: dict[int, Recent] = {}
        self.forwards = 0

    @property
    def rows(self) -> list[Row]:
        """All decoding lanes, in the order of a forward pass."""
        return [row for pool in self.slots.pools.values() for row in pool.members]

    def join(self, forked: Forked, forks: Sequence[Fork]) -> None:
        """Add lanes of one problem: copy their slots, feed the query, choose the first token."""
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
            windows = forked.windows if fork.windows is None else fork.windows
            tokens = seen + len(request.prompt.query) + self.max_new_tokens
            row.window_bytes = self.windows.join(row, windows, seen, tokens)
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
        self.hold_queries()
        self.measure(rows)
        given = {fork.number: fork.given or forked for fork in forks}
        logits = torch.stack([given[row.number].logits for row in rows])
        if request.prompt.query:
            logits = self.feed(spans, torch.tensor(request.prompt.query).expand(len(rows), -1))
            rows, logits = self.remaining(rows, logits)
        self.accept(rows, logits)

    def hold_queries(self) -> None:
        """Regroup the buffers of recent queries after lanes joined or left: one buffer for each window width.
        """
        owners: dict[int, dict[Row, Memory]] = {}
        for row in self.rows:
            if row.memory is not None and row.memory.recent is not None:
                owners.setdefault(row.memory.recent.shape[2], {})[row] = row.memory
        recents = {}
        for width, memories in owners.items():
            like = next(iter(memories.values())).recent
            assert like is not None
            recents[width] = self.recents.get(width) or Recent(like)
            recents[width].hold(memories)
        self.recents = recents

    def step(self) -> None:
        """Feed every lane its last token and choose the next one."""
        spans = [(pool, 0, len(pool.members)) for pool in self.slots.pools.values()]
        rows = self.rows
        logits = self.feed(spans, torch.tensor([row.token_ids[-1] for row in rows])[:, None])
        self.accept(*self.remaining(rows, logits))

    def feed(self, spans: Sequence[tuple[Pool[Row], int, int]], token_ids: Tensor) -> Tensor:
        """Return logits [lane, vocabulary] after token_ids [lane, t]; evicts where due and records cache
        sizes.
        """
        network, new = self.model.network, token_ids.shape[1]
        rows = [row for pool, first, last in spans for row in pool.members[first:last]]
        starts = torch.tensor([row.seen - row.behind for row in rows])
        heads = network.config.num_attention_heads
        steps = [step_of(*span, new, heads) for span in spans]
        observer = BatchObserver(steps, self.windows.forward(rows, [row.seen for row in rows], new))
        output = network(
            input_ids=token_ids.to(network.device),
            position_ids=(starts[:, None] + torch.arange(new)).to(network.device),
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
        """Fail lanes without a usable next token, before a policy sees their cache."""
        usable = sampling.usable(logits).tolist()
        if all(usable):
            return
        faulty = (row for row, fine in zip(rows, usable, strict=True) if not fine)
        self.dismiss({row: LaneFailure(f"{sampling.UNUSABLE} at decode step {row.step}") for row in faulty})

    def remember(self, observer: BatchObserver, rows: Sequence[Row]) -> None:
        """Fold the observations of a forward pass into the memories of the lanes."""
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
                for recent in self.recents.values():
                    own = [index for index, lane in enumerate(step.noted) if members[lane] in recent.places]
                    alone = len(own) == len(step.noted)
                    keepers = [members[step.noted[index]] for index in own]
                    if keepers:
                        recent.note(keepers, queries if alone else queries[:, own])
        for layer, hidden in observer.hidden.items():
            for row, own in zip(rows, hidden, strict=True):
                if row.memory is not None and row.memory.traces:
                    row.memory.see(layer, own)

    def room(self, lane: Lane, counts: Tensor, query: int = 0, wait: int = 0) -> int:
        """Return the number of slots that each head of a lane may append before its next eviction step, if
        any.

        query: tokens fed at once before the first new one. wait: steps by which the first eviction may be
        delayed.
        """
        most, cadence = query + self.max_new_tokens, lane.policy.cadence
        if cadence.interval is None or lane.budget is None:
            return most
        below = max(0, cadence.most(lane.budget) - int(counts.sum()) // counts.numel())
        return min(most, below + query + wait + cadence.interval)

    def measure(self, rows: Sequence[Row]) -> None:
        """Record the slots in use and the allocated bytes of the lanes that were fed."""
        fed = set(rows)
        total = self.windows.bytes()
        for pool in self.slots.pools.values():
            size = pool.bytes()
            total += size
            share = size // pool.places
            for row, held in zip(pool.members, pool.held(), strict=True):
                if row in fed:
                    row.held.append(held)
                    row.allocated.append(share + row.window_bytes)
        self.peak_bytes = max(self.peak_bytes, total)

    def remaining(self, rows: Sequence[Row], logits: Tensor) -> tuple[list[Row], Tensor]:
        """Return the rows and logits without lanes that have just failed."""
        if not any(row.left for row in rows):
            return list(rows), logits
        stayed = [index for index, row in enumerate(rows) if not row.left]
        return [rows[index] for index in stayed], logits[stayed]

    def accept(self, rows: Sequence[Row], logits: Tensor) -> None:
        """Choose the next token of every lane; a lane that stops leaves at once."""
        if not rows:
            return
        draws = [Draw(row.request.problem, row.lane.seed, len(row.token_ids)) for row in rows]
        chosen = sampling.choose(logits, draws, self.temperature, self.top_p)
        leaving, stop_ids = {}, self.model.stop_ids
        for row, token in zip(rows, chosen, strict=True):
            if token in stop_ids:
                leaving[row] = outcome(row, "eos")
                continue
            row.token_ids.append(token)
            if len(row.token_ids) == self.max_new_tokens:
                leaving[row] = outcome(row, "length")
        self.dismiss(leaving)

    def dismiss(self, leaving: Mapping[Row, Outcome | LaneFailure]) -> None:
        if leaving:
            self.slots.dismiss(leaving)
            self.windows.dismiss(leaving)
            for row, result in leaving.items():
                row.left = True
                self.done(row, result)
            self.hold_queries()
