"""Heads of unequal length through a kernel of variable lengths: the same text, slots and counts as padded."""

from types import SimpleNamespace

import pytest
import torch
from looped import looped
from test_slots import LENGTHS, attention_by_loops
from tiny_networks import DEPTH, Adaptive, Noise, answer, competing, lane, noted, outside, tiny
from varlen_by_loops import varlen_by_loops

import policies
from policies import AttentionSignal, Cadence
from protocol import engine
from protocol.engine import storage_formats
from protocol.engine.attention.kernels import PADDED, Attention, choose_attention
from protocol.engine.attention.packing import pack_layers
from protocol.engine.device_numbers import DeviceNumbers
from protocol.engine.forward_step import ForwardStep
from protocol.engine.slots import CachedSlots, Pool, lane_shapes
from protocol.formats.refusals import BadInput

WIDTH = 8
"""Of a head: the kernel takes multiples of it."""
NAMES = policies.names()
CODED = ("subspace", "full-subspace")


def pool_of(lengths, room, attention):
    """One layer of random slots; lengths [lane][kv_head]."""
    generator = torch.Generator().manual_seed(0)
    pool = None
    for number, counts in enumerate(lengths):
        shape = (len(counts), max(counts), WIDTH)
        keys, values = (torch.randn(shape, generator=generator).double() for _ in range(2))
        kept = torch.arange(max(counts)) < torch.tensor(counts)[:, None]
        pool = pool or Pool(lane_shapes(torch.tensor([counts]), room), [keys], attention=attention)
        (place,) = pool.admit([number])
        pool.fill(place, 0, CachedSlots(keys, values), kept, torch.tensor(counts))
    return pool


@looped("new", [1, 4])
@looped("lengths", LENGTHS.values(), ids=LENGTHS)
def test_a_new_token_sees_the_slots_of_its_own_lane_and_head(lengths, new):
    pool = pool_of(lengths, 9, Attention(varlen_by_loops))
    generator = torch.Generator().manual_seed(1)
    lanes = range(len(lengths))[-2:]  # the last two places only
    for _ in range(2):  # what the first step appends, the second sees
        queries = torch.randn(2, 4, new, WIDTH, generator=generator).double()
        keys, values = (torch.randn(2, 2, new, WIDTH, generator=generator).double() for _ in range(2))
        expected = [
            attention_by_loops(pool, place, 0, queries[i], keys[i], values[i], 0.7)[0] for i, place in enumerate(lanes)
        ]
        step = ForwardStep(pool, range(lanes.start, lanes.stop), new, 4, {}, (), ())
        torch.testing.assert_close(step.attend(0, queries, keys, values, 0.7), torch.stack(expected))
        step.commit()


def test_sequences_begin_where_the_slots_of_a_head_lie():
    starts = torch.tensor([[[0, 7], [0, 4]], [[0, 0], [0, 0]]])
    lengths = torch.tensor([[[5, 2], [2, 3]], [[6, 6], [1, 1]]])
    flat, rows = pack_layers(starts, lengths, (True, False), (10, 16), 3, DeviceNumbers(torch.device("cpu")).update)
    # A row of 10 slots a lane, then two rows of 16 a lane.
    assert flat.cu_seq_k.tolist() == [0, 7, 10, 14, 20]
    assert rows.cu_seq_k.tolist() == [0, 16, 32, 48, 64]
    assert (flat.used.tolist(), flat.max_k) == ([8, 5, 5, 6], 8)
    assert (rows.used.tolist(), rows.max_k) == ([9, 9, 4, 4], 9)
    assert flat.cu_seq_q.tolist() == rows.cu_seq_q.tolist() == [0, 3, 6, 9, 12]
    assert flat.max_q == 3


def test_more_slots_than_the_kernel_counts_are_refused():
    one = torch.zeros(1, 2, 1, dtype=torch.int64)
    assert pack_layers(one, one, (True,), (2**30 - 1,), 1, DeviceNumbers(torch.device("cpu")).update)
    with pytest.raises(ValueError, match="decode fewer lanes"):
        pack_layers(one, one, (True,), (2**30,), 1, DeviceNumbers(torch.device("cpu")).update)


@pytest.mark.parametrize("part", range(4))
def test_every_policy_says_and_holds_the_same_through_either_path(part, device):
    """Float64 on the CPU, so that rounding changes no token; the kernel itself on CUDA, in bfloat16, where
    the first events, which both paths share, must be equal.
    """
    cuda = device == "cuda"
    model = tiny(dtype=torch.bfloat16 if cuda else torch.float64, device=device, num_hidden_layers=DEPTH)
    kernel = choose_attention(model.network, "varlen") if cuda else Attention(varlen_by_loops)
    lanes = []
    for name in NAMES[part::4]:
        policy = competing(policies.get(name))
        if policy.evicts:
            carried = all(signal.carried for signal in policy.needs if isinstance(signal, AttentionSignal))
            policy = competing(policies.get(name, cadence=Cadence(interval=3)) if carried else policy)
        lanes.append(lane(policy, 170 if policy.evicts else None, seed=1))
    found = [answer(model, outside(220, 3), lanes, max_new_tokens=7, attention=path) for path in (PADDED, kernel)]
    for one, other in zip(*found, strict=True):
        assert isinstance(one, engine.Outcome), one
        assert other.events[:1] == one.events[:1]
        if not cuda:
            assert other.token_ids == one.token_ids
            assert (other.events, other.slots, other.allocated) == (one.events, one.slots, one.allocated)


class Counted:
    """Whether the kernel was called, and for how many sequences at most."""

    def __init__(self):
        self.sequences = 0

    def __call__(self, *given, **settings):
        self.sequences = max(self.sequences, len(settings["seqused_k"]))
        return varlen_by_loops(*given, **settings)


def test_ragged_heads_of_all_lanes_of_a_pool_go_through_one_call():
    counted, model = Counted(), tiny()
    lanes = [lane(noted(Noise(0), Adaptive()), 20, seed) for seed in range(3)]
    answer(model, outside(60), lanes, max_new_tokens=3, attention=Attention(counted))
    assert counted.sequences == 3 * 2  # lanes x KV heads


@looped("name", NAMES)
def test_slots_that_weigh_in_the_logits_or_are_coded_stay_padded_and_no_others(name):
    policy, keys = policies.get(name), torch.zeros(2, 4, WIDTH)
    form = storage_formats.build_storage_format(tiny(), lane(competing(policy)))
    shape = lane_shapes(torch.tensor([[2, 3]]), 1)
    through = Pool(shape, [keys], form, Attention(varlen_by_loops)).kernel
    stays = policy.state.mass or name in CODED
    assert (through is None) == stays


def test_slots_that_a_press_hides_stay_padded():
    shape, keys = lane_shapes(torch.tensor([[3, 3]]), 1, masked=True), torch.zeros(2, 3, WIDTH)
    assert Pool(shape, [keys], attention=Attention(varlen_by_loops)).kernel is None


def on(device="cuda", dtype=torch.bfloat16, width=128, sinks=False):
    config = SimpleNamespace(head_dim=width)
    config.get_text_config = lambda: config
    parts = [SimpleNamespace(), SimpleNamespace(sinks=1)] if sinks else [SimpleNamespace()]
    return SimpleNamespace(device=torch.device(device), dtype=dtype, config=config, modules=lambda: parts)


def test_the_path_is_chosen_by_device_precision_width_of_a_head_and_sinks():
    assert choose_attention(on(dtype=torch.float16, width=256)).kernel is not None
    assert choose_attention(on()).kernel is choose_attention(on(), "varlen").kernel is not None
    assert choose_attention(on(), "padded") is PADDED
    for network, says in (
        (on("cpu"), "device cuda"),
        (on(dtype=torch.float32), "dtype bfloat16"),
        (on(width=100), "a multiple of 8"),
        (on(width=264), "at most 256"),
        (on(sinks=True), "attention without sinks, but the model has attention sinks"),
    ):
        assert choose_attention(network) is choose_attention(network, "padded") is PADDED
        with pytest.raises(BadInput, match=says):
            choose_attention(network, "varlen")
