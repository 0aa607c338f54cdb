"""What a lane holds and what it costs are counted on the tensors."""

import gc

import torch
from tiny_networks import Drawn, Full, lane, outside, tiny
from torch.multiprocessing.reductions import StorageWeakRef

from protocol import engine
from protocol.engine import slots


def numbered(kv_heads, n):
    """[kv_head, n, 2] with the head and the position written into every slot."""
    head, position = torch.meshgrid(torch.arange(kv_heads), torch.arange(n), indexing="ij")
    return torch.stack([head, position], -1).double()


def test_kept_slots_are_gathered_in_position_order_into_the_front_of_the_lane():
    keep = torch.tensor([[[0, 1, 0, 1, 1], [1, 0, 0, 0, 0]]]).bool()
    (pool,) = slots.fork([numbered(2, 5)], [-numbered(2, 5)], [keep], room=2).pools
    assert pool.keys[0].tolist() == [
        [[[0, 1], [0, 3], [0, 4], [0, 0], [0, 0]], [[1, 0], [0, 0], [0, 0], [0, 0], [0, 0]]]
    ]
    assert torch.equal(pool.values[0], -pool.keys[0])
    assert pool.lengths.tolist() == [[[3, 1]]]


def test_lanes_of_equal_capacity_share_a_pool_and_none_is_padded_to_another():
    def keep(count):
        return (torch.arange(10) < count).expand(1, 2, 10)

    forked = slots.fork([numbered(2, 10)], [numbered(2, 10)], [keep(3), keep(10), keep(3)], room=4)
    assert [pool.rows.tolist() for pool in forked.pools] == [[0, 2], [1]]
    assert [tuple(pool.keys[0].shape) for pool in forked.pools] == [(2, 2, 7, 2), (1, 2, 14, 2)]
    assert forked.held() == [6, 20, 6]
    assert forked.allocated() == [2 * 2 * 7 * 2 * 8, 2 * 2 * 14 * 2 * 8, 2 * 2 * 7 * 2 * 8]


def test_held_and_allocated_are_counted_after_the_event_and_after_every_forward():
    counts = ((3, 17), (20, 0), (9, 9))
    ran = engine.run(
        tiny(), outside(40, 5), [lane(Full()), lane(Drawn(0, counts), 10)], problem="p", max_new_tokens=4
    )
    full, evicted = ran.outcomes
    heads = 3 * 2
    # The event, the query of 5, then three of the four new tokens: the fourth is not fed.
    assert full.held == tuple(heads * n for n in (40, 45, 46, 47, 48))
    assert evicted.held == tuple(58 + heads * n for n in (0, 5, 6, 7, 8))
    bytes_a_slot = 2 * 16 * 8  # key and value of 16 float64
    assert full.allocated == (heads * (40 + 5 + 4) * bytes_a_slot,) * 5
    assert evicted.allocated == (heads * (20 + 5 + 4) * bytes_a_slot,) * 5
    assert (full.events, evicted.events) == ((), ((0, 240, 58),))
    assert (full.state_bytes, evicted.state_bytes) == (0, 0)


def test_the_bytes_of_a_lane_are_those_of_the_memory_behind_it(monkeypatch):
    made = []
    fork = slots.fork
    monkeypatch.setattr(slots, "fork", lambda *given: made.append(fork(*given)) or made[-1])
    lanes = [lane(Drawn(0), 10), lane(Full()), lane(Drawn(1), 10)]
    ran = engine.run(tiny(), outside(40), lanes, problem="p", max_new_tokens=4)
    tensors = [tensor for pool in made[0].pools for tensor in pool.keys + pool.values]
    memory = sum(tensor.element_size() * tensor.numel() for tensor in tensors)
    assert sum(outcome.allocated[-1] for outcome in ran.outcomes) == memory
    # Recounted: a head holds what is not zero, since no written key of a random network is.
    rows = {int(row): (pool, i) for pool in made[0].pools for i, row in enumerate(pool.rows)}
    for row, outcome in enumerate(ran.outcomes):
        pool, i = rows[row]
        assert outcome.held[-1] == sum(int((keys[i] != 0).any(-1).sum()) for keys in pool.keys)


def test_a_lane_that_stopped_is_measured_no_further():
    model = tiny()
    both = [lane(Full()), lane(Drawn(2), 8)]
    free = engine.run(model, outside(40), both, problem="p", max_new_tokens=10).outcomes
    token = next(t for t in free[0].token_ids if t not in free[1].token_ids)
    ran = engine.run(
        model._replace(stop_ids=frozenset({token})), outside(40), both, problem="p", max_new_tokens=10
    )
    stopped = free[0].token_ids.index(token)
    assert ran.outcomes[0].token_ids == free[0].token_ids[:stopped]
    assert len(ran.outcomes[0].held) == stopped + 1
    assert ran.outcomes[1] == free[1]


def test_the_prefill_keys_are_freed_before_decoding(monkeypatch):
    born, alive = [], []
    fork = slots.fork

    def watch(keys, values, keeps, room):
        born.extend(StorageWeakRef(tensor.untyped_storage()) for tensor in [*keys, *values])
        return fork(keys, values, keeps, room)

    monkeypatch.setattr(slots, "fork", watch)
    model = tiny()

    def count(module, given):
        gc.collect()
        alive.append(sum(not storage.expired() for storage in born))

    model.network.register_forward_pre_hook(count)
    engine.run(model, outside(40), [lane(Drawn(), 10)], problem="p", max_new_tokens=3)
    assert len(born) == 6
    assert alive == [0, 0, 0]
