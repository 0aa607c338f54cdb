"""Where a lock says what a slot of each arm takes, its records are held to it."""

import copy

import pytest
import simulated_records
from test_record_invariants import Made

from protocol.evidence.invariants.planned_lanes import derive_plan
from protocol.formats.refusals import Tampered

# As many slots of 40 and of 68 bytes as fit into those of 6, and of 4, that take 64.
SIZES = {
    "full": {"bytes": 64},
    "a": {"bytes": 40, "slots": {"bytes of 6": 9}, "interval": 6},
    "b": {"bytes": 68, "slots": {"bytes of 6": 5}, "interval": 3},
}


def lock(**settings):
    return simulated_records.lock(budgets=("bytes of 6", "0.5"), sizes=copy.deepcopy(SIZES), **settings)


@pytest.fixture(scope="module")
def studied():
    return Made(lock(outside=True), seed=2, fewest=12)


@pytest.fixture
def made(studied):
    return copy.deepcopy(studied)


@pytest.mark.parametrize("phase", ["confirm", "probe"])
@pytest.mark.parametrize("slack", [True, False])
@pytest.mark.parametrize("thinking", [True, False])
def test_an_honest_study_of_arms_whose_slots_differ_breaks_no_relation(tmp_path, phase, slack, thinking):
    made = Made(lock(slack=slack, outside=slack, thinking=thinking), phase, seed=5)
    assert made.broken(tmp_path) == set()


def slots(made):
    made.lane("a", "bytes of 6")["slots"] = 10


def of_twice_the_size(made):
    """Whole slots, and more of them than rounding explains."""
    body = made.lane("a", "bytes of 6")
    own = made.trajectory(body)
    own["allocated"] = [2 * size for size in own["allocated"]]
    summed(body, own)


def of_no_size(made):
    body = made.lane("b", "0.5")
    own = made.trajectory(body)
    own["allocated"] = [size + 4 for size in own["allocated"]]
    summed(body, own)


def below_what_is_held(made):
    body = made.lane("a", "0.5")
    own = made.trajectory(body)
    own["allocated"] = [40 * (held - simulated_records.HEADS) for held in own["held"]]
    summed(body, own)


def of_the_full_cache(made):
    body = made.lane("full", "full")
    own = made.trajectory(body)
    own["allocated"] = [size // 64 * 40 for size in own["allocated"]]
    summed(body, own)


def summed(body, own):
    sizes = own["allocated"]
    body["cache"] |= {"mean_bytes": sum(sizes) // len(sizes), "peak_bytes": max(sizes)}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (slots, "budget"),
        (of_twice_the_size, "room"),
        (of_no_size, "room"),
        (below_what_is_held, "room"),
        (of_the_full_cache, "room"),
    ],
)
def test_a_lane_is_held_to_the_slots_and_bytes_of_its_arm(tmp_path, made, change, named):
    change(made)
    assert named in made.broken(tmp_path)


def test_events_fire_by_the_interval_of_the_arm_and_not_by_the_registered_one(tmp_path, made):
    made.content["slot_bytes"][simulated_records.MODEL]["arms"]["a"]["interval"] = 4
    assert "cadence" in made.broken(tmp_path)


def test_as_many_heads_as_the_lock_says(tmp_path, made):
    made.content["slot_bytes"][simulated_records.MODEL]["heads"] = 8
    assert "heads" in made.broken(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told.clear(),
        lambda told: told[simulated_records.MODEL]["arms"].pop("a"),
        lambda told: told[simulated_records.MODEL]["arms"]["a"]["slots"].clear(),
        lambda told: told[simulated_records.MODEL]["arms"]["a"].update(bytes=0),
        lambda told: told[simulated_records.MODEL].update(width="8"),
    ],
)
def test_a_lock_that_does_not_say_what_a_slot_takes_is_none(change):
    content = lock()
    change(content["slot_bytes"])
    with pytest.raises(Tampered, match="does not say which lanes run"):
        derive_plan(content, simulated_records.DIGEST, "confirm")
