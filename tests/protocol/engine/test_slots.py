"""Where slots lie, who may move them, and what a new token sees of them."""

import pytest
import torch
from looped import looped
from torch.multiprocessing.reductions import StorageWeakRef

from protocol.engine.forward_step import ForwardStep, WatchedAttention
from protocol.engine.slots import QUANTUM, CachedSlots, Pool, Shape, SlotPools, lane_shapes
from protocol.engine.storage_formats import VERBATIM

DIM = 2


def numbered(kv_heads, n):
    """[kv_head, n, 2] with the head and the position written into every slot."""
    head, position = torch.meshgrid(torch.arange(kv_heads), torch.arange(n), indexing="ij")
    return torch.stack([head, position], -1).double()


def mask(n, *heads):
    """Kept slots of one layer, [kv_head, n], from the positions that each head keeps."""
    return torch.stack([torch.isin(torch.arange(n), torch.tensor(held)) for held in heads])


def stored_slots(pool, place, layer=0):
    """What the heads of a lane hold, read off the tensors."""
    found = []
    for head in range(pool.heads):
        start, length = (int(at[layer, place, head]) for at in (pool.starts, pool.lengths))
        row = pool.keys[layer][place, 0 if pool.shape[layer].flat else head]
        found.append([tuple(slot) for slot in row[start : start + length].tolist()])
    return found


def test_heads_of_equal_length_get_rows_and_others_lie_one_after_the_other():
    counts = torch.tensor([[5, 5], [3, 9], [0, 1]])
    assert lane_shapes(counts, 4) == (Shape(False, 16), Shape(True, 3 + 9 + 2 * 4), Shape(True, 1 + 2 * 4))


def test_rows_are_rounded_up_to_a_quantum_and_flat_layers_are_not():
    for held, capacity in ((1, 16), (12, 16), (13, 32), (28, 32), (29, 48)):
        assert lane_shapes(torch.tensor([[held, held]]), 4) == (Shape(False, capacity),)
    assert lane_shapes(torch.tensor([[0, 0]]), 0) == (Shape(False, 0),)
    assert QUANTUM == 16


@pytest.mark.parametrize("flat", [False, True])
def test_kept_slots_are_gathered_in_position_order(flat):
    heads = ([1, 3, 4], [0]) if flat else ([1, 3, 4], [0, 2, 4])
    kept = mask(5, *heads)
    counts = kept.sum(-1)
    keys = numbered(2, 5)
    pool = Pool(lane_shapes(counts[None], 2), [keys])
    (place,) = pool.admit(["a"])
    pool.fill(place, 0, CachedSlots(keys, -keys), kept, counts)
    assert pool.shape[0].flat == flat
    assert stored_slots(pool, 0) == [[(head, position) for position in held] for head, held in enumerate(heads)]
    found_keys, found_values, weights = pool.lane_slots(0, 0)
    assert weights is None
    for head, held in enumerate(heads):
        assert torch.equal(found_keys[head, : len(held)], keys[head, held])
        assert torch.equal(found_values[head, : len(held)], -keys[head, held])


def test_every_head_of_a_flat_layer_has_the_same_room_after_its_slots():
    kept = mask(9, [0, 1, 2, 3], [8], [])
    pool = Pool(lane_shapes(kept.sum(-1)[None], 3), [numbered(3, 9)])
    pool.admit(["a"])
    pool.fill(0, 0, CachedSlots(numbered(3, 9), numbered(3, 9)), kept, kept.sum(-1))
    assert pool.shape[0].capacity == 5 + 3 * 3
    assert pool.starts.tolist() == [[[0, 7, 11]]]


def filled(members, layouts=("even", "ragged"), room=3, n=6):
    """A pool of two layers, whose lanes hold slots with the number of the lane written into them."""
    kept = {"even": mask(n, [0, 2, 5], [1, 2, 3]), "ragged": mask(n, [4], [0, 1, 2, 3, 5])}
    counts = torch.stack([kept[layout].sum(-1) for layout in layouts])
    keys = numbered(2, n)
    pool = Pool(lane_shapes(counts, room), [keys] * len(layouts))
    for number, place in zip(members, pool.admit(members), strict=True):
        for layer, layout in enumerate(layouts):
            own = keys + 100 * number
            pool.fill(place, layer, CachedSlots(own, -own), kept[layout], counts[layer])
    return pool


def test_the_last_lane_moves_into_a_place_that_is_freed_and_nothing_else_moves():
    pool = filled([0, 1, 2, 3])
    before = {
        member: [stored_slots(pool, place, layer) for layer in (0, 1)] for place, member in enumerate(pool.members)
    }
    for gone, members in (({1}, [0, 3, 2]), ({2}, [0, 3]), ({0}, [3])):
        pool.remove(gone)
        assert pool.members == members
        for place, member in enumerate(members):
            assert [stored_slots(pool, place, layer) for layer in (0, 1)] == before[member]


@looped("gone", [{0}, {5}, {0, 1}, {4, 5}, {0, 5}, {1, 3, 5}, {0, 2, 4}, {0, 1, 2, 3, 4}])
def test_lanes_that_leave_together_take_no_slots_of_others_with_them(gone):
    pool = filled(range(6))
    before = {member: [stored_slots(pool, member, layer) for layer in (0, 1)] for member in range(6)}
    pool.remove(gone)
    assert set(pool.members) == set(range(6)) - gone
    assert len(pool.members) == 6 - len(gone)
    assert pool.indices == {member: index for index, member in enumerate(pool.members)}
    for place, member in enumerate(pool.members):
        assert [stored_slots(pool, place, layer) for layer in (0, 1)] == before[member]


def test_places_are_given_back_when_half_of_them_are_free():
    pool = filled([0, 1, 2, 3, 4])
    places, sizes = [pool.size], [pool.bytes()]
    one = sizes[0] // 5
    # A row layer of 2 x 16 slots and a flat one of 1 + 5 + 2 x 3; keys and values of two float64.
    assert one == (2 * 16 + 12) * 2 * DIM * 8
    for member in range(4):
        pool.remove({member})
        places.append(pool.size)
        sizes.append(pool.bytes())
    assert places == [5, 5, 5, 2, 1]
    assert sizes == [count * one for count in places]


def test_the_tensors_of_places_given_back_are_freed():
    pool = filled([0, 1, 2, 3])
    old = [StorageWeakRef(tensor.untyped_storage()) for tensor in (*pool.keys, *pool.values)]
    pool.remove({0})
    assert not any(storage.expired() for storage in old)
    pool.remove({2})
    assert all(storage.expired() for storage in old)


def test_newcomers_take_places_at_the_end_and_the_others_stay():
    pool = filled([0, 1])
    before = [stored_slots(pool, place) for place in (0, 1)]
    assert pool.admit(["c", "d"]) == range(2, 4)
    assert [stored_slots(pool, place) for place in (0, 1)] == before
    assert (pool.members, pool.size) == ([0, 1, "c", "d"], 4)


def test_lanes_that_join_one_by_one_are_moved_a_few_times_and_leave_at_most_a_quarter_free():
    pool, moves = filled([0]), 0
    for member in range(1, 100):
        before = pool.size
        pool.admit([member])
        moves += pool.size != before
        assert member + 1 <= pool.size <= max(member + 1, member * 5 / 4)
    assert moves < 25


def test_what_is_not_in_use_is_finite():
    pool = filled([0, 1, 2])
    pool.remove({0})
    assert all(tensor.isfinite().all() for tensor in (*pool.keys, *pool.values))


def test_lanes_of_equal_shape_share_a_pool_which_ends_with_its_last_lane():
    keys, slots = [numbered(2, 9)], SlotPools()
    small, large = lane_shapes(torch.tensor([[3, 3]]), 4), lane_shapes(torch.tensor([[3, 30]]), 4)
    pool = slots.pool(small, keys)
    pool.admit(["a", "b"])
    other = slots.pool(large, keys)
    other.admit(["c"])
    assert slots.pool(lane_shapes(torch.tensor([[9, 9]]), 1), keys) is pool
    assert slots.bytes() == (2 * 2 * 16 + 41) * 2 * DIM * 8
    slots.remove_from_pool(other, ("c",))
    slots.remove({"a"})
    assert (list(slots.pools), pool.members) == ([(small, VERBATIM)], ["b"])
    slots.remove({"b"})
    assert (slots.pools, slots.bytes()) == ({}, 0)


def attention_by_loops(pool, place, layer, queries, keys, values, scale):
    """Output [q_head, t, d], and by (q_head, row) the weights of the slots that it sees."""
    output, weights = torch.zeros_like(queries), {}
    for query_head in range(len(queries)):
        head = query_head // (len(queries) // pool.heads)
        length = int(pool.lengths[layer, place, head])
        old_keys, old_values = (part[head, :length] for part in pool.lane_slots(place, layer)[:2])
        for row in range(queries.shape[1]):
            seen_keys = torch.cat([old_keys, keys[head, : row + 1]])
            seen_values = torch.cat([old_values, values[head, : row + 1]])
            share = (scale * seen_keys @ queries[query_head, row]).softmax(0)
            output[query_head, row] = share @ seen_values
            weights[query_head, row] = share
    return output, weights


def random_pool(lengths, room):
    """One layer of random slots; lengths [lane][kv_head]. All lanes must have one shape."""
    generator = torch.Generator().manual_seed(0)
    pool = None
    for number, counts in enumerate(lengths):
        n = max(counts)
        keys, values = (torch.randn(len(counts), n, DIM, generator=generator).double() for _ in range(2))
        kept = torch.arange(n) < torch.tensor(counts)[:, None]
        pool = pool or Pool(lane_shapes(torch.tensor([counts]), room), [keys])
        assert lane_shapes(torch.tensor([counts]), room) == pool.shape
        (place,) = pool.admit([number])
        pool.fill(place, 0, CachedSlots(keys, values), kept, torch.tensor(counts))
    return pool


LENGTHS = {
    "equal rows": [[5, 5], [5, 5], [5, 5]],
    "rows of different lanes": [[5, 5], [7, 7], [1, 1]],
    "flat": [[3, 8], [3, 8]],
    "flat, cut at different places": [[3, 8], [10, 1], [0, 11]],
}


@looped("new", [1, 4])
@looped("lengths", LENGTHS.values(), ids=LENGTHS)
@looped("watched", [(), (0,), (1, 0)])
def test_a_new_token_sees_the_slots_of_its_own_lane_and_head_and_what_is_watched_is_what_it_saw(lengths, new, watched):
    pool = random_pool(lengths, room=9)
    generator = torch.Generator().manual_seed(1)
    lanes = range(len(lengths))[-2:]  # the last two places only
    for _ in range(2):  # what the first step appends, the second sees
        queries = torch.randn(2, 4, new, DIM, generator=generator).double()
        keys, values = (torch.randn(2, 2, new, DIM, generator=generator).double() for _ in range(2))
        expected = [
            attention_by_loops(pool, place, 0, queries[i], keys[i], values[i], 0.7) for i, place in enumerate(lanes)
        ]
        watches = {WatchedAttention((0,), True): watched} if watched else {}
        step = ForwardStep(pool, range(lanes.start, lanes.stop), new, 4, watches, watched, watched)
        output = step.attend(0, queries, keys, values, 0.7)
        torch.testing.assert_close(output, torch.stack([made for made, _ in expected]))
        before = pool.lengths.clone()
        step.commit()
        for row, lane in enumerate(watched):
            seen, asked = step.watches[0].stack_weights()[0, row], step.stack_queries()[0, row]
            raw, (fed_keys, fed_values, fed_queries) = step.watches[0].stack_logits()[0, row], step.stack_fed()
            assert torch.equal(asked, queries[lane])
            assert torch.equal(fed_keys[0, row], keys[lane])
            assert torch.equal(fed_values[0, row], values[lane])
            assert torch.equal(fed_queries[0, row], queries[lane])
            for (query_head, token), share in expected[lane][1].items():
                torch.testing.assert_close(seen[query_head, token, : len(share)], share)
                assert not seen[query_head, token, len(share) :].any()
                # Logits are known up to a constant by the weights that a loop makes of them.
                own = raw[query_head, token, : len(share)]
                torch.testing.assert_close(own - own[0], share.log() - share[0].log())
                assert raw[query_head, token, len(share) :].eq(-torch.inf).all()
        grown = pool.lengths - before
        assert grown[:, lanes.start : lanes.stop].eq(new).all()
        assert not grown[:, : lanes.start].any()


def test_layers_of_different_layouts_are_watched_with_zeros_where_a_layer_holds_fewer():
    pool = filled([0], room=4)
    step = ForwardStep(
        pool, range(1), 1, 2, {WatchedAttention((0, 1), True): (0,), WatchedAttention((1,), False): (0,)}, (0,), ()
    )
    for layer in (0, 1):
        new = torch.ones(1, 2, 1, DIM).double()
        step.attend(layer, new, new, new, 1.0)
    weights, queries = step.watches[0].stack_weights(), step.stack_queries()
    second = step.watches[1].stack_weights()
    torch.testing.assert_close(second, weights[1:, ..., : second.shape[-1]])
    assert (weights.shape, queries.shape) == ((2, 1, 2, 1, 6), (2, 1, 2, 1, DIM))
    assert weights[0, 0, :, 0, 4:].eq(0).all()
    assert weights[1, 0, 0, 0, 2:].eq(0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, 2, 1).double())
    torch.testing.assert_close(step.watches[0].stack_logits().softmax(-1), weights)
    assert step.watches[1].stack_logits() is None
