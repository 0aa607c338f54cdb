"""How many lanes decode at once."""

import psutil
import pytest
import torch
from many_lanes import two_dozen_lanes
from tiny_networks import HEADS, all_kept, answer, drawn, lane, outside, tiny

from policies import Cadence, Schedule
from protocol import engine
from protocol.engine import Request, max_concurrent
from protocol.engine.max_concurrent import max_concurrent_for

SLOT = 2 * 3 * 2 * 16 * 8
"""Bytes of key and value of 16 float64, in 2 KV heads of 3 layers."""


def requests(*lanes, query=2):
    return [Request("p", outside(40, query), lanes), Request("q", outside(30), lanes)]


def places_with(free, given, monkeypatch, dtype=torch.float64, first_event=1, **changes):
    monkeypatch.setattr(max_concurrent, "free_bytes", lambda device: free)
    return max_concurrent_for(tiny(dtype=dtype, **changes).network, given, 8, first_event)


@pytest.mark.parametrize(
    ("slots", "given"),
    [
        (50, lane(all_kept())),
        (20, lane(drawn(), 10)),
        (16, lane(drawn(cadence=Cadence(interval=4)), 10)),
        (20, lane(drawn(cadence=Cadence(interval=100)), 10)),
        (21, lane(drawn(cadence=Schedule(interval=4)), 10)),
    ],
    ids=["full", "budget", "interval", "interval beyond the text", "half as much again in the first round"],
)
def test_as_many_lanes_as_half_of_the_free_memory_holds(slots, given, monkeypatch):
    for lanes in (1, 2, 7):
        free = 2 * lanes * slots * SLOT
        given_lanes = requests(*[given] * 8)
        assert places_with(free, given_lanes, monkeypatch) == lanes
        assert places_with(free - 2, given_lanes, monkeypatch) == max(1, lanes - 1)


@pytest.mark.parametrize(("first_event", "slots"), [(0, 16), (1, 16), (3, 18), (9, 20)])
def test_a_first_event_that_comes_late_lets_lanes_grow(first_event, slots, monkeypatch):
    """10 slots, 2 of a query, the new tokens up to the event and an interval; there are 8 in all."""
    given = requests(*[lane(drawn(cadence=Cadence(interval=4)), 10)] * 8)
    assert places_with(2 * 5 * slots * SLOT, given, monkeypatch, first_event=first_event) == 5
    assert places_with(2 * 5 * slots * SLOT - 2, given, monkeypatch, first_event=first_event) == 4


def test_every_lane_is_taken_to_be_as_large_as_the_largest(monkeypatch):
    given = requests(lane(drawn(), 10), lane(all_kept()))
    assert places_with(2 * 3 * 50 * SLOT, given, monkeypatch) == 3


def test_there_is_at_least_one_place_and_no_more_than_there_are_lanes(monkeypatch):
    given = requests(lane(drawn(), 10), lane(all_kept()))
    assert places_with(0, given, monkeypatch) == 1
    assert places_with(2**50, given, monkeypatch) == 4


def test_a_slot_takes_what_its_dtype_and_width_take(monkeypatch):
    given = requests(*[lane(drawn(), 10)] * 20)
    assert places_with(2 * 20 * SLOT, given, monkeypatch, torch.bfloat16) == 4
    assert places_with(2 * 20 * SLOT, given, monkeypatch, num_key_value_heads=1) == 2
    assert places_with(2 * 20 * SLOT, given, monkeypatch, head_dim=8) == 2


def test_a_width_that_the_configuration_does_not_name_is_the_share_of_a_head(monkeypatch):
    network = tiny().network
    network.config.head_dim = None
    monkeypatch.setattr(max_concurrent, "free_bytes", lambda device: 2 * 20 * SLOT)
    assert max_concurrent_for(network, requests(*[lane(drawn(), 10)] * 20), max_new_tokens=8) == 1
    assert max_concurrent.slot_bytes(network.config, torch.float64) == SLOT


def test_no_lane_ever_holds_more_than_what_it_is_taken_to_hold():
    prompt, lanes = outside(32, 9), two_dozen_lanes()
    request = Request("p", prompt, lanes)
    for given, outcome in zip(lanes, answer(tiny(), prompt, lanes, max_new_tokens=12), strict=True):
        assert max(outcome.slots) <= HEADS * max_concurrent.max_slots(request, given, 12)


def test_a_run_uses_the_free_memory_unless_it_is_told(monkeypatch):
    monkeypatch.setattr(max_concurrent, "free_bytes", lambda device: 2 * 3 * 45 * SLOT)
    given = [Request("p", outside(40), (lane(all_kept()),) * 5)]
    assert engine.run(tiny(), given, max_new_tokens=5).max_concurrent == 3
    assert engine.run(tiny(), given, max_new_tokens=5, max_concurrent=2).max_concurrent == 2


def test_free_memory_is_that_of_the_device(device):
    free = max_concurrent.free_bytes(torch.device(device))
    total = psutil.virtual_memory().total if device == "cpu" else torch.cuda.mem_get_info()[1]
    assert 0 < free <= total
