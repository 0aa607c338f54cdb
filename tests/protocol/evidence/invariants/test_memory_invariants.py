"""What a lane may park besides its cache follows from the caches that its arm promises."""

from types import SimpleNamespace

from looped import looped

import policies
from protocol.evidence.invariants import memory_invariants, planned_lanes
from protocol.evidence.invariants.recorded_lanes import SlotBounds, Trajectory
from protocol.presses.pressed import AsThePress, Pressed


@looped(
    ("parks", "after", "state", "fine"),
    [(0, 60, 0, True), (0, 60, 1, False), (3, 60, 180 * 8, True), (3, 60, 180 * 8 + 1, False), (3, 90, 1, False)],
)
def test_what_a_lane_parks_is_no_more_than_its_other_caches_can_hold(parks, after, state, fine):
    """Of 90 slots of 8 bytes; nothing is parked where all of them stay."""
    arm = planned_lanes.Arm("own", 0, True, True, True, parked_caches=parks)
    lane = SimpleNamespace(never_evicts=False, arm=arm, events=[[0, 90, after]], cache={"state_bytes": state})
    assert (memory_invariants.check_state_bytes.check(None, lane, SlotBounds(6, 8, 8)) == "") == fine


def test_a_press_promises_nothing_of_what_it_leaves():
    part = AsThePress()
    parts = dict.fromkeys(("scoring", "selection", "routing", "state", "protect"), part)
    promises = Pressed(**parts).promises
    assert promises.is_press
    assert (promises.leaves_at_most, promises.leaves_exactly) == (False, False)
    assert (promises.fires, promises.stores_as_computed) == ("prefill", True)
    assert not any(policies.get(name).promises.is_press for name in policies.names())


@looped(
    ("page", "reads", "fine"),
    [
        (4, "3.000000", False),
        (4, "3.250000", True),
        (4, "16.250000", True),
        (4, "16.500000", False),
        (4, None, False),
        (None, "12.500000", False),
        (None, None, True),
    ],
)
def test_what_new_tokens_read_lies_between_the_bounds_of_pages_and_all_slots(page, reads, fine):
    """Two tokens over two heads: 22 slots are there for the first, 28 for the second. Of 50 a 4th is 12.5. The most
    pages are those of heads of 10 or 14 slots and a page of one: 3 and 4, and 4 and 4, beside the 50 slots; of all a
    mean over two tokens and two heads.
    """
    lane = SimpleNamespace(
        arm=planned_lanes.Arm("interval", 2, True, True, True, page=page),
        cache={} if reads is None else {"reads": reads},
        trajectory=Trajectory((20, 26, 24), (), 2),
        fed_tokens=2,
    )
    plan = SimpleNamespace(compares_reads=False)
    assert (memory_invariants.check_reads.check(plan, lane, SlotBounds(2, 8, 8)) == "") == fine


@looped(
    ("fed", "reads", "fine"),
    [(2, "12.500000", True), (2, "12.250000", False), (2, None, False), (0, "0.000000", True), (0, None, False)],
)
def test_where_reads_are_compared_a_lane_without_pages_reads_all_that_is_there(fed, reads, fine):
    """Two tokens over two heads: 20 and 26 slots were held before them, and each has its own in both heads."""
    lane = SimpleNamespace(
        arm=planned_lanes.Arm("interval", 2, True, True, True),
        cache={} if reads is None else {"reads": reads},
        trajectory=Trajectory((20, 26, 24)[: fed + 1], (), 2),
        fed_tokens=fed,
    )
    plan = SimpleNamespace(compares_reads=True)
    assert (memory_invariants.check_reads.check(plan, lane, SlotBounds(2, 8, 8)) == "") == fine
