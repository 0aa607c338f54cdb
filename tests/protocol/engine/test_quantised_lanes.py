"""Every selection with every state: what is kept, what it takes in bytes, and which bytes are counted."""

from collections.abc import Iterator

import pytest
import torch
from sampled import sampled
from tiny_networks import DEPTH, KV_HEADS, answer, competing, lane, outside, tiny

import policies
from policies import Cadence, Verbatim
from policies.quantised.states import STATES
from protocol import engine
from protocol.engine.batch import Batch

STORING = [name for name in policies.names() if type(policies.get(name).state) is Verbatim]
NAMES = [name for name in STATES if name != "verbatim"]
HEADS = DEPTH * KV_HEADS
APART = dict.fromkeys(["kivi-4", "kivi-2"], 32 * 2 * 32 * 2)  # of 32 slots of a head in 16 bits
BYTES = {
    "f16": 128,
    "q8_0": 68,
    "q5_0": 44,
    "q4_0": 36,
    "fp8": 64,
    "token-4": 40,
    "token-2": 24,
    "kivi-4": 40,
    "kivi-2": 24,
    "quest": 256,
}  # of a slot of 32 + 32 numbers; in float32 256


@pytest.mark.parametrize(("state", "part"), sampled(NAMES, range(8), of=8))
def test_every_policy_keeps_as_much_in_a_state_as_without_and_its_bytes_are_those_of_the_state(state, part):
    """What the first event keeps is told by keys and values as computed, so that it is the same; later events and
    tokens read packed ones.
    """
    names = STORING[part::8]
    stored = [competing(policies.get(name, {"state": state})) for name in names]
    plain = [competing(policies.get(name)) for name in names]
    lanes = [lane(policy, 200 if policy.evicts else None, seed=1) for policy in (*stored, *plain)]
    model = tiny(dtype=torch.float32, head_dim=32, num_hidden_layers=DEPTH)
    outcomes = answer(model, outside(280, 3), lanes, max_new_tokens=5)
    for name, own, verbatim in zip(names, outcomes[: len(names)], outcomes[len(names) :], strict=True):
        assert isinstance(own, engine.Outcome), f"{name}: {own}"
        assert (own.events, own.slots[0]) == (verbatim.events, verbatim.slots[0]), name
        for held, allocated in zip(own.slots, own.allocated, strict=True):
            slots, rest = divmod(allocated - HEADS * APART.get(state, 0), BYTES[state])
            assert rest == 0
            assert held <= slots  # of each head what fits into the next multiple of 4,096 bytes, and what is to come
            assert slots <= HEADS * (280 + 3 + 5 + 4096 // BYTES[state])


def storages(value: object, seen: set[int]) -> Iterator[int]:
    """The bytes of every storage below a value, each once; not where slots lie, which is counted on the CPU."""
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        if storage.nbytes() and storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            yield storage.nbytes()
    elif isinstance(value, list | tuple):
        for item in value:
            yield from storages(item, seen)
    elif isinstance(value, dict):
        yield from storages([*value.values()], seen)


@pytest.mark.parametrize("state", sampled(NAMES, of=3))
def test_a_lane_has_the_bytes_that_a_walk_over_its_tensors_finds(state, monkeypatch):
    """Alone, through events that change its shape: everything that a pool refers to, at each moment."""
    found = []
    record = Batch.record_usage

    def walk(batch, rows):
        record(batch, rows)
        seen: set[int] = set()
        of_pools = [
            {name: value for name, value in vars(pool).items() if name not in ("starts", "lengths", "members")}
            for pool in batch.slots.pools.values()
        ]
        found.append(sum(storages(of_pools, seen)))

    monkeypatch.setattr(Batch, "record_usage", walk)
    policy = policies.get("streaming", {"state": state}, cadence=Cadence(interval=40))
    model = tiny(dtype=torch.float32, head_dim=32)
    (outcome,) = answer(model, outside(300), [lane(policy, 100)], max_new_tokens=150)
    assert len(outcome.events) >= 3
    assert list(outcome.allocated) == found
    assert policy.state.slot_bytes(32, 4) == BYTES[state]
    assert policy.recent_bytes(32) == APART.get(state, 0)


def test_lanes_of_several_states_say_what_each_says_alone():
    """Two of each, whose events are decided together, beside all others."""
    model, prompt = tiny(dtype=torch.float64, head_dim=32), outside(60, 4)

    def lanes():
        cadence = Cadence(interval=5)
        mixed = {"state": "q8_0", "state.values": "q4_0"}
        settings = [*({"state": name} for name in STATES), mixed]
        return [
            lane(policies.get(name, own, cadence=cadence), 30, seed=seed)
            for own in settings
            for name in ("h2o", "knorm")
            for seed in (1, 2)
        ]

    together = answer(model, prompt, lanes(), max_new_tokens=14)
    alone = [answer(model, prompt, [own], max_new_tokens=14)[0] for own in lanes()]
    for one, other in zip(together, alone, strict=True):
        assert one._replace(seconds=0, joined=0) == other._replace(seconds=0, joined=0)
    assert len({one.token_ids for one in together}) > 2  # what is packed changes what is said


def test_the_latest_slots_with_room_for_all_are_the_packed_full_cache():
    """What quantising alone costs has a budget in a protocol: every answer, slot and byte of an arm that holds all is
    that of `full` with its state.
    """
    cadence, states = Cadence(interval=4), ("f16", "q4_0", "kivi-2")  # one of each kind
    whole = [lane(policies.get("full", {"state": state}), seed=1) for state in states]
    room = [lane(policies.get("streaming", {"state": state}, cadence=cadence), 200, seed=1) for state in states]
    model = tiny(dtype=torch.float32, head_dim=32, num_hidden_layers=DEPTH)
    outcomes = answer(model, outside(90, 3), [*whole, *room], max_new_tokens=12)
    for state, full, latest in zip(states, outcomes[: len(states)], outcomes[len(states) :], strict=True):
        assert full.token_ids == latest.token_ids, state
        assert full.slots == latest.slots
        assert full.slots[-1] == HEADS * (90 + 3 + 11)
        assert full.allocated == latest.allocated
