"""The batch: lanes of several problems that decode together, each with slots of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import torch
from torch import Tensor

from protocol.engine import forking, sampling
from protocol.engine import lane_memory as memories
from protocol.engine.forking import Fork, Forked
from protocol.engine.lane_memory import Memory
from protocol.engine.lanes import Lane, LaneFailure, Model, Outcome, Request
from protocol.engine.sampling import Draw
from protocol.engine.slots import Pool, Slots, Turn, padded, shapes


@dataclass(eq=False)
class Seat:
    """One lane while it decodes."""

    request: Request
    number: int
    lane: Lane
    memory: Memory | None
    pool: Pool[Seat]
    seen: int
    """Tokens fed."""
    joined: int
    since: float
    events: list[tuple[int, int, int]]
    token_ids: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    allocated: list[int] = field(default_factory=list)
    state_bytes: int = 0

    @property
    def place(self) -> int:
        return self.pool.members.index(self)

    @property
    def step(self) -> int:
        """New tokens fed."""
        return self.seen - len(self.request.prompt.context) - len(self.request.prompt.query)

    def count_state(self) -> None:
        """Note the bytes of the memory, which grows between events: called before each, and at the end."""
        if self.memory is not None:
            self.state_bytes = max(self.state_bytes, self.memory.bytes())


class Batch:
    """Seats and their slots. `done` is told of every lane that leaves."""

    def __init__(
        self,
        model: Model,
        max_new_tokens: int,
        temperature: float,
        done: Callable[[Seat, Outcome | LaneFailure], None],
    ) -> None:
        self.model, self.max_new_tokens, self.temperature, self.done = (
            model,
            max_new_tokens,
            temperature,
            done,
        )
        self.slots: Slots[Seat] = Slots()
        self.forwards = 0
        self.peak_bytes = 0
        self.event_seconds = 0.0

    @property
    def seats(self) -> list[Seat]:
        """In the order of the rows of a forward."""
        return [seat for pool in self.slots.pools.values() for seat in pool.members]

    def join(self, forked: Forked, forks: Sequence[Fork]) -> None:
        """Give places to lanes of one problem: copy slots, feed the query, choose a first token."""
        request = forked.request
        newcomers: dict[Pool[Seat], list[tuple[Seat, Fork]]] = {}
        for fork in forks:
            room = self.room(fork.lane, fork.counts, len(request.prompt.query))
            pool = self.slots.pool(shapes(fork.counts, room), forked.keys)
            before, after = fork.kept.numel(), int(fork.counts.sum())
            events = [(0, before, after)] if fork.lane.policy.evicts else []
            seen, now = len(request.prompt.context), perf_counter()
            seat = Seat(request, fork.number, fork.lane, fork.memory, pool, seen, self.forwards, now, events)
            seat.count_state()
            newcomers.setdefault(pool, []).append((seat, fork))
        turns = []
        for pool, arrived in newcomers.items():
            places = pool.admit([seat for seat, _ in arrived])
            for place, (_, fork) in zip(places, arrived, strict=True):
                for layer, kept in enumerate(fork.kept):
                    pool.fill(
                        place, layer, forked.keys[layer], forked.values[layer], kept, fork.counts[layer]
                    )
            turns.append((pool, places.start, places.stop))
        seats = [seat for pool, first, last in turns for seat in pool.members[first:last]]
        self.measure(seats)
        logits = forked.logits.expand(len(seats), -1)
        if request.prompt.query:
            logits = self.feed(turns, [request.prompt.query] * len(seats))
            seats, logits = self.remaining(seats, logits)
        self.accept(seats, logits)

    def step(self) -> None:
        """Feed every lane its last token and choose the next."""
        turns = [(pool, 0, len(pool.members)) for pool in self.slots.pools.values()]
        seats = self.seats
        logits = self.feed(turns, [(seat.token_ids[-1],) for seat in seats])
        self.accept(*self.remaining(seats, logits))

    def feed(
        self, turns: Sequence[tuple[Pool[Seat], int, int]], token_ids: Sequence[Sequence[int]]
    ) -> Tensor:
        """Logits [lane, vocabulary] after token_ids [lane, t]; events fire, and what is held is noted."""
        network, config = self.model.network, self.model.network.config
        seats = [seat for pool, first, last in turns for seat in pool.members[first:last]]
        fed = torch.tensor(token_ids, device=network.device)
        new = fed.shape[1]
        starts = torch.tensor([seat.seen for seat in seats], device=network.device)
        feeding = Feeding([turn_of(*turn, new, config.num_attention_heads) for turn in turns])
        output = network(
            input_ids=fed,
            position_ids=starts[:, None] + torch.arange(new, device=network.device),
            use_cache=False,
            logits_to_keep=1,
            passenger=feeding,
        )
        self.forwards += 1
        for turn in feeding.turns:
            turn.end()
        self.remember(feeding, seats)
        for seat in seats:
            seat.seen += new
        self.fire(seats)
        self.measure(seats)
        last: Tensor = output.logits[:, -1]
        return last

    def remember(self, feeding: Feeding, seats: Sequence[Seat]) -> None:
        """Fold what the forward showed into the memories of the lanes."""
        for turn in feeding.turns:
            members = turn.pool.members[turn.own]
            for watch in turn.watches:
                weights = watch.all_weights()
                for row, lane in enumerate(watch.lanes):
                    memory = members[lane].memory
                    assert memory is not None
                    slots = int(turn.pool.lengths[:, turn.places[lane]].max())
                    memory.add(weights[:, row], watch.layers, members[lane].seen, slots)
            if turn.noted:
                queries = turn.all_queries()
                for row, lane in enumerate(turn.noted):
                    memory = members[lane].memory
                    assert memory is not None
                    memory.note(queries[:, row], members[lane].seen + turn.new)
        for layer, hidden in feeding.hidden.items():
            for seat, row in zip(seats, hidden, strict=True):
                if seat.memory is not None:
                    seat.memory.see(layer, row)

    def fire(self, seats: Sequence[Seat]) -> None:
        """The events that are due."""
        start = perf_counter()
        held: dict[Seat, float] = {}
        for seat in seats:
            if seat.memory is None or seat.lane.budget is None:
                continue
            if seat not in held:
                held |= seat.pool.means()
            cadence = seat.lane.policy.cadence
            budget = cadence.budget(seat.lane.budget, seat.step)
            if cadence.due(seat.step, held[seat], budget):
                seat.count_state()
                try:
                    self.evict(seat, seat.memory, budget)
                except ValueError as refusal:
                    self.dismiss({seat: forking.failure(refusal)})
        self.event_seconds += perf_counter() - start

    def evict(self, seat: Seat, memory: Memory, budget: int) -> None:
        """One event: the policy sees the slots of today, and those that it keeps are moved together."""
        pool, place, device = seat.pool, seat.place, self.model.network.device
        lengths = pool.lengths[:, place].clone()
        slots, layers = int(lengths.max()), range(len(lengths))
        stored = memory.stored(seat.seen, slots)
        cached = [padded(pool.stored(place, layer), slots) for layer in layers]
        prompt = seat.request.prompt
        view = forking.view_of(
            self.model,
            seat.request,
            seat.lane,
            torch.tensor((*prompt.context, *prompt.query, *seat.token_ids)[: seat.seen], device=device),
            memories.measured(memory, seat.lane.policy, stored, seat.seen, cached),
            pool.heads,
            step=seat.seen,
            stored=stored,
            remembered=memory.remembered,
        )
        kept, remembered = seat.lane.policy.event(view, budget)
        counts = kept.sum(-1).cpu()
        shape = shapes(counts, self.room(seat.lane, counts, 0))
        if shape != pool.shape:
            seat.pool = self.slots.pool(shape, [keys for keys, _ in cached])
            (target,) = seat.pool.admit([seat])
            self.peak_bytes = max(self.peak_bytes, self.slots.bytes())  # of the old pool and the new
        else:
            target = place
        for layer, (keys, values) in enumerate(cached):
            seat.pool.fill(target, layer, keys, values, kept[layer], counts[layer])
        if shape != pool.shape:
            self.slots.vacate(pool, (seat,))
        memory.compact(kept, stored, seat.seen, remembered)
        seat.events.append((seat.step, int(lengths.sum()), int(counts.sum())))

    def room(self, lane: Lane, counts: Tensor, query: int) -> int:
        """Slots that a head of a lane may still append before its next event, if there is any."""
        most, cadence = query + self.max_new_tokens, lane.policy.cadence
        if cadence.interval is None or lane.budget is None:
            return most
        below = max(0, cadence.most(lane.budget) - int(counts.sum()) // counts.numel())
        return min(most, below + query + cadence.interval)

    def measure(self, seats: Sequence[Seat]) -> None:
        """Note what the lanes that were fed hold, and what is allocated for them."""
        fed = set(map(id, seats))
        total = 0
        for pool in self.slots.pools.values():
            size = pool.bytes()
            total += size
            for seat, held in zip(pool.members, pool.held(), strict=True):
                if id(seat) in fed:
                    seat.held.append(held)
                    seat.allocated.append(size // pool.places)
        self.peak_bytes = max(self.peak_bytes, total)

    def remaining(self, seats: Sequence[Seat], logits: Tensor) -> tuple[list[Seat], Tensor]:
        """Without the lanes that an event has just failed."""
        rows = [row for row, seat in enumerate(seats) if seat in seat.pool.members]
        return [seats[row] for row in rows], logits if len(rows) == len(seats) else logits[rows]

    def accept(self, seats: Sequence[Seat], logits: Tensor) -> None:
        """Choose the next token of every lane; a lane that stops leaves at once."""
        if not seats:
            return
        draws = [Draw(seat.request.problem, seat.lane.seed, len(seat.token_ids)) for seat in seats]
        leaving = {}
        for seat, token in zip(seats, sampling.choose(logits, draws, self.temperature), strict=True):
            if token in self.model.stop_ids:
                leaving[seat] = outcome(seat, "eos")
                continue
            seat.token_ids.append(token)
            if len(seat.token_ids) == self.max_new_tokens:
                leaving[seat] = outcome(seat, "length")
        self.dismiss(leaving)

    def dismiss(self, leaving: Mapping[Seat, Outcome | LaneFailure]) -> None:
        if leaving:
            self.slots.dismiss(leaving)
            for seat, result in leaving.items():
                self.done(seat, result)


def outcome(seat: Seat, stop: str) -> Outcome:
    seat.count_state()
    return Outcome(
        tuple(seat.token_ids),
        stop,
        tuple(seat.held),
        tuple(seat.allocated),
        seat.state_bytes,
        tuple(seat.events),
        seat.joined,
        perf_counter() - seat.since,
    )


def turn_of(pool: Pool[Seat], first: int, last: int, new: int, queries: int) -> Turn[Seat]:
    """The forward of the seats at places first..last-1, which shows their memories what they carry."""
    carried = [(lane, seat.memory) for lane, seat in enumerate(pool.members[first:last]) if seat.memory]
    watched: dict[tuple[int, ...], list[int]] = {}
    for lane, memory in carried:
        if memory.layers:
            watched.setdefault(memory.layers, []).append(lane)
    noted = [lane for lane, memory in carried if memory.recent is not None]
    return Turn(pool, range(first, last), new, queries, watched, noted)


class Feeding:
    """The passenger of a forward of the batch: every pool attends for its own lanes, one after the other."""

    def __init__(self, turns: Sequence[Turn[Seat]]) -> None:
        self.turns = turns
        self.hidden: dict[int, Tensor] = {}

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        output, row = torch.empty_like(queries), 0
        for turn in self.turns:
            own = slice(row, row + len(turn.places))
            output[own] = turn.attend(layer, queries[own], keys[own], values[own], scale)
            row = own.stop
        return output

    def see(self, layer: int, hidden: Tensor) -> None:
        self.hidden[layer] = hidden
