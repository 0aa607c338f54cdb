"""The relations know the parts of the catalogue's policies by name: a part that they do not know would be
held to what another one promises.
"""

import pytest

import policies
from policies import Cadence
from policies.crystal.dissolution import ExceedingDissolution
from policies.structure import structure
from policies.thinkv import Whenever
from protocol.evidence.relations import planned_lanes
from protocol.presses.pressed import AsThePress, Pressed

EVICTING = [name for name in policies.names() if policies.get(name).evicts]


@pytest.mark.parametrize("name", EVICTING)
def test_routings_that_take_the_budget_as_a_bound_are_those_that_say_so(name):
    policy = policies.get(name)
    assert (structure(policy)["routing"] in planned_lanes.BOUNDING) == policy.routing.bounds


@pytest.mark.parametrize("name", EVICTING)
def test_every_selection_is_one_whose_use_of_a_grant_is_known(name):
    policy = policies.get(name)
    known = structure(policy)["selection"] in (*planned_lanes.EXACT, *planned_lanes.AT_MOST)
    assert known != isinstance(policy.selection, ExceedingDissolution)  # which leaves more on purpose


@pytest.mark.parametrize("name", EVICTING)
def test_every_state_is_known_to_leave_what_a_selection_kept(name):
    assert structure(policies.get(name))["state"] in planned_lanes.KEEPING


@pytest.mark.parametrize("name", EVICTING)
def test_plain_cadences_and_those_that_look_at_no_budget_are_named_as_they_are(name):
    cadence = policies.get(name).cadence
    found = structure(policies.get(name))["cadence"]
    assert (found == planned_lanes.PLAIN) == (type(cadence) is Cadence)
    assert (found == planned_lanes.EVERY) == (type(cadence) is Whenever)


def test_a_press_is_known_by_what_stands_in_place_of_its_selection():
    part = AsThePress()
    parts = dict.fromkeys(("scoring", "selection", "routing", "state", "protect"), part)
    arm = planned_lanes._as_locked(structure(Pressed(**parts)))
    assert arm == planned_lanes.Arm(True, 0, True, None, None, press=True)
    assert not any(planned_lanes._as_locked(structure(policies.get(name))).press for name in EVICTING)
