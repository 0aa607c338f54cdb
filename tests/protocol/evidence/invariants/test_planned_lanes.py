"""The relations know the parts of the catalogue's policies by name: a part that they do not know would be
held to what another one promises.
"""

from types import SimpleNamespace

import pytest

import policies
from policies import Blockwise, Cadence
from policies.crystal.dissolution import ExceedingDissolution
from policies.epicache import Episodic
from policies.structure import structure
from policies.thinkv import Whenever
from protocol.evidence.invariants import memory_invariants, planned_lanes
from protocol.evidence.invariants.recorded_lanes import SlotBounds
from protocol.presses.pressed import AsThePress, Pressed

EVICTING = [name for name in policies.names() if policies.get(name).evicts]


@pytest.mark.parametrize("name", EVICTING)
def test_routings_that_take_the_budget_as_a_bound_are_those_that_say_so(name):
    policy = policies.get(name)
    assert (structure(policy)["routing"] in planned_lanes.BOUNDING_ROUTINGS) == policy.routing.bounds


@pytest.mark.parametrize("name", EVICTING)
def test_every_selection_is_one_whose_use_of_a_grant_is_known(name):
    policy = policies.get(name)
    known = structure(policy)["selection"] in (*planned_lanes.EXACT_SELECTIONS, *planned_lanes.BOUNDED_SELECTIONS)
    assert known != isinstance(policy.selection, ExceedingDissolution)  # which leaves more on purpose


@pytest.mark.parametrize("name", EVICTING)
def test_every_state_is_known_to_leave_what_a_selection_kept(name):
    assert structure(policies.get(name))["state"] in planned_lanes.SLOT_PRESERVING_STATES


@pytest.mark.parametrize("name", EVICTING)
def test_plain_cadences_and_those_that_look_at_no_budget_are_named_as_they_are(name):
    cadence = policies.get(name).cadence
    found = structure(policies.get(name))["cadence"]
    assert (found == planned_lanes.PLAIN_CADENCE) == (type(cadence) is Cadence)
    assert (found == planned_lanes.EVERY_INTERVAL_CADENCE) == (type(cadence) is Whenever)
    assert (found == planned_lanes.BLOCKWISE_CADENCE) == (type(cadence) is Blockwise)
    assert (found == planned_lanes.EPISODIC_CADENCE) == (type(cadence) is Episodic)


@pytest.mark.parametrize("name", EVICTING)
def test_caches_that_an_arm_parks_are_those_of_its_other_episodes(name):
    cadence = policies.get(name).cadence
    parks = cadence.episodes - 1 if isinstance(cadence, Episodic) else 0
    assert planned_lanes._arm_from_settings(structure(policies.get(name))).parked_caches == parks


@pytest.mark.parametrize(
    ("parks", "after", "state", "fine"),
    [
        (0, 60, 0, True),
        (0, 60, 1, False),
        (3, 60, 180 * 8, True),
        (3, 60, 180 * 8 + 1, False),
        (3, 90, 1, False),
    ],
)
def test_what_a_lane_parks_is_no_more_than_its_other_caches_can_hold(parks, after, state, fine):
    """Of 90 slots of 8 bytes; nothing is parked where all of them stay."""
    arm = planned_lanes.Arm(False, 0, True, True, True, parked_caches=parks)
    lane = SimpleNamespace(is_full=False, arm=arm, events=[[0, 90, after]], cache={"state_bytes": state})
    assert (memory_invariants.check_state_bytes(None, lane, SlotBounds(6, 8, 8)) == "") == fine


def test_a_press_is_known_by_what_stands_in_place_of_its_selection():
    part = AsThePress()
    parts = dict.fromkeys(("scoring", "selection", "routing", "state", "protect"), part)
    arm = planned_lanes._arm_from_settings(structure(Pressed(**parts)))
    assert arm == planned_lanes.Arm(True, 0, True, None, None, is_press=True)
    assert not any(planned_lanes._arm_from_settings(structure(policies.get(name))).is_press for name in EVICTING)
