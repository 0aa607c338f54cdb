"""What lanes hold and what they cost, recounted on the tensors and by hand."""

import pytest
import torch
from many_lanes import two_dozen_lanes
from tiny_networks import DIM, HEADS, Adaptive, Offsets, all_kept, answer, drawn, greedy, lane, outside, tiny
from torch.multiprocessing.reductions import StorageWeakRef

from policies import Cadence
from protocol import engine
from protocol.engine import Request, batch, decode, prefill
from protocol.engine.batch_rows import BatchObserver
from protocol.engine.slots import Pool

SLOT = 2 * DIM * 8
"""Bytes of key and value of one slot of one head."""


def rows(capacity):
    """Bytes of a lane whose heads all have this capacity."""
    return HEADS * capacity * SLOT


@pytest.fixture
def batches(monkeypatch):
    """Every batch that is made from now on."""
    made = []

    class Kept(batch.Batch):
        def __init__(self, *given, **named):
            super().__init__(*given, **named)
            made.append(self)

    monkeypatch.setattr(decode, "Batch", Kept)
    return made


def at_every_forward_of_a_batch(model, batches, look):
    """What `look` says of the batch before each of its forwards; the first counts as none."""
    seen = []

    def note(module, given, named):
        if isinstance(named["observer"], BatchObserver):
            seen.append(look(batches[-1]))

    model.network.register_forward_pre_hook(note, with_kwargs=True)
    return seen


def tensors_of(pools):
    return [tensor for pool in pools for tensor in (*pool.keys, *pool.values)]


def memory(made):
    """Bytes behind all slots of a batch, each storage once."""
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage()
        for tensor in tensors_of(made.slots.pools.values())
    }
    return sum(storage.nbytes() for storage in storages.values())


def test_held_and_allocated_are_counted_after_the_event_and_after_every_forward():
    lanes = [lane(all_kept()), lane(drawn(0, Offsets()), 10)]
    full, ragged = answer(tiny(), outside(40, 5), lanes, max_new_tokens=4)
    # The event, the query of 5, then three of the four new tokens: the fourth is not fed.
    assert full.slots == tuple(HEADS * n for n in (40, 45, 46, 47, 48))
    assert ragged.slots == tuple(60 + HEADS * n for n in (0, 5, 6, 7, 8))
    assert full.allocated == (rows(64),) * 5  # 40 + 5 + 4, in quanta of 16
    # Heads of 3 and 17, of 20 and none, and two of 10: sums of the heads, each with room for 9.
    assert ragged.allocated == ((38 + 38 + 2 * 32) * SLOT,) * 5
    assert (full.events, ragged.events) == ((), ((0, 240, 60),))
    assert (full.state_bytes, ragged.state_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("budget", "context", "query", "cadence", "expected"),
    [
        (10, 40, 0, Cadence(), [rows(32)] * 20),  # 10 + 20
        (10, 40, 0, Cadence(interval=4), [rows(16)] * 20),  # 10 + 4, however long the text
        (13, 40, 0, Cadence(interval=4), [rows(32)] * 20),  # 13 + 4
        (13, 40, 0, Cadence(interval=3, slack=False), [rows(16)] * 20),
        (15, 40, 0, Cadence(interval=1), [rows(16)] * 20),
        (10, 6, 0, Cadence(interval=4), [rows(16)] * 20),  # 6 now, 14 at most
        (20, 6, 0, Cadence(interval=4), [rows(32)] * 20),  # 6 now, 24 at most
        # Room for a query of 3 and 4 more, until the event that comes one step after the query.
        (10, 40, 3, Cadence(interval=4), [rows(32)] * 2 + [rows(16)] * 19),
        # A query of 9 is more than an interval: it is cut as soon as the answer has begun.
        (10, 40, 9, Cadence(interval=4), [rows(32)] * 2 + [rows(16)] * 19),
        (10, 40, 0, Cadence(interval=64), [rows(32)] * 20),  # 10 + 20: it never comes to the event
    ],
)
def test_a_lane_has_room_until_its_next_event_and_no_more(budget, context, query, cadence, expected):
    given = [lane(drawn(1, cadence=cadence), budget)]
    (outcome,) = answer(tiny(), outside(context, query), given, max_new_tokens=20)
    assert outcome.allocated == tuple(expected)


def test_a_lane_has_room_for_an_event_that_is_registered_to_come_late():
    policy = drawn(1, cadence=Cadence(interval=4))
    (late,) = answer(tiny(), outside(40, 9), [lane(policy, 10)], max_new_tokens=30, first_event=21)
    # 10, 9 of the query, and 21 new ones; afterwards 10 and an interval.
    assert late.allocated == (rows(48),) * 22 + (rows(16),) * 9
    (never,) = answer(tiny(), outside(40, 9), [lane(policy, 10)], max_new_tokens=30, first_event=99)
    assert never.allocated == (rows(64),) * 31  # 10, the query and 30 new ones
    (without,) = answer(tiny(), outside(40, 9), [lane(drawn(1), 10)], max_new_tokens=30, first_event=99)
    assert without.allocated == never.allocated


def test_a_ragged_lane_takes_the_sum_of_its_heads_after_every_event():
    policy = drawn(1, Adaptive(), Cadence(interval=4))
    (outcome,) = answer(tiny(), outside(40), [lane(policy, 10)], max_new_tokens=14)
    counts = [kept.sum(-1).tolist() for _, kept in policy.notes]
    assert any(len(set(heads)) > 1 for layers in counts for heads in layers)

    def layer(heads):
        return sum(heads) + 4 * 2 if len(set(heads)) > 1 else 2 * 16 * -(-(heads[0] + 4) // 16)

    expected = [sum(map(layer, layers)) * SLOT for layers in counts]
    assert outcome.allocated == (*[expected[0]] * 4, *[expected[1]] * 4, *[expected[2]] * 4, *[expected[3]] * 2)
    largest = max(max(heads) for layers in counts for heads in layers)
    assert max(expected) < HEADS * (largest + 4) * SLOT, "no better than the largest head for all"


def test_what_lanes_hold_fits_in_what_is_allocated_for_them():
    for outcome in answer(tiny(), outside(32, 9), two_dozen_lanes(), max_new_tokens=12):
        assert len(outcome.slots) == len(outcome.allocated)
        assert all(held * SLOT <= size for held, size in zip(outcome.slots, outcome.allocated, strict=True))


def test_the_bytes_of_lanes_are_those_of_the_memory_behind_them(batches):
    model = tiny()
    lanes = [lane(drawn(0), 10), lane(all_kept()), lane(drawn(1), 10), lane(drawn(2, Offsets()), 10)]
    sizes = at_every_forward_of_a_batch(model, batches, memory)

    def recount(made):
        """A head holds what is not zero, since no written key of a random network is."""
        return {
            id(row): sum(int((layer[place] != 0).any(-1).sum()) for layer in row.pool.keys)
            for row in made.rows
            for place in [row.pool_index]
        }

    counts = at_every_forward_of_a_batch(model, batches, recount)
    outcomes = answer(model, outside(40, 3), lanes, max_new_tokens=4)
    assert len(sizes) == 4
    for step, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        assert size == sum(outcome.allocated[step] for outcome in outcomes)
        assert sorted(count.values()) == sorted(outcome.slots[step] for outcome in outcomes)


def test_memory_is_freed_when_lanes_leave(batches):
    free = tiny()
    stop = greedy(free, outside(40).context, 12)[2]
    model = free._replace(stop_ids=frozenset({stop}))
    sizes = at_every_forward_of_a_batch(model, batches, memory)
    lanes = [lane(all_kept()), lane(all_kept()), lane(drawn(2), 8)]
    first, second, last = answer(model, outside(40), lanes, max_new_tokens=6)
    assert [len(outcome.token_ids) for outcome in (first, second, last)] == [2, 2, 6]
    # Two lanes of 40 + 6 in 48 slots, until they stop after two steps; 8 + 6 in 16 slots to the end.
    assert sizes == [2 * rows(48) + rows(16)] * 2 + [rows(16)] * 3


def test_a_place_that_stays_free_is_no_lanes_cost():
    lanes = [lane(drawn(number), 30) for number in range(3)]
    model = tiny()
    free = answer(model, outside(40), lanes, max_new_tokens=10)
    token = next(t for t in free[1].token_ids if t not in free[0].token_ids + free[2].token_ids)
    stopping = model._replace(stop_ids=frozenset({token}))
    first, second, third = answer(stopping, outside(40), lanes, max_new_tokens=10)
    assert (first.stop, second.stop, third.stop) == ("length", "eos", "length")
    assert first.allocated == third.allocated == (rows(48),) * 10  # 30 + 10


def test_a_lane_that_stopped_is_measured_no_further():
    model = tiny()
    both = [lane(all_kept()), lane(drawn(2), 8)]
    free = answer(model, outside(40), both, max_new_tokens=10)
    token = next(t for t in free[0].token_ids if t not in free[1].token_ids)
    stopping = model._replace(stop_ids=frozenset({token}))
    ran = answer(stopping, outside(40), both, max_new_tokens=10)
    stopped = free[0].token_ids.index(token)
    assert ran[0].token_ids == free[0].token_ids[:stopped]
    assert len(ran[0].slots) == len(ran[0].allocated) == stopped + 1
    assert ran[1]._replace(seconds=0) == free[1]._replace(seconds=0)


@pytest.mark.parametrize(
    ("max_concurrent", "expected"),
    [
        (1, rows(48)),  # the largest lane alone
        (2, rows(48) + rows(16)),  # one of each kind, four times over
        (3, 2 * rows(48) + rows(16)),
        (4, 2 * rows(48) + 2 * rows(16)),
        (8, 4 * rows(48) + 4 * rows(16)),
    ],
)
def test_the_peak_is_what_the_lanes_that_decode_together_take(max_concurrent, expected):
    lanes = (lane(all_kept()), lane(drawn(), 10)) * 2
    requests = [Request(problem, outside(40), lanes) for problem in "pq"]
    assert engine.run(tiny(), requests, max_new_tokens=4, max_concurrent=max_concurrent).peak_bytes == expected


def test_the_peak_knows_the_slots_of_the_query_that_an_event_dropped():
    request = Request("p", outside(40, 9), (lane(drawn(cadence=Cadence(interval=4)), 10),))
    ran = engine.run(tiny(), [request], max_new_tokens=6)
    assert ran.answers[0].outcomes[0].allocated[-1] == rows(16)
    assert ran.peak_bytes >= rows(32)


def test_the_peak_knows_both_layouts_of_a_lane_that_moves_at_an_event(batches, monkeypatch):
    sizes, fill = [], Pool.fill

    def note(pool, *given):
        sizes.append(memory(batches[-1]))
        fill(pool, *given)

    monkeypatch.setattr(Pool, "fill", note)
    lanes = tuple(lane(drawn(draw, Adaptive(), Cadence(interval=4)), 10) for draw in range(3))
    ran = engine.run(tiny(), [Request("p", outside(40, 5), lanes)], max_new_tokens=10)
    assert ran.peak_bytes == max(sizes)


def test_a_lane_that_says_one_token_has_carried_its_memory_all_the_same():
    given = [lane(drawn(cadence=Cadence(interval=4)), 10)]
    (outcome,) = answer(tiny(), outside(40), given, max_new_tokens=1)
    assert outcome.state_bytes == HEADS * 10 * 8  # the position of every slot


@pytest.mark.parametrize("max_concurrent", [None, 1, 2])
def test_the_prefill_keys_are_freed_as_soon_as_no_lane_waits_for_them(monkeypatch, max_concurrent):
    born, alive = [], []
    feed = prefill.feed

    def watch(*given, **named):
        fed = feed(*given, **named)
        born.extend(StorageWeakRef(tensor.untyped_storage()) for tensor in [*fed.keys, *fed.values])
        return fed

    monkeypatch.setattr(prefill, "feed", watch)
    model = tiny()

    def count(module, given, named):
        alive.append((named["input_ids"].shape[1], sum(not storage.expired() for storage in born)))

    model.network.register_forward_pre_hook(count, with_kwargs=True)
    lanes = (lane(drawn(), 10), lane(drawn(1, cadence=Cadence(interval=4)), 10))
    requests = [Request("p", outside(40), lanes), Request("q", outside(30), lanes)]
    engine.run(model, requests, max_new_tokens=3, max_concurrent=max_concurrent)
    own = 2 * 3  # keys and values of three layers
    one_problem = {
        1: [(40, 0), (1, own), (1, own), (1, 0), (1, 0), (30, 0), (1, own), (1, own), (1, 0), (1, 0)],
        2: [(40, 0), (1, 0), (1, 0), (30, 0), (1, 0), (1, 0)],
        None: [(40, 0), (30, 0), (1, 0), (1, 0)],
    }
    assert alive == one_problem[max_concurrent]


def test_slots_are_freed_when_the_run_is_over(batches):
    answer(tiny(), outside(40, 2), two_dozen_lanes(), max_new_tokens=5)
    assert batches[-1].slots.pools == {}


def test_bytes_follow_the_dtype():
    given = [lane(all_kept()), lane(drawn(2, Offsets()), 10)]
    wide, narrow = (
        answer(tiny(dtype=dtype), outside(40), given, max_new_tokens=2) for dtype in (torch.float32, torch.bfloat16)
    )
    assert [o.allocated[0] for o in wide] == [2 * o.allocated[0] for o in narrow]
